"""Chats as Markdown pages: written, read, named, and saved in a folder.

    text = write(MarkdownChat(log=log))  chat = read(text)
    path = await save(chat, folder)      chat = await load(path)

`Mention` is a file or note that a message refers to; `rebuild` puts what it holds in front of that message.
"""

from __future__ import annotations

from lamina.formats.markdown.folder import file_name, find, load, save
from lamina.formats.markdown.lines import Mention, note_path, rebuild
from lamina.formats.markdown.page import MarkdownChat, read, write

__all__ = [
    "MarkdownChat",
    "Mention",
    "file_name",
    "find",
    "load",
    "note_path",
    "read",
    "rebuild",
    "save",
    "write",
]
