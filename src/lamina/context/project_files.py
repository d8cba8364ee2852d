"""Project files as segments: instructions for agents, descriptions of apps, and what the caller adds.

    gathered = project_files(found, caller=request_items)
    log += first_message_only(gathered.segments, history=log)

Files arrive as text: finding and reading them is somebody else's work, and so is placing them, which
`Layout.context` decides. What does not fit is shortened or left out, each time with a note.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from lamina.core.kinds import ESSENTIAL, HIGH, LOW, MEDIUM
from lamina.core.text.characters import WHITE_SPACE, is_blank, lower_ascii
from lamina.core.text.outline import truncate
from lamina.core.values import Role, Segment
from lamina.errors import BadInput
from lamina.segments import segment

CALLER_ITEMS = 32
CALLER_NAME = 256
CALLER_CONTENT = 50_000
CALLER_TOTAL = 500_000
"""Limits on what a caller may add, in items and characters, before anything is stripped or shortened."""

_TAGGED = {"agents.md": "agents_md", "apps.md": "apps_md"}


class Rank(StrEnum):
    """Who gets room first. A caller's item is never critical: the project's own files come before it."""

    CRITICAL = "critical"
    HIGH = "high"
    NORMAL = "normal"
    CALLER = "caller_supplied"


_PRIORITIES = {Rank.CRITICAL: ESSENTIAL, Rank.HIGH: HIGH, Rank.NORMAL: MEDIUM, Rank.CALLER: LOW}


class ProjectFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file. The name says what it is (`AGENTS.md`, `APPS.md`, any other), the path where it stood."""

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


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """Segments in order of rank, and a note for each file that is shortened or missing."""

    segments: tuple[Segment, ...] = ()
    notes: tuple[str, ...] = ()


def project_files(
    files: Iterable[ProjectFile], *, caller: Sequence[CallerItem] = (), limits: ProjectFileLimits = DEFAULT
) -> Gathered:
    """Files and the caller's items within the limits; files of equal rank keep their order."""
    check_caller(caller)
    pairs = [(file, _kind(file)) for file in files] + [(_supplied(item), "context_file") for item in caller]
    pairs.sort(key=lambda pair: _PRIORITIES[pair[0].rank])
    placed: list[Segment] = []
    notes: list[str] = []
    left = limits.total
    for file, kind in pairs:
        content, note = _fitted(file, left, limits)
        notes += [note] if note else []
        if content:
            placed.append(_segment(file, kind, content))
            left -= len(content)
    return Gathered(segments=tuple(placed), notes=tuple(notes))


def first_message_only(
    context: Iterable[Segment], *, history: Iterable[Segment], refresh: Iterable[Segment] = ()
) -> tuple[Segment, ...]:
    """The segments to send with a prompt: all of `context` in a new session, later only `refresh`.

    What was sent once stays in the log, so sending it again would cost tokens and tell nothing.
    """
    new = all(past.role is Role.SYSTEM for past in history)
    return tuple(context) if new else tuple(refresh)


def check_caller(items: Sequence[CallerItem]) -> None:
    """Refuses a caller's items that exceed a limit; blank ones count as they came."""
    _within(len(items), CALLER_ITEMS, "items", place="caller")
    for number, item in enumerate(items):
        _within(len(item.name), CALLER_NAME, "characters", place=f"caller[{number}].name")
        _within(len(item.content), CALLER_CONTENT, "characters", place=f"caller[{number}].content")
    _within(sum(len(item.content) for item in items), CALLER_TOTAL, "characters of content", place="caller")


def _within(size: int, limit: int, unit: str, *, place: str) -> None:
    if size > limit:
        raise BadInput(f"{size:,} {unit}", place=place, hint=f"give at most {limit:,}")


def _supplied(item: CallerItem) -> ProjectFile:
    rank = Rank.HIGH if item.rank is Rank.CRITICAL else item.rank
    name = item.name.strip(WHITE_SPACE)
    return ProjectFile(name=name, path=f"caller://{name}", content=item.content, rank=rank)


def _kind(file: ProjectFile) -> str:
    return _TAGGED.get(lower_ascii(file.name), "context_file")


def _fitted(file: ProjectFile, left: int, limits: ProjectFileLimits) -> tuple[str, str]:
    """The content that there is room for, and what to tell about the rest."""
    if not file.name or is_blank(file.content):
        return "", f"{file.name or 'a file without a name'}: left out, nothing in it"
    room, size = min(limits.each, left), len(file.content)
    if size <= room:
        return file.content, ""
    if room <= 0 or (left < min(size, limits.each, limits.least) and file.rank is not Rank.CRITICAL):
        return "", f"{file.name}: left out, {left:,} of {limits.total:,} characters remain"
    short = truncate(file.content, room, name=file.name)
    return short, f"{file.name}: shortened from {size:,} to {room:,} characters"


def _segment(file: ProjectFile, kind: str, content: str) -> Segment:
    body = content if kind == "context_file" else f"# {file.name} (from {file.path})\n\n{content}"
    attrs = {"name": file.name, "path": file.path}
    return segment(kind, Role.USER, body, key=file.path, attrs=attrs, priority=_PRIORITIES[file.rank])
