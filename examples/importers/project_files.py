"""Project files as segments: instructions for agents, descriptions of apps, and what the caller adds.

    gathered = project_files(files, caller=request_items)
    log += first_message_only(gathered.segments, history=log)

Files arrive as text: the caller finds and reads them, and `Layout.context` decides where they are placed.
Files that do not fit are shortened or left out, each with a note.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from lamina import BadInput, Role, Segment
from lamina.context.port import GatheredSegments
from lamina.segments import segment

CALLER_ITEMS = 32
CALLER_NAME = 256
CALLER_CONTENT = 50_000
CALLER_TOTAL = 500_000
"""Limits on what a caller may add, in items and characters, before anything is stripped or shortened."""

_KIND_OF_FILE = {"agents.md": "agents_md", "apps.md": "apps_md"}


class Rank(StrEnum):
    """Which files get room first. A caller's item is never critical: the project's own files come first."""

    CRITICAL = "critical"
    HIGH = "high"
    NORMAL = "normal"
    CALLER = "caller_supplied"


_PRIORITIES = {Rank.CRITICAL: 0, Rank.HIGH: 3, Rank.NORMAL: 5, Rank.CALLER: 10}


class ProjectFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file. The name says what it is (`AGENTS.md`, `APPS.md`, any other), the path where it was."""

    name: str
    path: str
    content: str
    rank: Rank = Rank.NORMAL


class CallerItem(msgspec.Struct, frozen=True, kw_only=True):
    """A named text that came with a request."""

    name: str
    content: str
    rank: Rank = Rank.CALLER


class ProjectFileLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Characters of content: of one file, of all, and the fewest for which shortening a file is worth it."""

    each: int = 20_000
    total: int = 100_000
    least: int = 64


DEFAULT = ProjectFileLimits()


def project_files(
    files: Iterable[ProjectFile], *, caller: Sequence[CallerItem] = (), limits: ProjectFileLimits = DEFAULT
) -> GatheredSegments:
    """Files and the caller's items within the limits, in order of rank, with a note for each that is cut.

    Files of equal rank stay in their order. The most important files take their room first, so that the
    limits cut off the others.
    """
    check_caller(caller)
    files_and_kinds = [(file, _kind_of(file)) for file in files]
    files_and_kinds += [(_file_of_item(item), "context_file") for item in caller]
    files_and_kinds.sort(key=lambda pair: _PRIORITIES[pair[0].rank])
    segments: list[Segment] = []
    notes: list[str] = []
    left = limits.total
    for file, kind in files_and_kinds:
        content, note = _shorten_to_fit(file, left, limits)
        if note:
            notes.append(note)
        if content:
            segments.append(_make_segment(file, kind, content))
            left -= len(content)
    return GatheredSegments(tuple(segments), tuple(notes))


def first_message_only(
    context: Iterable[Segment], *, history: Iterable[Segment], refresh: Iterable[Segment] = ()
) -> tuple[Segment, ...]:
    """The segments to send with a prompt: all of `context` in a new session, later only `refresh`.

    What was sent once stays in the log. Sending it again would cost tokens and say nothing new.
    """
    if all(segment.role is Role.SYSTEM for segment in history):
        return tuple(context)
    return tuple(refresh)


def check_caller(items: Sequence[CallerItem]) -> None:
    """Refuse a caller's items that exceed a limit. Blank items count too."""
    _check_size(len(items), CALLER_ITEMS, "items", place="caller")
    for number, item in enumerate(items):
        _check_size(len(item.name), CALLER_NAME, "characters", place=f"caller[{number}].name")
        _check_size(len(item.content), CALLER_CONTENT, "characters", place=f"caller[{number}].content")
    _check_size(
        sum(len(item.content) for item in items), CALLER_TOTAL, "characters of content", place="caller"
    )


def _check_size(size: int, limit: int, unit: str, *, place: str) -> None:
    """Raise BadInput if there is more than the limit."""
    if size > limit:
        raise BadInput(f"{size:,} {unit}", place=place, hint=f"give at most {limit:,}")


def _file_of_item(item: CallerItem) -> ProjectFile:
    """What a caller passes, as a file. Only files of the project itself may be critical."""
    rank = item.rank
    if rank is Rank.CRITICAL:
        rank = Rank.HIGH
    name = item.name.strip()
    return ProjectFile(name=name, path=f"caller://{name}", content=item.content, rank=rank)


def _kind_of(file: ProjectFile) -> str:
    """Files with a reserved name have a kind of their own; all others are plain context."""
    return _KIND_OF_FILE.get(file.name.lower(), "context_file")


def _shorten_to_fit(file: ProjectFile, left: int, limits: ProjectFileLimits) -> tuple[str, str]:
    """The content that there is room for, and a note about the rest."""
    if not file.name or not file.content.strip():
        return "", f"{file.name or 'a file without a name'}: left out, nothing in it"
    size = len(file.content)
    room = min(limits.each, left)
    if size <= room:
        return file.content, ""
    # a file is left out rather than shortened to a few lines, unless it is critical
    least = min(size, limits.each, limits.least)
    if file.rank is Rank.CRITICAL:
        least = 1
    if room <= 0 or left < least:
        return "", f"{file.name}: left out, {left:,} of {limits.total:,} characters remain"
    short = truncate(file.content, room, name=file.name)
    return short, f"{file.name}: shortened from {size:,} to {room:,} characters"


def truncate(text: str, limit: int, *, name: str) -> str:
    """Head and tail of a file that can be read again; the head has what rounding leaves over."""
    if len(text) <= limit:
        return text
    marker = f"\n[... truncated {name}; read file for full content ...]\n"
    room = limit - len(marker)
    if room <= 0:
        return text[: max(limit, 0)]
    tail = text[len(text) - room // 5 :]
    return text[: room - len(tail)] + marker + tail


def _make_segment(file: ProjectFile, kind: str, content: str) -> Segment:
    """A file as a segment. A file of a reserved kind says in its text where it came from."""
    body = content
    if kind != "context_file":
        body = f"# {file.name} (from {file.path})\n\n{content}"
    attrs = {"name": file.name, "path": file.path}
    return segment(kind, Role.USER, body, key=file.path, attrs=attrs, priority=_PRIORITIES[file.rank])
