"""Files of a workspace as a source: by path, by pattern, by folder, by tag.

    files("notes", paths=["plan.md"], globs=["**/*.py"], folders=["specs"], tags=["release"])

All of them are read through one `Workspace`, each once, in this order. Files that cannot be read (links,
pipes, binary or huge files, paths that lead outside) are left out with a note, and so are files that do not
fit.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import PurePosixPath
from typing import NamedTuple

from lamina.context.port import GatheredSegments, Source, fit_into_room, name_source, run_in_thread
from lamina.core.text.characters import ALPHANUMERIC, fold_case, is_digits, lower_ascii
from lamina.core.values import Segment
from lamina.errors import BadInput
from lamina.segments import file, note, pdf
from lamina.workspace.documents import text_in
from lamina.workspace.paths import split_path
from lamina.workspace.workspace import FolderItem, Workspace

__all__ = ["FileChoice", "files"]

NOTES = 50
"""Notes of one source. Of more only their number is noted."""

SECONDS = 30.0
"""Time on the clock for all files of one source. After it the rest is left out."""

TAGGED = (".md", ".markdown", ".txt")
"""Files that are searched for tags."""

_TAG = re.compile(rf"(?<![{ALPHANUMERIC}_/#&])#([{ALPHANUMERIC}_/-]+)")
"""A tag in the text: `#release/1.0` in `see #release/1.0`, but not the anchor in `page#top`."""

_LISTED_TAG = re.compile(rf"[{ALPHANUMERIC}_/-]+")
"""A tag in the front matter: `release` and `draft` in `[release, draft]`."""

_FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---(?:\n|\Z)", re.DOTALL)
"""The lines between two lines of `---` at the very beginning of a note."""

_TAG_LIST = re.compile(r"^tags?:[ \t]*(.*(?:\n[ \t]*-[ \t].*)*)", re.MULTILINE)
"""`tags: [a, b]` on one line, or `tags:` with a line `- a` for each."""

_FENCED_CODE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


class FileChoice(NamedTuple):
    """Which files of a workspace are chosen. `globs` are split into the steps of a path."""

    paths: tuple[str, ...]
    globs: tuple[tuple[str, ...], ...]
    folders: tuple[str, ...]
    tags: frozenset[str]


def files(
    root: Workspace | str | PathLike[str],
    *,
    paths: Sequence[str] = (),
    globs: Sequence[str] = (),
    folders: Sequence[str] = (),
    tags: Sequence[str] = (),
    limit: int | None = None,
) -> Source:
    """A source of these files. `limit` is the largest size of one, in bytes."""
    space = root if isinstance(root, Workspace) else Workspace(root)
    choice = FileChoice(
        paths=tuple(paths),
        globs=tuple(split_path(space.relative(glob)) for glob in globs),
        folders=tuple(folders),
        tags=frozenset(fold_case(tag.lstrip("#")) for tag in tags),
    )

    async def find(_: str, room: int | None) -> GatheredSegments:
        gathered = await run_in_thread(_read_all, space, choice, limit)
        return fit_into_room(gathered, room)

    return name_source("files", find)


def make_file_segment(path: str, data: bytes, *, seconds: float = SECONDS) -> Segment:
    """A file as a segment: Markdown as a note, the text of a PDF as such, every other as a file.

    `seconds` is how long reading a document may take.
    """
    text = text_in(path, data, seconds=seconds)
    if data.startswith(b"%PDF-"):
        return pdf(path, text)
    if _suffix_of(path) == ".md":
        return note(path, text)
    return file(path, text)


def _suffix_of(path: str) -> str:
    """The ending of a file name in lower case: `.md` of `Notes/A.MD`."""
    return lower_ascii(PurePosixPath(path).suffix)


def _read_all(space: Workspace, choice: FileChoice, limit: int | None) -> GatheredSegments:
    """Read the chosen files, each once, until the time is over.

    A file that is named in several ways is read once. Whatever is left out is noted, with the reason.
    """
    segments: dict[str, Segment] = {}
    notes: dict[str, None] = {}  # in order, each once
    deadline = time.monotonic() + SECONDS
    for item in _find_items(space, choice, notes):
        if item.path in segments:
            continue
        seconds_left = deadline - time.monotonic()
        if item.why:
            notes[f"{item.path}: left out, {item.why}"] = None
            continue
        if seconds_left <= 0:
            notes[f"{item.path}: left out, reading took more than {SECONDS:g} seconds"] = None
            continue
        try:
            data = space.read(item.path, limit=limit)
            segments[item.path] = make_file_segment(item.path, data, seconds=seconds_left)
        except BadInput as error:
            notes[f"{item.path}: left out, {error.problem}"] = None
    return GatheredSegments(tuple(segments.values()), _limit_notes(tuple(notes)))


def _find_items(space: Workspace, choice: FileChoice, notes: dict[str, None]) -> Iterator[FolderItem]:
    """The files by path, then those of folders, patterns and tags. What goes wrong is noted."""
    for path in choice.paths:
        try:
            yield FolderItem(space.relative(path))
        except BadInput as error:
            notes[f"{error.place}: left out, {error.problem}"] = None
    try:
        yield from _walk_for(space, choice)
    except BadInput as error:
        notes[f"{error.place}: left out, {error.problem}"] = None


def _walk_for(space: Workspace, choice: FileChoice) -> Iterator[FolderItem]:
    """The files of folders, patterns and tags. Items of a folder that cannot be read are included."""
    for folder in choice.folders:
        yield from space.walk(folder)
    items: list[FolderItem] = []
    # the whole workspace is walked only if a pattern or a tag asks for it
    if choice.globs or choice.tags:
        items += space.walk()
    for glob in choice.globs:
        yield from _match_items(items, glob)
    for item in items:
        if _has_tag(space, item, choice.tags):
            yield item


def _match_items(items: Iterable[FolderItem], glob: tuple[str, ...]) -> Iterator[FolderItem]:
    """The items whose path fits a pattern."""
    for item in items:
        names = tuple(item.path.split("/"))
        if matches_glob(names, glob):
            yield item


def _has_tag(space: Workspace, item: FolderItem, tags: frozenset[str]) -> bool:
    """Whether a file has one of these tags, or a tag below one: `release/1.0` is below `release`.

    A file that cannot be read has none.
    """
    # without tags no file is read for them
    if not tags or item.why or _suffix_of(item.path) not in TAGGED:
        return False
    try:
        tags_of_file = tags_in(text_in(item.path, space.read(item.path)))
    except BadInput:
        return False
    if not tags_of_file.isdisjoint(tags):
        return True
    folders = tuple(f"{tag}/" for tag in tags)
    return any(tag.startswith(folders) for tag in tags_of_file)


def tags_in(text: str) -> frozenset[str]:
    """The tags of a note, in lower case: those of its front matter, and each `#word` outside of code.

    A number is no tag, so `#12` is not one. `release/1.0` is one tag, below `release`.
    """
    names: list[str] = []
    body = text
    front_matter = _FRONT_MATTER.match(text)
    if front_matter:
        body = text[front_matter.end() :]
        for tag_list in _TAG_LIST.findall(front_matter[1]):
            names += _LISTED_TAG.findall(tag_list)
    names += _TAG.findall(_FENCED_CODE.sub("", body))
    tags = {fold_case(name).strip("-/") for name in names if not is_digits(name)}
    return frozenset(tags - {""})


def _limit_notes(notes: tuple[str, ...]) -> tuple[str, ...]:
    if len(notes) <= NOTES:
        return notes
    return (*notes[:NOTES], f"{len(notes) - NOTES:,} more were left out")


def matches_glob(names: tuple[str, ...], glob: tuple[str, ...]) -> bool:
    """Whether a path, as its names, fits a pattern, as its steps.

    `*` stays in one folder, `**` stands for any number of folders. A `**` at the end stands for at least one
    name. All steps of the pattern that the path can have reached so far are kept together, so the work is at
    most the number of names times the number of steps.
    """
    reached = _skip_stars({0}, glob)
    for name in names:
        advanced = set()
        waiting = set()
        for step in reached:
            if step == len(glob):
                continue
            if glob[step] == "**":
                waiting.add(step)
                advanced.add(step + 1)
            elif fnmatchcase(name, glob[step]):
                advanced.add(step + 1)
        reached = _skip_stars(advanced, glob) | waiting
    return len(glob) in reached


def _skip_stars(places: set[int], glob: tuple[str, ...]) -> set[int]:
    """The places, and those after each `**` that may stand for nothing: every `**` but one at the end."""
    reached = set(places)
    for place in places:
        ahead = place
        while ahead < len(glob) - 1 and glob[ahead] == "**":
            ahead += 1
            reached.add(ahead)
    return reached
