"""Finds the words by which the list of sessions names a session: the beginning of its first question."""

from __future__ import annotations

import re
from typing import Any

from lamina.replay.model_calls import RecordedConversation, message_text

FIRST_WORDS = 120
"""Characters of the first question that the list shows."""

_TAG = re.compile(r"<(/?)([a-z_-]{1,40})>")
"""The beginning or the end of what clients put before the first question, as `<system-reminder>`."""


def find_first_words(conversation: RecordedConversation) -> str:
    """The beginning of the first question, without the reminders and files that clients put before it."""
    for message in conversation.messages:
        if message.get("role") != "user":
            continue
        for text in reversed(_list_texts(message)):  # attachments stand before the question
            words = " ".join(_remove_tagged(text).split())
            if words:
                return words[:FIRST_WORDS]
    return ""


def _remove_tagged(text: str) -> str:
    """A text without `<name>…</name>`, whatever the name is. A tag that is never closed stays in the text."""
    # A pattern that refers to the name, `<(name)>.*?</\1>`, takes the square of the length: it reads the
    # rest of the text for each tag that has no end.
    tags = list(_TAG.finditer(text))
    last_ends = {tag[2]: tag.start() for tag in tags if tag[1]}
    outside: list[str] = []
    position = 0
    open_name = ""
    for tag in tags:
        is_end, name = tag.groups()
        if open_name:
            if is_end and name == open_name:
                open_name = ""
                position = tag.end()
        elif not is_end and last_ends.get(name, -1) > tag.start():
            outside.append(text[position : tag.start()])
            open_name = name
    outside.append(text[position:])
    return " ".join(outside)


def _list_texts(message: dict[str, Any]) -> list[str]:
    content = message.get("content")
    if isinstance(content, list):
        return [message_text({"content": [part]}) for part in content]
    return [message_text(message)]
