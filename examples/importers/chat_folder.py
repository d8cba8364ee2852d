"""Saves chat pages in a folder as obsidian-copilot does: one file for each chat, found by when it began.

    path = await save(MarkdownChat(log=log), folder)      chat = await load(path)

Saving a chat again updates its page, which keeps its topic and file name. The page of another chat is never
overwritten, whatever its name, and a page is written wholly or not at all. A chat without an `epoch` is
identified by the time and the text of its first message. `docs/from-obsidian-copilot.md` says more.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import msgspec
from anyio import to_thread

from examples.importers.chat_page import MarkdownChat, read, write
from lamina import Role, Segment
from lamina.core import text_of

MAX_NAME_BYTES = 100
"""Synced folders and encrypted ones accept less than the usual 255."""

MAX_WORDS = 10
UNTITLED = "Untitled Chat"

_HEAD_BYTES = 64 * 1024  # the fields at the top of a page end within these
_NOT_IN_NAMES = re.compile(r'[\\/:*?"<>|\x00-\x1f\x7f]')
_EPOCH_START = datetime(1970, 1, 1, tzinfo=UTC)


async def save(
    chat: MarkdownChat,
    folder: str | os.PathLike[str],
    *,
    hidden: bool = True,
    now: Callable[[], float] = time.time,
) -> Path | None:
    """Write the page of a chat and return its path. A chat without messages has no page: None."""
    messages = _list_messages(chat)
    if not messages:
        return None
    first_text = ""
    if chat.epoch is None:
        # An estimated time may be that of another chat, so the first words have to be the same too.
        first_text = text_of(messages[0].parts)
        epoch = _parse_epoch(messages[0].at)
        chat = msgspec.structs.replace(chat, epoch=int(now() * 1000) if epoch is None else epoch)
    return await to_thread.run_sync(_save_page, chat, Path(folder), hidden, first_text)


async def load(path: str | os.PathLike[str], *, hidden: bool = True) -> MarkdownChat:
    """Read the chat of a page from its file; without `hidden`, only its readable part."""
    data = await to_thread.run_sync(Path(path).read_bytes)
    return read(data.decode("utf-8"), hidden=hidden)


async def find(folder: str | os.PathLike[str], epoch: int) -> Path | None:
    """The page of the chat that began at `epoch` milliseconds; None if there is none."""
    return await to_thread.run_sync(_find_page, Path(folder), epoch)


def file_name(text: str, epoch: int, *, topic: str = "") -> str:
    """The name of a chat that began with `text`, at `epoch` milliseconds, in UTC.

    It has the first words, without characters that a name may not hold; of a link `[[My note]]` the words.
    """
    moment = _EPOCH_START + timedelta(milliseconds=epoch)
    ending = f"@{moment:%Y%m%d_%H%M%S}.md"
    words = re.sub(r"[{}\[\]]", "", topic or text).split()[:MAX_WORDS]
    name = _NOT_IN_NAMES.sub("", " ".join(words)).strip().lstrip(".")
    name = "_".join((name or UNTITLED).split())
    short = name.encode("utf-8", "replace")[: MAX_NAME_BYTES - len(ending)]
    return short.decode("utf-8", "ignore") + ending


def _list_messages(chat: MarkdownChat) -> list[Segment]:
    return [segment for segment in chat.log if segment.kind in ("user", "assistant") and not segment.covers]


def _save_page(chat: MarkdownChat, folder: Path, hidden: bool, first_text: str) -> Path:  # noqa: FBT001
    """Write a page, over the page of the same chat if there is one, whose topic and last access stay."""
    folder.mkdir(parents=True, exist_ok=True)
    existing = _find_page(folder, chat.epoch or 0, first_text)
    if existing is not None:
        previous = _read_shown(existing.read_bytes())
        chat = msgspec.structs.replace(
            chat, topic=chat.topic or previous.topic, accessed=chat.accessed or previous.accessed
        )
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=".", suffix=".tmp")
    page = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(write(chat, hidden=hidden).encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        if existing is not None:
            return page.replace(existing)
        return _place_page(page, _candidate_names(chat))
    finally:
        page.unlink(missing_ok=True)


def _place_page(page: Path, names: Iterator[str]) -> Path:
    """Give a page the first name that is free and that the disk accepts."""
    for name in names:
        place = page.with_name(name)
        try:
            # a link fails if the name is taken, by another process too; a rename would not
            os.link(page, place)
        except FileExistsError:
            continue
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                continue
            # This disk has no links. Checking before a rename is as near as it gets.
            if place.exists():
                continue
            return page.replace(place)
        else:
            return place
    raise AssertionError(page)


def _candidate_names(chat: MarkdownChat) -> Iterator[str]:
    """The names to try: the one with the words of the chat and the plain one, then both with numbers."""
    epoch = chat.epoch or 0
    questions = (text_of(each.parts) for each in _list_messages(chat) if each.role is Role.USER)
    names = (file_name(next(questions, ""), epoch, topic=chat.topic), f"chat-{epoch}.md")
    yield from names
    for number in count(2):
        for name in names:
            yield f"{name.removesuffix('.md')}-{number}.md"


def _find_page(folder: Path, epoch: int, first_text: str = "") -> Path | None:
    """The page of a chat that began then, and with `first_text` if that is not empty."""
    if not folder.is_dir():
        return None
    for path in sorted(folder.glob("*.md")):
        with path.open("rb") as file:
            head = _read_shown(file.read(_HEAD_BYTES))
        if head.epoch != epoch:
            continue
        messages = _list_messages(_read_shown(path.read_bytes())) if first_text else []
        if not first_text or (messages and text_of(messages[0].parts).strip() == first_text.strip()):
            return path
    return None


def _read_shown(data: bytes) -> MarkdownChat:
    """Read what a page shows, whatever its bytes are."""
    return read(data.decode("utf-8", "replace"), hidden=False)


def _parse_epoch(at: str) -> int | None:
    """The milliseconds of a time; None if it cannot be read. Without a zone of its own it is in UTC."""
    for parse in (datetime.fromisoformat, lambda text: datetime.strptime(text, "%Y/%m/%d %H:%M:%S")):  # noqa: DTZ007
        try:
            moment = parse(at)
        except ValueError:
            continue
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return int(moment.timestamp() * 1000)
    return None
