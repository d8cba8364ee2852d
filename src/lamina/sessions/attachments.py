"""What comes with a prompt: files, segments and hints, as segments of the turn.

A path is read through a `Workspace`, in a worker thread: text as a file, a picture or a PDF beside the user's
words. What belongs to another workspace, or may not be had from the root folder (a way out of it, a link, a
device, a key), is left out and noted, never an error that tells whether it exists. Without a root every plain
file may be attached. It knows no store and no model.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import msgspec
from anyio import to_thread

from lamina.core.kinds import Kinds
from lamina.core.text.characters import lower_ascii
from lamina.core.values import Role, Segment
from lamina.errors import BadInput
from lamina.segments import document, file, image, segment
from lamina.workspace.paths import shown
from lamina.workspace.workspace import Workspace

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
        if isinstance(made, str) or foreign(made, workspace):
            found.notes.append(made if isinstance(made, str) else LEFT_OUT)
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


def turn_of(context: Iterable[Segment], prompt: Segment, kinds: Kinds) -> list[Segment]:
    """A turn in the order in which it is logged: context, the prompt, what continues its message."""
    before: list[Segment] = []
    after: list[Segment] = []
    for one in context:
        attached = one.kind in kinds and kinds[one.kind].attachment
        continues = one.joins and one.role is Role.USER and not attached
        (after if continues else before).append(one)
    return [*before, prompt, *after]


def _read(given: str | PurePath, root: Path | None) -> Segment | str:
    """A file as a segment; or why it is left out."""
    name = PurePath(given).as_posix()
    if root is None:
        return _anywhere(name)
    with _door(root) as space:
        try:
            return _made(name, space.read(name))
        except BadInput:
            why = space.withheld(name)
            if not why:
                raise
            return f"{shown(name)}: left out, {why}"


def _anywhere(name: str) -> Segment:
    """A plain file that the caller chose freely: links are followed, pipes and devices never opened."""
    try:
        path = Path(name).resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as error:
        told = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"cannot be read: {told}", place=shown(name), hint="check the path") from None
    with _door(path.parent, exclude=(), linked=True) as space:
        return _made(name, space.read(path.name))


@contextmanager
def _door(root: Path, **rules: Any) -> Iterator[Workspace]:
    space = Workspace(root, largest=LARGEST, **rules)
    try:
        yield space
    finally:
        space.close()


def _made(name: str, data: bytes) -> Segment:
    media = MEDIA.get(lower_ascii(PurePath(name).suffix), "")
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
