"""File names of chat pages: first words and date, within what every file system accepts."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

from lamina.core.text.characters import WHITE_SPACE, split_words
from lamina.core.text.clipping import truncate_bytes

MAX_NAME_BYTES = 100
"""Synced folders and encrypted ones accept less than the usual 255."""

MIN_TOPIC_BYTES = 20
"""The topic gets at least so many, however long the rest of the name is."""

MAX_WORDS = 10
UNTITLED = "Untitled Chat"
TEMPLATE = "{topic}@{date}_{time}"

_NOT_IN_NAMES = re.compile(r'[\\/:*?"<>|\x00-\x1f\x7f]')
_EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)


def file_name(
    text: str, epoch: int, *, topic: str = "", prefix: str = "", template: str = TEMPLATE, zone: tzinfo = UTC
) -> str:
    """The name of a chat that began with `text`, at `epoch` milliseconds."""
    moment = (_EPOCH_START + timedelta(milliseconds=epoch)).astimezone(zone)
    date = f"{moment:%Y%m%d}"
    time = f"{moment:%H%M%S}"
    frame = _replace_unsafe(prefix + template.format(topic="", date=date, time=time))
    room = MAX_NAME_BYTES - len(frame.encode()) - len(".md")
    words = truncate_bytes(_first_words(topic or text), max(MIN_TOPIC_BYTES, room))
    name = _replace_unsafe(prefix + template.format(topic=words, date=date, time=time))
    return truncate_bytes(name, MAX_NAME_BYTES - len(".md")) + ".md"


def plain_name(epoch: int) -> str:
    """A name that every file system accepts."""
    return f"chat-{epoch}.md"


def _first_words(text: str) -> str:
    """The first words of a text, joined by `_`, without characters that a name may not hold.

    Of a link such as `[[My note]]` the words stay.
    """
    text = re.sub(r"[{}\[\]]", "", text)
    words = " ".join(split_words(text)[:MAX_WORDS])
    words = _NOT_IN_NAMES.sub("", words).strip(WHITE_SPACE).lstrip(".")
    return "_".join(split_words(words or UNTITLED))


def _replace_unsafe(name: str) -> str:
    """A name with `_` for characters that a name may not hold, and without lone surrogates."""
    return _NOT_IN_NAMES.sub("_", name).encode("utf-8", "replace").decode()
