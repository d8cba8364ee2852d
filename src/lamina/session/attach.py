"""What comes with a prompt: files, segments and hints, as segments of the turn.

A path is read in a worker thread: text as a file, a picture or a PDF beside the user's words. What belongs
to another workspace, or stands outside the root folder, is left out and noted, never an error that tells
whether it exists. It knows no store and no model.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import NamedTuple

import msgspec
from anyio import to_thread

from lamina.core.kinds import KINDS
from lamina.core.values import Role, Segment
from lamina.errors import BadInput
from lamina.segments import document, file, image, segment

Attachable = str | PurePath | Segment
"""A path, or a segment that is ready."""

MEDIA = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".pdf": "application/pdf",
}
"""Files that are sent as they are; every other one is text."""

LARGEST = 32 * 2**20
"""Bytes of one file: more than any provider takes in a request."""


LEFT_OUT = "an attachment was left out: it does not belong to this workspace"


class Attached(NamedTuple):
    segments: list[Segment]
    notes: list[str]


async def attached(
    given: Iterable[Attachable | tuple[Attachable, int]], *, workspace: str, root: Path | None
) -> Attached:
    """The attachments in order, and a note for each that was left out."""
    found = Attached([], [])
    for one in given:
        what, priority = one if isinstance(one, tuple) else (one, None)
        made = what if isinstance(what, Segment) else await to_thread.run_sync(_read, what, root)
        if made is None or foreign(made, workspace):
            found.notes.append(LEFT_OUT)
            continue
        found.segments.append(made if priority is None else msgspec.structs.replace(made, priority=priority))
    return found


def foreign(made: Segment, workspace: str) -> bool:
    """Whether a segment says that it belongs to another workspace."""
    return str(made.meta.get("workspace", workspace)) != workspace


def hinted(hints: Mapping[str, str] | None) -> list[Segment]:
    """Hints of the application as one attachment, a line each."""
    if not hints:
        return []
    lines = "\n".join(f"{name}: {value}" for name, value in hints.items())
    return [segment("context_file", Role.USER, lines, key="hints", attrs={"name": "hints"})]


def turn_of(context: Iterable[Segment], prompt: Segment) -> list[Segment]:
    """A turn in the order in which it is logged: context, the prompt, what continues its message."""
    before: list[Segment] = []
    after: list[Segment] = []
    for one in context:
        continues = one.joins and one.role is Role.USER and not _places_itself(one)
        (after if continues else before).append(one)
    return [*before, prompt, *after]


def _places_itself(one: Segment) -> bool:
    return one.kind in KINDS and KINDS[one.kind].attachment


def _read(given: str | PurePath, root: Path | None) -> Segment | None:
    """A file as a segment; None if it stands outside the root."""
    name = PurePath(given).as_posix()
    path = Path(given) if root is None else root / given
    if root is not None and not path.resolve().is_relative_to(root.resolve()):
        return None
    try:
        if path.stat().st_size > LARGEST:
            raise BadInput(f"{path.stat().st_size:,} bytes", place=name, hint=f"at most {LARGEST:,} bytes")
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", place=name, hint="check the path") from None
    return _made(name, data)


def _made(name: str, data: bytes) -> Segment:
    media = MEDIA.get(PurePath(name).suffix.lower(), "")
    if media == "application/pdf":
        return document(name=PurePath(name).name, data=_base64(data), media_type=media, key=name)
    if media:
        return image(data=_base64(data), media_type=media, key=name)
    try:
        return file(name, data.decode())
    except UnicodeDecodeError:
        hint = "attach a segment that you made of it; only text, pictures and PDF are read as they are"
        raise BadInput("it is not UTF-8 text", place=name, hint=hint) from None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
