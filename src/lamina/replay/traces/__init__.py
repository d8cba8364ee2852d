"""Traces in: recorded conversations out of files and folders, in whatever shape they were kept.

    for found in read(["~/.claude/projects", "logs/*.jsonl.zst"]):
        ...                                            # a Trace, or Damaged with its place and the reason

Each record says by its content what it is, so one file may hold several shapes. Files are read one after
the other and in pieces: what is held is a record, and the few conversations that may still go on. Damage is
reported and passed over. Nothing here asks what a trace cost or would cost.

    pieces ──▶ lines ──▶ rows ──▶ session | growing | claude_code | codex | exported ──▶ traces
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from lamina.errors import BadInput
from lamina.replay.traces.claude_code import ClaudeCode, is_claude_code
from lamina.replay.traces.codex import Codex, is_codex
from lamina.replay.traces.files import Paths, files, size
from lamina.replay.traces.growing_requests import GrowingConversations
from lamina.replay.traces.lamina_exports import Exported, is_export, page
from lamina.replay.traces.lines import TraceRow, rows, text_of
from lamina.replay.traces.packed import Tell
from lamina.replay.traces.requests import call_of, is_record, is_session, session_of
from lamina.replay.values import Trace, UnreadableLine

__all__ = ["Progress", "files", "read"]

Progress = Callable[[int, int], None]
"""Is given the bytes that are behind and those of all files, as they lie on the disk."""

SHOWN = 20
"""Damaged records of one file that are reported one by one; of the rest, only their number."""


def read(paths: Paths, *, progress: Progress | None = None) -> Iterator[Trace | UnreadableLine]:
    """Every trace in these files, folders and globs, in an order that is always the same.

    A path that is not there is a `BadInput` at once; whatever a file holds is never an error.
    """
    return _read(files(paths), progress)


def _read(found: list[Path], progress: Progress | None) -> Iterator[Trace | UnreadableLine]:
    sizes = [size(path) for path in found]
    total, done = sum(sizes), 0
    for path, its_size in zip(found, sizes, strict=True):
        yield from _few(_file(path, _teller(progress, done, its_size, total)), str(path))
        done += its_size
        if progress is not None:
            progress(done, total)


def _teller(progress: Progress | None, done: int, its_size: int, total: int) -> Tell:
    def tell(behind: int) -> None:
        if progress is not None:
            progress(done + min(behind, its_size), total)

    return tell


def _few(found: Iterator[Trace | UnreadableLine], path: str) -> Iterator[Trace | UnreadableLine]:
    """What was found, and of much damage only how much there is."""
    damaged = 0
    for each in found:
        damaged += isinstance(each, UnreadableLine)
        if isinstance(each, Trace) or damaged <= SHOWN:
            yield each
    if damaged > SHOWN:
        yield UnreadableLine(place=path, reason=f"{damaged - SHOWN:,} more records of it cannot be read")


def _file(path: Path, tell: Tell) -> Iterator[Trace | UnreadableLine]:
    if ".md" in path.suffixes[-2:]:
        yield from _page(path, tell)
        return
    shapes = _Shapes()
    for row in rows(path, tell):
        if isinstance(row, UnreadableLine):
            yield row
            continue
        try:
            yield from shapes.take(row)
        except BadInput as error:
            yield UnreadableLine(place=row.place, reason=error.problem)
        except RecursionError:
            yield UnreadableLine(place=row.place, reason="it is nested too deeply")
    yield from shapes.end()


def _page(path: Path, tell: Tell) -> Iterator[Trace | UnreadableLine]:
    try:
        yield from page(text_of(path, tell), str(path))
    except BadInput as error:
        yield UnreadableLine(place=str(path), reason=error.problem)


class _Shapes:
    """State: what was begun in one file, for each shape of which a conversation takes several records."""

    def __init__(self) -> None:
        self.growing, self.claude_code, self.codex = GrowingConversations(), ClaudeCode(), Codex()
        self.exported = Exported()

    def take(self, row: TraceRow) -> Iterator[Trace | UnreadableLine]:
        if is_codex(row.value):
            yield from self.codex.take(row)
        elif is_export(row.value):
            yield from self.exported.take(row)
        elif is_session(row.value):
            yield session_of(row)
        elif is_record(row.value):
            yield from self.growing.take(call_of(row))
        elif is_claude_code(row.value):
            yield from self.claude_code.take(row)
        else:
            yield UnreadableLine(
                place=row.place, reason="it is no record of a conversation that is known here"
            )

    def end(self) -> Iterator[Trace | UnreadableLine]:
        for shape in (self.growing, self.claude_code, self.codex, self.exported):
            yield from shape.end()
