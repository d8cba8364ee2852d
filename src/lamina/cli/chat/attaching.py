"""Attaches the files, folders, tags and links that a message names with @, and offers them to Tab.

    @src/client.py   @"two words.txt"   @docs/   @#release   @https://example.org/changelog

Each is read by its source in `lamina.context`. If a path or tag does not exist, it is sent as plain text. A
file or page that cannot be sent is refused, so that no question goes out without what it is about. Nothing
here knows a terminal or a model.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import urlsplit

from anyio import to_thread

from lamina.context.files import TAGGED, files, make_file_segment, tags_in
from lamina.context.port import GatheredSegments, Source
from lamina.context.web import web
from lamina.core.values import Segment
from lamina.errors import BadInput
from lamina.segments import image
from lamina.sessions.attachments import MEDIA_TYPES
from lamina.workspace.documents import text_in
from lamina.workspace.fetch import DEFAULT, Address, FetchLimits, is_public
from lamina.workspace.paths import NOISE
from lamina.workspace.workspace import FolderItem, Workspace

# `@src/client.py` or `@"two words.txt"`, and not the second half of `me@example.org`.
_MENTION = re.compile(r'(?<![\w@/.])@(?:"([^"\n]+)"|([^\s"@]+))')

# The same, unfinished at the end of the line: `@src/cl` or `@"two wo`.
_TYPING = re.compile(r'(?<![\w@/.])@(?:"([^"\n]*)|([^\s"@]*))$')

_PUNCTUATION = ".,;:!?)]}'"
"""What ends a sentence rather than a path."""

_LINK = re.compile(r"https?://", re.IGNORECASE)

MOST = 200
"""Choices that Tab offers."""

TAGGED_FILES = 2_000
"""Files that are read for the tags that Tab offers."""


class Choice(NamedTuple):
    """What may stand in place of the last `typed` characters, and its short name."""

    typed: int
    text: str
    short_name: str


async def attach_mentions(text: str, space: Workspace) -> GatheredSegments:
    """What a message names with @, each once, and a note for each name that nothing here has."""
    segments: dict[str, Segment] = {}
    notes: list[str] = []
    for quoted, bare in dict.fromkeys(_MENTION.findall(text)):
        mention = quoted or bare
        name = await find_name(mention, space)
        if not name:
            notes.append(f"@{mention}: {_nothing_is_called(mention)}, sent as words")
            continue
        gathered = await attach_name(name, space)
        if not gathered.segments:
            notes.append(f"@{mention}: {_nothing_is_called(mention)}, sent as words")
        segments.update((segment.key, segment) for segment in gathered.segments)
        notes += gathered.notes
    return GatheredSegments(tuple(segments.values()), tuple(notes))


def _nothing_is_called(mention: str) -> str:
    if mention.startswith("#"):
        return "no note in the workspace has this tag"
    return "no such file in the workspace"


async def find_name(mention: str, space: Workspace) -> str:
    """What is mentioned, without the end of the sentence that it may stand at; "" if it is nothing.

    In `look at @src/a.py.` it is `src/a.py`: the name with the full stop is tried first, and is not there.
    """
    if _LINK.match(mention) or mention.startswith("#"):
        return mention.rstrip(_PUNCTUATION)
    return await to_thread.run_sync(_find_path, mention, space)


async def attach_name(name: str, space: Workspace) -> GatheredSegments:
    """A page of the web, the notes with a tag, one file, or the files below a folder."""
    if _LINK.match(name):
        return await _require_segments(web(name, limits=_limits_for(name)), name)
    if name.startswith("#"):
        return await _gather(files(space, tags=[name]))
    kind = await to_thread.run_sync(space.kind, name)
    if not kind:
        hint = "it is looked for in the workspace; Tab completes paths"
        raise BadInput("there is no such file or folder", place=name, hint=hint)
    if kind == "folder":
        return await _require_segments(files(space, folders=[name]), name)
    segment = await to_thread.run_sync(_read_file, name, space)
    return GatheredSegments((segment,))


async def _require_segments(source: Source, name: str) -> GatheredSegments:
    """What a source finds; raises BadInput with its notes if it finds nothing that can be sent."""
    gathered = await _gather(source)
    if not gathered.segments:
        raise BadInput("nothing of it can be sent", place=name, hint="; ".join(gathered.notes[:3]))
    return gathered


async def _gather(source: Source) -> GatheredSegments:
    gathered: GatheredSegments = await source("", None)  # type: ignore[assignment]
    return gathered


def _limits_for(address: str) -> FetchLimits:
    """How far a page may be fetched that the user names.

    The user may read a server of this machine or network by its number or as `localhost`, and a port of
    its own. Only that address is allowed besides public ones, so no page can redirect to another.
    """
    parts = urlsplit(address)
    host = parts.hostname or ""
    try:
        port = parts.port
    except ValueError:
        port = None
    ports = DEFAULT.ports
    if port is not None:
        ports += (port,)
    try:
        named = ipaddress.ip_address(host)
    except ValueError:
        named = None

    def is_allowed(candidate: Address) -> bool:
        if is_public(candidate) or candidate == named:
            return True
        return host == "localhost" and candidate.is_loopback

    return FetchLimits(ports=ports, allowed=is_allowed)


def _find_path(mention: str, space: Workspace) -> str:
    """The file or folder that is mentioned; "" if there is none."""
    for path in (mention, mention.rstrip(_PUNCTUATION)):
        if not path:
            continue
        with suppress(BadInput):  # it leads out of the workspace, or is no path at all
            if space.kind(path):
                return path.rstrip("/") or "."
    return ""


def _read_file(path: str, space: Workspace) -> Segment:
    data = space.read(path)
    media_type = MEDIA_TYPES.get(PurePosixPath(path).suffix.lower(), "")
    if media_type.startswith("image/"):
        return image(data=base64.b64encode(data).decode(), media_type=media_type, key=path)
    return make_file_segment(path, data)


def mention_choices(before: str, space: Workspace) -> Iterator[Choice]:
    """What Tab offers after these characters of a line: tags after `@#`, else paths, one folder at a time.

    After `see @src/ma` it offers `src/main.py`. A path that begins with a quote may have spaces.
    """
    typing = _TYPING.search(before)
    if typing is None:
        return
    if typing[2] and typing[2].startswith("#"):
        beginning = typing[2][1:]
        for tag in sorted(list_tags(space)):
            if tag.startswith(beginning):
                yield Choice(len(beginning), tag, f"#{tag}")
        return
    yield from _path_choices(typing, space)


def list_tags(space: Workspace) -> frozenset[str]:
    """The tags of the notes in a workspace. Only so many notes are read that Tab answers soon."""
    tags: set[str] = set()
    notes_read = 0
    for item in space.walk():
        if item.why or not item.path.lower().endswith(TAGGED):
            continue
        notes_read += 1
        if notes_read > TAGGED_FILES:
            break
        try:
            tags |= tags_in(text_in(item.path, space.read(item.path)))
        except BadInput:
            continue
    return frozenset(tags)


def _path_choices(typing: re.Match[str], space: Workspace) -> Iterator[Choice]:
    is_quoted = typing[1] is not None
    typed = typing[1] or typing[2] or ""
    folder, _, stem = typed.rpartition("/")
    try:
        items = space.items(folder or ".")
    except BadInput:
        return
    typed_characters = len(typed) + int(is_quoted)
    for item in items[: MOST * 10]:
        name = item.path.rpartition("/")[2]
        if item.why or not _is_offered(name, stem):
            continue
        short_name = name
        if item.folder:
            short_name = f"{name}/"
        yield Choice(typed_characters, _completed_path(item, is_quoted=is_quoted), short_name)


def _is_offered(name: str, stem: str) -> bool:
    """Whether a name begins with what was typed. Hidden files are offered once a dot was typed."""
    if name in NOISE or not name.startswith(stem):
        return False
    return stem.startswith(".") or not name.startswith(".")


def _completed_path(item: FolderItem, *, is_quoted: bool) -> str:
    """The path as it is typed: a folder ends with a slash, and a path with a space stands in quotes."""
    has_quotes = is_quoted or " " in item.path
    match item.folder, has_quotes:
        case False, False:
            return item.path
        case False, True:
            return f'"{item.path}"'
        case True, False:
            return f"{item.path}/"
        case _:  # what is in the folder comes before the closing quote
            return f'"{item.path}/'
