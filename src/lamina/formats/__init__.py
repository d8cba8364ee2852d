"""Conversations as files: lamina's own JSON, Markdown pages, plain messages, and files of other systems."""
