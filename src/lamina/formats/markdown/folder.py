"""Saves chat pages in a folder: one file for each chat, found by when it began, written wholly or not at all.

Saving a chat again updates its page, which keeps its topic and file name. The page of another chat is never
overwritten, whatever its name. A chat without an `epoch` is identified by the time and the text of its first
message. Everything that touches the disk runs in a worker thread.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path

import msgspec
from anyio import to_thread

from lamina.core.text.characters import WHITE_SPACE, split_words
from lamina.core.text.clipping import truncate_bytes
from lamina.formats.markdown.page import MarkdownChat, list_messages, read, split_front_matter, write
from lamina.stores.syncing import sync_folder

_FRONT_MATTER_BYTES = 64 * 1024  # front matter ends within these
_TIME_FORMAT = "%Y/%m/%d %H:%M:%S"

MAX_NAME_BYTES = 100
"""Synced folders and encrypted ones accept less than the usual 255."""

MAX_WORDS = 10
UNTITLED = "Untitled Chat"

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
    messages = list_messages(chat.log)
    if not messages:
        return None
    first_text = ""
    if chat.epoch is None:
        # An estimated time may be that of another chat, so the first words have to be the same too.
        first_text = messages[0].text
        epoch = _parse_epoch(messages[0].at)
        if epoch is None:
            epoch = int(now() * 1000)
        chat = msgspec.structs.replace(chat, epoch=epoch)
    return await to_thread.run_sync(
        partial(_save_page, chat, Path(folder), hidden=hidden, first_text=first_text)
    )


async def load(path: str | os.PathLike[str], *, hidden: bool = True) -> MarkdownChat:
    """Read the chat of a page from its file; without `hidden`, only its readable part."""
    data = await to_thread.run_sync(Path(path).read_bytes)
    return read(data.decode("utf-8"), hidden=hidden)


async def find(folder: str | os.PathLike[str], epoch: int) -> Path | None:
    """The page of the chat that began at `epoch` milliseconds; None if there is none."""
    return await to_thread.run_sync(_find_page, Path(folder), epoch)


def _save_page(chat: MarkdownChat, folder: Path, *, hidden: bool, first_text: str) -> Path:
    """Write a page, over the page of the same chat if there is one.

    What the older page says of its topic and of its last access stays, if the chat does not say it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    existing = _find_page(folder, chat.epoch or 0, first_text=first_text)
    if existing is not None:
        previous = _read_shown(existing)
        chat = msgspec.structs.replace(
            chat, topic=chat.topic or previous.topic, accessed=chat.accessed or previous.accessed
        )
    data = write(chat, hidden=hidden).encode("utf-8")
    with _temporary_page(folder, data) as page:
        if existing is not None:
            return page.replace(existing)
        return _place_page(page, _candidate_names(chat))


@contextmanager
def _temporary_page(folder: Path, data: bytes) -> Iterator[Path]:
    """A file with these bytes, on the disk, under a temporary name that is removed afterwards.

    What the caller renamed or linked it to is on the disk too when the block ends.
    """
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield Path(name)
        sync_folder(folder)
    finally:
        Path(name).unlink(missing_ok=True)


def _place_page(page: Path, names: Iterator[str]) -> Path:
    """Give a page the first name that is free and that the disk accepts."""
    for name in names:
        place = page.with_name(name)
        try:
            # a link fails if the name is taken, also by another process at the same moment; a rename would
            # not
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
    """The names to try: the one with the words of the chat and the plain one, then both with numbers.

    The names go on for ever, since each may be that of another chat.
    """
    epoch = chat.epoch or 0
    names = (file_name(_first_question(chat), epoch, topic=chat.topic), plain_name(epoch))
    yield from names
    for number in count(2):
        for name in names:
            yield f"{name.removesuffix('.md')}-{number}.md"


def _first_question(chat: MarkdownChat) -> str:
    """What the user said first; it names the file of a chat without a topic."""
    for message in list_messages(chat.log):
        if message.sender == "user":
            return message.text
    return ""


def _find_page(folder: Path, epoch: int, *, first_text: str = "") -> Path | None:
    """The page of a chat that began then, and with `first_text` if that is not empty."""
    if not folder.is_dir():
        return None
    for path in sorted(folder.glob("*.md")):
        with path.open("rb") as file:
            # as far as front matter goes: pages may be large, and there may be many
            head = file.read(_FRONT_MATTER_BYTES)
        fields, _ = split_front_matter(head.decode("utf-8", "replace").replace("\r\n", "\n"))
        if fields.get("epoch") != str(epoch):
            continue
        if not first_text or _begins_with(path, first_text):
            return path
    return None


def _begins_with(path: Path, first_text: str) -> bool:
    """Whether a page is of the chat that begins with this text."""
    messages = list_messages(_read_shown(path).log)
    if not messages:
        return False
    return messages[0].text.strip(WHITE_SPACE) == first_text.strip(WHITE_SPACE)


def _read_shown(path: Path) -> MarkdownChat:
    """Read what a page shows, whatever its bytes are."""
    return read(path.read_bytes().decode("utf-8", "replace"), hidden=False)


def _parse_epoch(at: str) -> int | None:
    """The milliseconds of a time; None if it cannot be read. Without a zone of its own it is in UTC."""
    moment = _parse_time(at)
    if moment is None:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def _parse_time(at: str) -> datetime | None:
    """A time in ISO format or as a page shows it; None for anything else."""
    try:
        return datetime.fromisoformat(at)
    except ValueError:
        pass
    try:
        return datetime.strptime(at, _TIME_FORMAT)  # noqa: DTZ007 - the caller adds the zone
    except ValueError:
        return None


def file_name(text: str, epoch: int, *, topic: str = "") -> str:
    """The name of a chat that began with `text`, at `epoch` milliseconds, in UTC."""
    moment = _EPOCH_START + timedelta(milliseconds=epoch)
    ending = f"@{moment:%Y%m%d_%H%M%S}.md"
    words = truncate_bytes(_first_words(topic or text), MAX_NAME_BYTES - len(ending))
    return f"{words}{ending}".encode("utf-8", "replace").decode()  # a name has no lone surrogates


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
