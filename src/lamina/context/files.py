"""Files of a workspace as a source: by path, by pattern, by folder, by tag.

    files("notes", paths=["plan.md"], globs=["**/*.py"], folders=["specs"], tags=["release"])

All of them are read through one `Workspace`, once each, in the order given. What cannot be had (links, pipes,
binary or huge files, paths that lead outside) is left out with a note, and so is what the room does not hold.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import PurePosixPath

from lamina.context.port import GatheredSegments, Source, in_thread, named, within
from lamina.core.text.characters import ALPHANUMERIC, fold_case, is_digits, lower_ascii
from lamina.core.values import Segment
from lamina.errors import BadInput
from lamina.segments import file, note, pdf
from lamina.workspace.documents import text_in
from lamina.workspace.paths import joined, steps
from lamina.workspace.workspace import FolderItem, Workspace

NOTES = 50
"""Notes of one source: after these only their number is told."""

SECONDS = 30.0
"""Time on the clock for all files of one source: after it the rest is left out."""

TAGGED = (".md", ".markdown", ".txt")
"""Files that are looked through for tags."""

_TAG = re.compile(rf"(?<![{ALPHANUMERIC}_/#&])#([{ALPHANUMERIC}_/-]+)")
_LISTED_TAG = re.compile(rf"[{ALPHANUMERIC}_/-]+")
_FRONT = re.compile(r"\A---\n(.*?)\n---(?:\n|\Z)", re.DOTALL)
_LISTED = re.compile(r"^tags?:[ \t]*(.*(?:\n[ \t]*-[ \t].*)*)", re.MULTILINE)
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def files(
    root: Workspace | str | PathLike[str],
    *,
    paths: Sequence[str] = (),
    globs: Sequence[str] = (),
    folders: Sequence[str] = (),
    tags: Sequence[str] = (),
    limit: int | None = None,
) -> Source:
    """A source of these files; `limit` is the largest size of one, in bytes."""
    space = root if isinstance(root, Workspace) else Workspace(root)
    wanted = _Wanted(
        space, tuple(globs), tuple(folders), frozenset(fold_case(tag.lstrip("#")) for tag in tags)
    )

    async def find(_: str, room: int | None) -> GatheredSegments:
        found = await in_thread(_read_all, space, tuple(paths), wanted, limit)
        return within(found, room)

    return named("files", find)


def made(path: str, data: bytes, *, seconds: float = SECONDS) -> Segment:
    """A file as a segment: Markdown as a note, the text of a PDF as such, every other as a file.

    `seconds` is how long reading a document may take.
    """
    text = text_in(path, data, seconds=seconds)
    if data.startswith(b"%PDF-"):
        return pdf(path, text)
    return note(path, text) if lower_ascii(PurePosixPath(path).suffix) == ".md" else file(path, text)


def tags_in(text: str) -> frozenset[str]:
    """The tags of a note, in small letters: those of its front matter, and each `#word` outside of code."""
    front = _FRONT.match(text)
    listed = " ".join(_LISTED.findall(front[1])) if front else ""
    body = _FENCED.sub("", text[front.end() :] if front else text)
    found = [*_LISTED_TAG.findall(listed), *_TAG.findall(body)]
    tags = (fold_case(tag).strip("-/") for tag in found if not is_digits(tag))
    return frozenset(tag for tag in tags if tag)


class _Wanted:
    """What a walk over the workspace looks for."""

    def __init__(
        self, space: Workspace, globs: tuple[str, ...], folders: tuple[str, ...], tags: frozenset[str]
    ) -> None:
        self.space, self.folders, self.tags = space, folders, tags
        self.globs = [steps(glob) for glob in globs]

    def items(self) -> Iterator[FolderItem]:
        """The items that are wanted, each kind in turn; what was left out of a wanted folder comes along."""
        for folder in self.folders:
            yield from self.space.walk(folder)
        if not self.globs and not self.tags:
            return
        every = list(self.space.walk())
        for glob in self.globs:
            yield from (item for item in every if matches_glob(tuple(item.path.split("/")), glob))
        if self.tags:
            yield from (item for item in every if not item.why and self._tagged(item))

    def _tagged(self, item: FolderItem) -> bool:
        if lower_ascii(PurePosixPath(item.path).suffix) not in TAGGED:
            return False
        try:
            found = tags_in(text_in(item.path, self.space.read(item.path)))
        except BadInput:
            return False
        return any(tag == want or tag.startswith(f"{want}/") for tag in found for want in self.tags)


def _read_all(
    space: Workspace, paths: tuple[str, ...], wanted: _Wanted, limit: int | None
) -> GatheredSegments:
    segments: dict[str, Segment] = {}
    notes: dict[str, None] = {}
    deadline = time.monotonic() + SECONDS
    for item in _named(paths, wanted, notes):
        if item.path in segments:
            continue
        left = deadline - time.monotonic()
        why = item.why or ("" if left > 0 else f"reading took more than {SECONDS:g} seconds")
        if why:
            notes[f"{item.path}: left out, {why}"] = None
            continue
        try:
            segments[item.path] = made(item.path, space.read(item.path, limit=limit), seconds=left)
        except BadInput as refused:
            notes[f"{item.path}: left out, {refused.problem}"] = None
    return GatheredSegments(tuple(segments.values()), _few(tuple(notes)))


def _named(paths: Iterable[str], wanted: _Wanted, notes: dict[str, None]) -> Iterator[FolderItem]:
    for path in paths:
        try:
            yield FolderItem(joined(steps(path)))
        except BadInput as refused:
            notes[f"{refused.place}: left out, {refused.problem}"] = None
    try:
        yield from wanted.items()
    except BadInput as refused:
        notes[f"{refused.place}: left out, {refused.problem}"] = None


def _few(notes: tuple[str, ...]) -> tuple[str, ...]:
    if len(notes) <= NOTES:
        return notes
    return (*notes[:NOTES], f"{len(notes) - NOTES:,} more were left out")


def matches_glob(way: tuple[str, ...], glob: tuple[str, ...]) -> bool:
    """Whether a path fits a pattern: `*` stays in one folder, `**` is any number of folders.

    `**` at the end stands for at least one name. All places in the pattern that the path can have reached so
    far are kept together, so the work is at most the number of names times that of steps in the pattern.
    """
    reached = _past_stars({0}, glob)
    for name in way:
        advanced = {at + 1 for at in reached if at < len(glob) and _fits_step(name, glob[at])}
        waiting = {at for at in reached if at < len(glob) and glob[at] == "**"}
        reached = _past_stars(advanced, glob) | waiting
    return len(glob) in reached


def _fits_step(name: str, step: str) -> bool:
    return step == "**" or fnmatchcase(name, step)


def _past_stars(places: set[int], glob: tuple[str, ...]) -> set[int]:
    """The places, and those behind each `**` that may stand for nothing: each but one at the end."""
    reached = set(places)
    for at in sorted(places):
        ahead = at
        while ahead < len(glob) - 1 and glob[ahead] == "**":
            ahead += 1
            reached.add(ahead)
    return reached
