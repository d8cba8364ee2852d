"""How a chat page is called: its first words and its date, within what every file system takes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

from lamina.core.text.characters import WHITE_SPACE, split_words
from lamina.core.text.outline import truncate_bytes

MOST = 100
"""Bytes of a file's name: synced folders and encrypted ones take less than the usual 255."""

LEAST = 20
"""Bytes of the topic that stay however long the rest is."""

WORDS = 10
UNTITLED = "Untitled Chat"
TEMPLATE = "{topic}@{date}_{time}"

_LINK = re.compile(r"\[\[([^\]]+)\]\]")
_NOT_IN_NAMES = re.compile(r'[\\/:*?"<>|\x00-\x1f\x7f]')
_BEGAN = datetime(1970, 1, 1, tzinfo=UTC)


def file_name(
    text: str, epoch: int, *, topic: str = "", prefix: str = "", template: str = TEMPLATE, zone: tzinfo = UTC
) -> str:
    """The name of a chat that began with `text`, at `epoch` milliseconds."""
    moment = (_BEGAN + timedelta(milliseconds=epoch)).astimezone(zone)
    parts = {"date": f"{moment:%Y%m%d}", "time": f"{moment:%H%M%S}"}
    around = len(_safe(prefix + template.format(topic="", **parts)).encode()) + len(".md")
    words = truncate_bytes(_words(topic or text), max(LEAST, MOST - around))
    whole = _safe(prefix + template.format(topic=words, **parts))
    return f"{truncate_bytes(whole, MOST - len('.md'))}.md"


def plain_name(epoch: int) -> str:
    """A name that any file system takes."""
    return f"chat-{epoch}.md"


def _words(text: str) -> str:
    """The first words, without what a name may not hold."""
    text = re.sub(r"[{}\[\]]", "", _LINK.sub(r"\1", text))
    first = _NOT_IN_NAMES.sub("", " ".join(split_words(text)[:WORDS])).strip(WHITE_SPACE).lstrip(".")
    return "_".join(split_words(first or UNTITLED))


def _safe(name: str) -> str:
    """Without lone surrogates, which no file system takes, and without what a name may not hold."""
    return _NOT_IN_NAMES.sub("_", name).encode("utf-8", "replace").decode()
