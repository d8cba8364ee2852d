"""What the messages of an imported page refer to, brought back before the first request of the conversation.

A page of another system names the notes, folders, tags and links of each message and holds none of them. The
names stay with the messages until a request is built for the first time. Then what they stand for is found
and put before each message, once: later requests find it in the log, so that nothing moves that was sent.
Links are left alone unless that is asked for: a page may have changed, or be gone. It writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike

import msgspec

from lamina.context.files import files
from lamina.context.gather import gather
from lamina.context.port import Source, in_thread
from lamina.core.values import Segment
from lamina.formats.markdown.mentions import Finder, Mention, mentions, note_path, rebuild
from lamina.workspace.workspace import Workspace

SHOWN = 5
"""Names that a note lists; of more than these it says how many there are."""

NOT_FOUND = "imported messages refer to {names}, which was not brought back: {why}"
NO_ROOT = "give root= or mentioned= to say where to look"
NOT_THERE = "it was not found, or it is a link, which is fetched only with Mentioned(links=True)"


class Mentioned(msgspec.Struct, frozen=True, kw_only=True):
    """Finds what imported messages refer to; with `links` also what stands at addresses."""

    find: Finder
    links: bool = False


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a log, from its first message on that refers to something; `found` is what is new in it."""

    segments: tuple[Segment, ...]
    found: tuple[Segment, ...]
    notes: tuple[str, ...]


def files_mentioned(root: Workspace | str | PathLike[str]) -> Mentioned:
    """Finds notes, folders and tags among the files of a folder, and nothing outside of it."""

    async def find(mention: Mention) -> Iterable[Segment]:
        if mention.sort not in _FILES:
            return ()
        with _opened(root) as space:
            return await _files_of(mention, space)

    return Mentioned(find=find)


_FILES = frozenset(("note", "folder", "tag"))


@contextmanager
def _opened(root: Workspace | str | PathLike[str]) -> Iterator[Workspace]:
    if isinstance(root, Workspace):
        yield root
        return
    space = Workspace(root)
    try:
        yield space
    finally:
        space.close()


async def _files_of(mention: Mention, space: Workspace) -> Iterable[Segment]:
    if mention.sort == "folder":
        return await files(space, folders=[mention.name])("", None)
    if mention.sort == "tag":
        return await files(space, tags=[mention.name])("", None)
    path = await in_thread(_path_of, space, mention.name)
    if path is None:
        return ()
    return await files(space, paths=[path])("", None)


def first_mention(log: Sequence[Segment]) -> int | None:
    """The index of the first message that refers to something which the log does not hold."""
    return next((index for index, segment in enumerate(log) if mentions(segment)), None)


async def rebuilt_log(log: Sequence[Segment], start: int, where: Mentioned | None) -> Rebuilt:
    """The log from `start` on, with what its messages refer to before each of them."""
    found: list[Segment] = []
    notes: list[str] = []

    async def find(mention: Mention) -> Sequence[Segment]:
        if where is None:
            return ()
        gathered = await gather([_as_source(where.find, mention)], mention.name)
        notes.extend(gathered.notes)
        found.extend(gathered.segments)
        return gathered.segments

    segments = await rebuild(log[start:], find, links=where is not None and where.links)
    missing = [mention.name for segment in segments for mention in mentions(segment)]
    if missing:
        why = NO_ROOT if where is None else NOT_THERE
        notes.append(NOT_FOUND.format(names=_listed(missing), why=why))
    return Rebuilt(segments=segments, found=tuple(found), notes=tuple(notes))


def _path_of(space: Workspace, name: str) -> str | None:
    return note_path(name, (item.path for item in space.walk() if not item.why))


def _as_source(find: Finder, mention: Mention) -> Source:
    """A finder as a source, so that one which fails or hangs leaves a note and sinks no turn."""

    async def source(_prompt: str, _room: int | None) -> Iterable[Segment]:
        return await find(mention)

    source.__name__ = f"of {mention.sort} {mention.name[:80]}"
    return source


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(dict.fromkeys(names[:SHOWN]))
    more = len(names) - SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
