"""What the messages of an imported page refer to, brought back before the first request.

A page of another system names the notes, folders, tags and links of each message, but does not contain them.
The names stay with the messages until a request is built for the first time. Then what they name is looked up
and put before each message. That happens once: later requests find it in the log, so nothing that was sent
moves. Links are not followed unless the caller asks for it, since a page may have changed or be gone. Nothing
is written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from os import PathLike

import msgspec

from lamina.context.files import files
from lamina.context.gather import gather
from lamina.context.port import Source, run_in_thread
from lamina.core.values import Segment
from lamina.formats.markdown.lines import GROUPS, Finder, Mention, mentions, note_path, rebuild
from lamina.workspace.workspace import Workspace

NAMES_IN_NOTE = 5
"""How many names a note lists. For the rest, it says how many there are."""

NOT_FOUND = "imported messages refer to {names}, which was not brought back: {why}"
NO_ROOT = "give root= or mentioned= to say where to look"
NOT_THERE = "it was not found, or it is a link, which is fetched only with Mentioned(links=True)"


class Mentioned(msgspec.Struct, frozen=True, kw_only=True):
    """Finds what imported messages refer to; with `links` also what is at addresses."""

    find: Finder
    links: bool = False


class RebuiltLog(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a log, from its first message that refers to something. `new_segments` were added to it."""

    segments: tuple[Segment, ...]
    new_segments: tuple[Segment, ...]
    notes: tuple[str, ...]


def files_mentioned(root: Workspace | str | PathLike[str]) -> Mentioned:
    """Find notes, folders and tags among the files of a folder, and nothing outside of it."""

    async def find(mention: Mention) -> Iterable[Segment]:
        if mention.sort not in _FILE_SORTS:
            return ()
        with _open_workspace(root) as space:
            return await _read_mentioned(mention, space)

    return Mentioned(find=find)


_FILE_SORTS = frozenset(("note", "folder", "tag"))


def _open_workspace(root: Workspace | str | PathLike[str]) -> AbstractContextManager[Workspace]:
    """The caller's workspace, which stays open, or one that is closed at the end."""
    if isinstance(root, Workspace):
        return nullcontext(root)
    return closing(Workspace(root))


async def _read_mentioned(mention: Mention, space: Workspace) -> Iterable[Segment]:
    """Read what a mention names: a folder, a tag, or a note by its name or path.

    A note that does not exist gives nothing: the mention then is plain words.
    """
    if mention.sort == "folder":
        return await files(space, folders=[mention.name])("", None)
    if mention.sort == "tag":
        return await files(space, tags=[mention.name])("", None)
    path = await run_in_thread(_find_note, space, mention.name)
    if path is None:
        return ()
    return await files(space, paths=[path])("", None)


def _find_note(space: Workspace, name: str) -> str | None:
    """The path of a note with this name, None if the workspace has none that may be read."""
    return note_path(name, (item.path for item in space.walk() if not item.why))


def find_first_mention(log: Sequence[Segment]) -> int | None:
    """The index of the first message that refers to something which the log does not contain.

    None if there is no such message.
    """
    for index, segment in enumerate(log):
        if mentions(segment):
            return index
    return None


async def rebuild_log(log: Sequence[Segment], start: int, mentioned: Mentioned | None) -> RebuiltLog:
    """The log from `start` on, with what its messages refer to before each of them.

    Pages of chats have only the names of what was attached. What is no longer there is named in a note.
    """
    new_segments: list[Segment] = []
    notes: list[str] = []

    async def find(mention: Mention) -> Sequence[Segment]:
        if mentioned is None:
            return ()
        gathered = await gather([_as_source(mentioned.find, mention)], mention.name)
        notes.extend(gathered.notes)
        new_segments.extend(gathered.segments)
        return gathered.segments

    segments = await rebuild(log[start:], find, links=mentioned is not None and mentioned.links)
    missing: list[str] = []
    for segment in segments:
        missing += [_name_mention(mention) for mention in mentions(segment)]
    if missing:
        reason = NO_ROOT if mentioned is None else NOT_THERE
        notes.append(NOT_FOUND.format(names=_list_names(missing), why=reason))
    return RebuiltLog(segments=segments, new_segments=tuple(new_segments), notes=tuple(notes))


def _name_mention(mention: Mention) -> str:
    """The name of what is missing. A sort of another program is named too: `Emails: invoice`."""
    if mention.sort in GROUPS:
        return mention.name
    return f"{mention.sort}: {mention.name}"


def _as_source(find: Finder, mention: Mention) -> Source:
    """A finder as a source. If it fails or hangs, `gather` leaves a note and the turn goes on."""

    async def source(_prompt: str, _room: int | None) -> Iterable[Segment]:
        return await find(mention)

    source.__name__ = f"of {mention.sort} {mention.name[:80]}"
    return source


def _list_names(names: Sequence[str]) -> str:
    listed = ", ".join(dict.fromkeys(names[:NAMES_IN_NOTE]))
    more = len(names) - NAMES_IN_NOTE
    if more <= 0:
        return listed
    return f"{listed} and {more} more"
