"""Attachments by `@path`: the files that a message names, read through the workspace, and what Tab offers.

If a path does not exist, `@path` is sent as plain text. A file that exists and cannot be sent is refused, so
that no question goes out without what it is about. Nothing here knows a terminal or a model.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from anyio import to_thread

from lamina.context.files import files, make_file_segment
from lamina.context.port import GatheredSegments
from lamina.core.values import Segment
from lamina.errors import BadInput
from lamina.segments import image
from lamina.sessions.attachments import MEDIA_TYPES
from lamina.workspace.paths import NOISE
from lamina.workspace.workspace import FolderItem, Workspace

# `@src/client.py` or `@"two words.txt"`, and not the second half of `me@example.org`.
_MENTION = re.compile(r'(?<![\w@/.])@(?:"([^"\n]+)"|([^\s"@]+))')

# The same, unfinished at the end of the line: `@src/cl` or `@"two wo`.
_TYPING = re.compile(r'(?<![\w@/.])@(?:"([^"\n]*)|([^\s"@]*))$')

_PUNCTUATION = ".,;:!?)]}'"
"""What ends a sentence rather than a path."""

MOST = 200
"""Choices that Tab offers."""


class Choice(NamedTuple):
    """What may stand in place of the last `typed` characters, and its short name."""

    typed: int
    text: str
    short_name: str


async def attach_mentions(text: str, space: Workspace) -> GatheredSegments:
    """The files and folders that a message names with @, each once, and a note for each that is not here."""
    segments: dict[str, Segment] = {}
    notes: list[str] = []
    for quoted, bare in dict.fromkeys(_MENTION.findall(text)):
        mention = quoted or bare
        path = await to_thread.run_sync(_find_path, mention, space)
        if path is None:
            notes.append(f"@{mention}: no such file in the workspace, sent as words")
            continue
        gathered = await attach_path(path, space)
        segments.update((segment.key, segment) for segment in gathered.segments)
        notes += gathered.notes
    return GatheredSegments(tuple(segments.values()), tuple(notes))


async def attach_path(path: str, space: Workspace) -> GatheredSegments:
    """One file, or the files below a folder."""
    kind = await to_thread.run_sync(space.kind, path)
    if not kind:
        hint = "it is looked for in the workspace; Tab completes paths"
        raise BadInput("there is no such file or folder", place=path, hint=hint)
    if kind != "folder":
        segment = await to_thread.run_sync(_read_file, path, space)
        return GatheredSegments((segment,))
    gathered: GatheredSegments = await files(space, folders=[path])("", None)  # type: ignore[assignment]
    if not gathered.segments:
        raise BadInput("no file in it can be sent", place=path, hint="; ".join(gathered.notes[:3]))
    return gathered


def _find_path(mention: str, space: Workspace) -> str | None:
    """The file or folder that is mentioned, perhaps at the end of a sentence; None if there is none.

    In `look at @src/a.py.` it is `src/a.py`: the name with the full stop is tried first, and is not
    there.
    """
    for path in (mention, mention.rstrip(_PUNCTUATION)):
        try:
            if path and space.kind(path):
                return path.rstrip("/") or "."
        except BadInput:
            continue
    return None


def _read_file(path: str, space: Workspace) -> Segment:
    data = space.read(path)
    media_type = MEDIA_TYPES.get(PurePosixPath(path).suffix.lower(), "")
    if media_type.startswith("image/"):
        return image(data=base64.b64encode(data).decode(), media_type=media_type, key=path)
    return make_file_segment(path, data)


def path_choices(before: str, space: Workspace) -> Iterator[Choice]:
    """What Tab offers after these characters of a line: paths below the workspace, one folder at a time.

    After `see @src/ma` it offers `src/main.py`. A path that begins with a quote may have spaces.
    """
    typing = _TYPING.search(before)
    if typing is None:
        return
    is_quoted = typing[1] is not None
    typed = typing[1] if is_quoted else typing[2]
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
        text = _completed_path(item, is_quoted=is_quoted)
        yield Choice(typed_characters, text, f"{name}/" if item.folder else name)


def _is_offered(name: str, stem: str) -> bool:
    """Whether a name begins with what was typed. Hidden files are offered once a dot was typed."""
    if name in NOISE or not name.startswith(stem):
        return False
    return stem.startswith(".") or not name.startswith(".")


def _completed_path(item: FolderItem, *, is_quoted: bool) -> str:
    """The path as it is typed: a folder ends with a slash, and a path with a space stands in quotes."""
    path = f"{item.path}/" if item.folder else item.path
    if not is_quoted and " " not in path:
        return path
    if item.folder:
        return f'"{path}'
    return f'"{path}"'
