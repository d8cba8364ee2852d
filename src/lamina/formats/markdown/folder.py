"""A folder of chat pages: one file for each chat, found again by when it began, written wholly or not at all.

A page that is there already is updated and keeps its topic; another chat's page is never overwritten,
whatever its name. Without an `epoch` a chat is known by the time and the words of its first message.
Everything that touches the disk runs in a worker thread.
"""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, tzinfo
from functools import partial
from itertools import count
from pathlib import Path

import msgspec
from anyio import to_thread

from lamina.core.text.characters import WHITE_SPACE
from lamina.formats.markdown.lines import parted
from lamina.formats.markdown.names import file_name, plain_name
from lamina.formats.markdown.page import MarkdownChat, read, shown, write

_HEAD = 64 * 1024  # bytes in which front matter ends
_TIME = "%Y/%m/%d %H:%M:%S"


async def save(
    chat: MarkdownChat,
    folder: str | os.PathLike[str],
    *,
    hidden: bool = True,
    zone: tzinfo = UTC,
    now: Callable[[], float] = time.time,
) -> Path | None:
    """Writes the page of a chat and says where; None, and nothing written, where nothing was said."""
    if not shown(chat.log):
        return None
    began = chat.epoch if chat.epoch is not None else _began(chat, zone)
    dated = msgspec.structs.replace(chat, epoch=int(now() * 1000) if began is None else began)
    return await to_thread.run_sync(
        partial(_save, dated, Path(folder), hidden=hidden, zone=zone, sure=chat.epoch is not None)
    )


async def load(path: str | os.PathLike[str], *, hidden: bool = True) -> MarkdownChat:
    """The chat of a page."""
    data = await to_thread.run_sync(Path(path).read_bytes)
    return read(data.decode("utf-8"), hidden=hidden)


async def find(folder: str | os.PathLike[str], epoch: int) -> Path | None:
    """The page of the chat that began then."""
    return await to_thread.run_sync(_find, Path(folder), epoch)


def _save(chat: MarkdownChat, folder: Path, *, hidden: bool, zone: tzinfo, sure: bool) -> Path:
    """`sure`: the caller knows when the chat began, so a page of that time is this chat's."""
    folder.mkdir(parents=True, exist_ok=True)
    there = _find(folder, chat.epoch or 0, first="" if sure else shown(chat.log)[0].text)
    if there is not None:
        before = _read(there)
        chat = msgspec.structs.replace(
            chat, topic=chat.topic or before.topic, accessed=chat.accessed or before.accessed
        )
    with _written(folder, write(chat, hidden=hidden).encode("utf-8")) as page:
        if there is not None:
            return page.replace(there)
        return _placed(page, _names(chat, zone))


@contextmanager
def _written(folder: Path, data: bytes) -> Iterator[Path]:
    """A page on the disk under a name of its own, which is gone afterwards; what became of it lasts."""
    number, name = tempfile.mkstemp(dir=folder, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield Path(name)
        _settle(folder)
    finally:
        Path(name).unlink(missing_ok=True)


def _settle(folder: Path) -> None:
    if os.name == "posix":
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def _placed(page: Path, names: Iterator[str]) -> Path:
    """The page under the first name that nobody has, and that the disk takes."""
    for name in names:
        place = page.with_name(name)
        try:
            os.link(page, place)
        except FileExistsError:
            continue
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                continue
            if place.exists():  # no links on this disk: as near as it can be had
                continue
            return page.replace(place)
        else:
            return place
    raise AssertionError(page)


def _names(chat: MarkdownChat, zone: tzinfo) -> Iterator[str]:
    """Names to try: the words of the chat and the plain one, then both with numbers."""
    first = next((message.text for message in shown(chat.log) if message.sender == "user"), "")
    epoch = chat.epoch or 0
    names = (file_name(first, epoch, topic=chat.topic, zone=zone), plain_name(epoch))
    for number in count(1):
        yield from (name if number == 1 else f"{name.removesuffix('.md')}-{number}.md" for name in names)


def _find(folder: Path, epoch: int, *, first: str = "") -> Path | None:
    """The page of a chat that began then, with the words `first` where they are given."""
    if not folder.is_dir():
        return None
    for path in sorted(folder.glob("*.md")):
        with path.open("rb") as file:
            fields, _ = parted(file.read(_HEAD).decode("utf-8", "replace").replace("\r\n", "\n"))
        if fields.get("epoch") == str(epoch) and (not first or _begins(path, first)):
            return path
    return None


def _begins(path: Path, first: str) -> bool:
    said = shown(_read(path).log)
    return bool(said) and said[0].text.strip(WHITE_SPACE) == first.strip(WHITE_SPACE)


def _read(path: Path) -> MarkdownChat:
    return read(path.read_bytes().decode("utf-8", "replace"), hidden=False)


def _began(chat: MarkdownChat, zone: tzinfo) -> int | None:
    """When the first message was said, as far as it tells."""
    moment = next(_moments(shown(chat.log)[0].at), None)
    if moment is None:
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=zone)
    return int(aware.timestamp() * 1000)


def _moments(at: str) -> Iterator[datetime]:
    with suppress(ValueError):
        yield datetime.fromisoformat(at)
    with suppress(ValueError):
        yield datetime.strptime(at, _TIME)  # noqa: DTZ007 - the zone is the caller's
