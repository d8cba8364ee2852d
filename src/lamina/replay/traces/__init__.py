"""Traces in: recorded conversations out of files and folders, in whatever shape they were kept.

    for trace in read_traces(["~/.claude/projects", "logs/*.jsonl.zst"]):
        ...                                # a Trace, or an UnreadableLine with its place and the reason

The content of each record decides what it is, so one file may hold several shapes. Files are read one after
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
from lamina.replay.traces.files import Paths, file_size, find_files
from lamina.replay.traces.growing_requests import GrowingConversations
from lamina.replay.traces.lamina_exports import Exported, is_export, read_page
from lamina.replay.traces.lines import TraceRow, read_rows, read_text
from lamina.replay.traces.packed import Tell
from lamina.replay.traces.requests import is_record, is_session, read_call, read_session
from lamina.replay.values import Trace, UnreadableLine

__all__ = ["Progress", "find_files", "read_traces"]

Progress = Callable[[int, int], None]
"""Called with the bytes that are behind and those of all files, as they lie on the disk."""

MOST_REPORTED = 20
"""Damaged records of one file that are reported one by one; of the rest, only their number."""


def read_traces(paths: Paths, *, progress: Progress | None = None) -> Iterator[Trace | UnreadableLine]:
    """Every trace in these files, folders and globs, in an order that is always the same.

    A path that does not exist raises `BadInput` at once; what a file holds never raises.
    """
    return _read_files(find_files(paths), progress)


def _read_files(paths: list[Path], progress: Progress | None) -> Iterator[Trace | UnreadableLine]:
    sizes = [file_size(path) for path in paths]
    total = sum(sizes)
    done = 0
    for path, size in zip(paths, sizes, strict=True):
        tell = _teller(progress, done, size, total)
        yield from _bound_damage(_read_file(path, tell), str(path))
        done += size
        if progress is not None:
            progress(done, total)


def _teller(progress: Progress | None, done: int, size: int, total: int) -> Tell:
    def tell(behind: int) -> None:
        if progress is not None:
            progress(done + min(behind, size), total)

    return tell


def _bound_damage(results: Iterator[Trace | UnreadableLine], path: str) -> Iterator[Trace | UnreadableLine]:
    """All traces, and the first few damaged records; of the others only how many there are."""
    damaged = 0
    for result in results:
        if isinstance(result, UnreadableLine):
            damaged += 1
        if isinstance(result, Trace) or damaged <= MOST_REPORTED:
            yield result
    if damaged > MOST_REPORTED:
        left_out = damaged - MOST_REPORTED
        yield UnreadableLine(place=path, reason=f"{left_out:,} more records of it cannot be read")


def _read_file(path: Path, tell: Tell) -> Iterator[Trace | UnreadableLine]:
    if ".md" in path.suffixes[-2:]:
        yield from _read_markdown(path, tell)
        return
    shapes = _Shapes()
    for row in read_rows(path, tell):
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


def _read_markdown(path: Path, tell: Tell) -> Iterator[Trace | UnreadableLine]:
    try:
        yield from read_page(read_text(path, tell), str(path))
    except BadInput as error:
        yield UnreadableLine(place=str(path), reason=error.problem)


class _Shapes:
    """State: what was begun in one file, for each shape of which a conversation takes several records."""

    def __init__(self) -> None:
        self.growing = GrowingConversations()
        self.claude_code = ClaudeCode()
        self.codex = Codex()
        self.exported = Exported()

    def take(self, row: TraceRow) -> Iterator[Trace | UnreadableLine]:
        if is_codex(row.value):
            yield from self.codex.take(row)
        elif is_export(row.value):
            yield from self.exported.take(row)
        elif is_session(row.value):
            yield read_session(row)
        elif is_record(row.value):
            yield from self.growing.take(read_call(row))
        elif is_claude_code(row.value):
            yield from self.claude_code.take(row)
        else:
            yield UnreadableLine(
                place=row.place, reason="it is no record of a conversation that is known here"
            )

    def end(self) -> Iterator[Trace | UnreadableLine]:
        for shape in (self.growing, self.claude_code, self.codex, self.exported):
            yield from shape.end()
