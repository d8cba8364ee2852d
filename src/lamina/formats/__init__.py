"""Conversations as files: lamina's own JSON, Markdown pages, and files of other systems."""
