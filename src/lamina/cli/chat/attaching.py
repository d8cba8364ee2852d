"""Attachments by `@path`: what a message names, read through the workspace's one door, and what Tab offers.

A name that is no file here stays words. One that is a file and cannot be sent is refused, so that no question
goes out without what it is about. It knows no terminal and no model.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from anyio import to_thread

from lamina.context.files import files, made
from lamina.context.port import GatheredSegments
from lamina.core.values import Segment
from lamina.errors import BadInput
from lamina.segments import image
from lamina.sessions.attachments import MEDIA
from lamina.workspace.paths import NOISE
from lamina.workspace.workspace import Workspace

_MENTION = re.compile(r'(?<![\w@/.])@(?:"([^"\n]+)"|([^\s"@]+))')
_TYPING = re.compile(r'(?<![\w@/.])@(?:"([^"\n]*)|([^\s"@]*))$')
_AFTER = ".,;:!?)]}'"
"""What ends a sentence rather than a path."""

MOST = 200
"""Choices that Tab offers."""


class Choice(NamedTuple):
    """What may stand in place of the last `typed` characters, and the short name of it."""

    typed: int
    text: str
    shown: str


async def mentioned(text: str, space: Workspace) -> GatheredSegments:
    """The files and folders that a message names with @, each once, and a note for each that is not here."""
    segments: list[Segment] = []
    notes: list[str] = []
    for quoted, bare in dict.fromkeys(_MENTION.findall(text)):
        path = await to_thread.run_sync(_meant, quoted or bare, space)
        if path is None:
            notes.append(f"@{quoted or bare}: no such file in the workspace, sent as words")
            continue
        found = await attached(path, space)
        segments += found.segments
        notes += found.notes
    return GatheredSegments(tuple({one.key: one for one in segments}.values()), tuple(notes))


async def attached(path: str, space: Workspace) -> GatheredSegments:
    """One file, or the files below a folder."""
    if await to_thread.run_sync(space.kind, path) == "folder":
        found: GatheredSegments = await files(space, folders=[path])("", None)  # type: ignore[assignment]
        if not found.segments:
            raise BadInput("no file in it can be sent", place=path, hint="; ".join(found.notes[:3]))
        return found
    return GatheredSegments((await to_thread.run_sync(_read, path, space),))


def _meant(named: str, space: Workspace) -> str | None:
    for path in dict.fromkeys((named, named.rstrip(_AFTER))):
        try:
            if path and space.kind(path):
                return path.rstrip("/") or "."
        except BadInput:
            continue
    return None


def _read(path: str, space: Workspace) -> Segment:
    data = space.read(path)
    media = MEDIA.get(PurePosixPath(path).suffix.lower(), "")
    if media.startswith("image/"):
        return image(data=base64.b64encode(data).decode(), media_type=media, key=path)
    return made(path, data)


def choices(before: str, space: Workspace) -> Iterator[Choice]:
    """What Tab offers after these characters of a line: paths below the workspace, one folder at a time."""
    typing = _TYPING.search(before)
    if typing is None:
        return
    typed = typing[1] if typing[1] is not None else typing[2]
    folder, _, stem = typed.rpartition("/")
    try:
        items = space.items(folder or ".")
    except BadInput:
        return
    hidden = () if stem.startswith(".") else (".",)
    for item in items[: MOST * 10]:
        name = item.path.rpartition("/")[2]
        if item.why or name in NOISE or not name.startswith(stem) or name.startswith(hidden):
            continue
        path = f"{item.path}/" if item.folder else item.path
        quoted = typing[1] is not None or " " in path
        text = f'"{path}' + ("" if item.folder else '"') if quoted else path
        yield Choice(len(typed) + (typing[1] is not None), text, f"{name}/" if item.folder else name)
