"""What comes with a prompt: files, segments and hints, as segments of the turn.

A path is read through a `Workspace`, in a worker thread. Text becomes a file; a picture or a PDF is sent as
it is. `notes/` is every file of a folder, `#release` every note with that tag, and an address of the web is
fetched. A source, such as a search, is asked for this prompt alone.

Anything from another workspace is left out with a note. So is a path that the root folder withholds: one that
leads out of it, a link, a device or a key. (An error would tell whether the file exists.) Without a root
every plain file may be attached. This module knows no store and no model.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path, PurePath
from typing import Any

import msgspec
from anyio import to_thread

from lamina.context.files import files
from lamina.context.gather import check_source, gather, source_name
from lamina.context.port import GatheredSegments, Source, name_source
from lamina.context.web import web
from lamina.core.text.characters import WHITE_SPACE, lower_ascii
from lamina.core.values import Role, Segment
from lamina.errors import BadInput
from lamina.segments import document, file, image, segment
from lamina.workspace.paths import display_name
from lamina.workspace.workspace import Workspace

Attachable = str | PurePath | Segment | Source
"""A path, a folder (`notes/`), a tag (`#release`), an address of the web, a segment, or a source."""

MEDIA_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".pdf": "application/pdf",
}
"""The files that are sent as they are. Every other one is read as text."""

SECONDS = 30.0
"""How long a folder, a page or a search may take."""

_ADDRESS = re.compile(r"[Hh][Tt][Tt][Pp][Ss]?://")
_TAG = re.compile(f"#[^{WHITE_SPACE}#/.]+(?:/[^{WHITE_SPACE}#/.]+)*")
"""A tag, such as `#release` or `#release/notes`, but not a file that is called `#draft.md`."""

LARGEST = 32 * 2**20
"""The most bytes of one file: more than any provider takes in a request."""

LEFT_OUT = "an attachment was left out: it does not belong to this workspace"


async def read_attachments(
    attach: Iterable[Attachable | tuple[Attachable, int]], *, prompt: str, workspace: str, root: Path | None
) -> GatheredSegments:
    """Read the attachments in order. A tuple has an attachment and its priority.

    What may not be read, or belongs to another workspace, becomes a note.
    """
    if isinstance(attach, str | PurePath):  # the letters of a text are paths, too
        raise BadInput(f"{attach!r:.80} is one path", place="attach", hint=f"give a list: [{attach!r:.80}]")
    segments: list[Segment] = []
    notes: list[str] = []
    for item in attach:
        attachment: Any = item
        priority: int | None = None
        if isinstance(item, tuple):
            attachment, priority = item
        gathered = await _read_attachment(attachment, prompt, root)
        own = drop_foreign(gathered.segments, workspace)
        notes += [*gathered.notes, *own.notes]
        if priority is None:
            segments += own.segments
        else:
            segments += [msgspec.structs.replace(one, priority=priority) for one in own.segments]
    return GatheredSegments(tuple(segments), tuple(notes))


async def _read_attachment(attachment: Attachable, prompt: str, root: Path | None) -> GatheredSegments:
    """What one attachment stands for: a segment, the content of a path, or what a source finds."""
    if isinstance(attachment, Segment):
        return GatheredSegments((attachment,))
    if isinstance(attachment, str | PurePath):
        source = _find_source(str(attachment), root)
        if source is None:
            return await to_thread.run_sync(_read_path, str(attachment), root)
    else:
        check_source(attachment, "attach")
        source = attachment
    gathered = await gather([source], prompt, seconds=SECONDS)
    if not gathered.segments and not gathered.notes:
        return GatheredSegments(notes=(f"{source_name(source)}: nothing was found to attach",))
    return gathered


def _find_source(text: str, root: Path | None) -> Source | None:
    """The source that a text stands for; None for the path of one file."""
    if _ADDRESS.match(text):
        return name_source(text, web(text))
    tag = _TAG.fullmatch(text)
    if tag is not None:
        if root is None:
            hint = "open the session with root=..., where notes with this tag are"
            raise BadInput("a tag needs a folder to look in", place=text, hint=hint)
        return name_source(text, files(root, tags=[text]))
    if text.endswith("/"):
        return name_source(text, _folder_source(text, root))
    return None


def _folder_source(name: str, root: Path | None) -> Source:
    """The source of all files below a folder. Without a root, they are named as below its parent."""
    if root is not None:
        return files(root, folders=[name.rstrip("/") or "."])
    folder = Path(name).resolve()
    return files(folder.parent, folders=[folder.name])


def drop_foreign(segments: Iterable[Segment], workspace: str) -> GatheredSegments:
    """The segments of this workspace, and a note for each one that says it belongs to another.

    A segment that names no workspace belongs to this one.
    """
    own: list[Segment] = []
    notes: list[str] = []
    for one in segments:
        if str(one.meta.get("workspace", workspace)) == workspace:
            own.append(one)
        else:
            notes.append(LEFT_OUT)
    return GatheredSegments(tuple(own), tuple(notes))


def make_hints(hints: Mapping[str, str] | None) -> list[Segment]:
    """The application's hints as one attachment, with a line for each.

    `{"user": "Ada", "plan": "free"}` becomes two lines. Without hints there is no attachment.
    """
    if not hints:
        return []
    lines = "\n".join(f"{name}: {value}" for name, value in hints.items())
    return [segment("context_file", Role.USER, lines, key="hints", attrs={"name": "hints"})]


def _read_path(path: str | PurePath, root: Path | None) -> GatheredSegments:
    """A file as a segment, or a note that says why it is left out.

    With a `root`, only files below it can be read, and none that the workspace withholds.
    """
    name = PurePath(path).as_posix()
    if root is None:
        return GatheredSegments((_read_anywhere(name),))
    with closing(Workspace(root, largest=LARGEST)) as space:
        try:
            return GatheredSegments((_make_segment(space.relative(name), space.read(name)),))
        except BadInput:
            reason = space.withheld(name)
            if not reason:
                raise
            return GatheredSegments(notes=(f"{display_name(name)}: left out, {reason}",))


def _read_anywhere(name: str) -> Segment:
    """Read a plain file that the caller chose. Links are followed; pipes and devices are not opened."""
    try:
        path = Path(name).resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"cannot be read: {reason}", place=display_name(name), hint="check the path") from None
    with closing(Workspace(path.parent, largest=LARGEST, exclude=(), linked=True)) as space:
        return _make_segment(name, space.read(path.name))


def _make_segment(name: str, data: bytes) -> Segment:
    """A file as a document, an image or text, by the ending of its name.

    A file with any other ending must be UTF-8 text.
    """
    media_type = MEDIA_TYPES.get(lower_ascii(PurePath(name).suffix), "")
    base64_text = base64.b64encode(data).decode()
    if media_type == "application/pdf":
        return document(name=PurePath(name).name, data=base64_text, media_type=media_type, key=name)
    if media_type:
        return image(data=base64_text, media_type=media_type, key=name)
    try:
        return file(name, data.decode())
    except UnicodeDecodeError:
        hint = "attach a segment that you made of it; only text, pictures and PDF are read as they are"
        raise BadInput("it is not UTF-8 text", place=name, hint=hint) from None
