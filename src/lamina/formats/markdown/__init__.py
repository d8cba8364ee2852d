"""Chats as Markdown pages, written and read.

    text = write(MarkdownChat(log=log))  chat = read(text)

`Mention` is a file or note that a message refers to; `rebuild` puts what it holds in front of that message.
"""

from __future__ import annotations

from lamina.formats.markdown.lines import Mention, note_path, rebuild
from lamina.formats.markdown.page import MarkdownChat, read, write

__all__ = [
    "MarkdownChat",
    "Mention",
    "note_path",
    "read",
    "rebuild",
    "write",
]
