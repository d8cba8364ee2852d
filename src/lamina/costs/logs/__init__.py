"""Reads recorded conversations out of files and folders, in whatever shape they were kept.

    for trace in read_traces(["~/.claude/projects", "logs/*.jsonl.zst"]):
        ...                                # a Trace, or an UnreadableLine with its place and the reason

The content of each record decides what it is, so one file may hold several shapes. Files are read one after
the other and in pieces: what is held is a record, and the few conversations that may still go on. Damage is
reported and passed over. An answer that stands in several files, since its session was resumed or copied, is
counted in the first one only. Nothing here asks what a trace cost or would cost.

    pieces ──▶ lines ──▶ rows ──▶ session | growing | claude_code | codex | exported ──▶ traces
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from lamina.costs.logs.claude_code import ClaudeCode, is_claude_code
from lamina.costs.logs.codex import Codex, is_codex
from lamina.costs.logs.files import Paths, TraceFile, file_size, find_files
from lamina.costs.logs.growing_requests import GrowingConversations
from lamina.costs.logs.lamina_exports import Exported, is_export
from lamina.costs.logs.lines import TraceRow, read_rows
from lamina.costs.logs.own_answers import SeenAnswers, digest_answers, select_own
from lamina.costs.logs.requests import is_record, is_session, name_by_path, read_call, read_session
from lamina.costs.logs.values import Trace, UnreadableLine
from lamina.errors import BadInput

__all__ = ["TraceFile", "file_size", "find_files", "read_file", "read_traces"]

MOST_REPORTED = 20
"""Damaged records of one file that are reported one by one; of the rest, only their number."""

_NO_RECORD = "it is no record of a conversation that is known here"


def read_traces(paths: Paths, *, since: float | None = None) -> Iterator[Trace | UnreadableLine]:
    """Every trace in these files, folders, globs and URLs, in an order that is always the same.

    A path that does not exist raises `BadInput` at once; what a file holds never raises. Of each trace, only
    the answers since a moment count. A trace of which nothing counts is left out.
    """
    return _count_once(chain.from_iterable(map(read_file, find_files(paths))), since)


def _count_once(
    results: Iterable[Trace | UnreadableLine], since: float | None
) -> Iterator[Trace | UnreadableLine]:
    seen = SeenAnswers()
    for result in results:
        if isinstance(result, UnreadableLine):
            yield result
            continue
        own_part = select_own(result, seen.add(digest_answers(result)), since)
        if own_part is not None:
            yield own_part


def read_file(path: TraceFile) -> Iterator[Trace | UnreadableLine]:
    """Every trace of one file, with all of its answers: nothing is known of other files here."""
    for result in _bound_damage(_read_file(path), str(path)):
        if isinstance(result, Trace):
            yield name_by_path(result, str(path))
        else:
            yield result


def _bound_damage(results: Iterator[Trace | UnreadableLine], path: str) -> Iterator[Trace | UnreadableLine]:
    """All traces, and the first few damaged records; of the others only how many there are."""
    unknown_records: list[UnreadableLine] = []
    is_foreign = True
    damaged = 0
    for result in results:
        # a file of which every record is in order and none is a conversation is one foreign file: the index
        # that a client keeps of its sessions, say
        if is_foreign and isinstance(result, UnreadableLine) and result.reason == _NO_RECORD:
            unknown_records.append(result)
            continue
        is_foreign = False
        for line in (*unknown_records, result):
            damaged += isinstance(line, UnreadableLine)
            if isinstance(line, Trace) or damaged <= MOST_REPORTED:
                yield line
        unknown_records.clear()
    if unknown_records:
        yield UnreadableLine(place=path, reason="it holds no session", foreign=True)
    if damaged > MOST_REPORTED:
        left_out = damaged - MOST_REPORTED
        yield UnreadableLine(place=path, reason=f"{left_out:,} more records of it cannot be read")


def _read_file(path: TraceFile) -> Iterator[Trace | UnreadableLine]:
    """The traces of one file. Damage in a record does not end the file."""
    shapes = _Shapes()
    for row in read_rows(path):
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


class _Shapes:
    """State: what was begun in one file, for each shape of which a conversation takes several records."""

    def __init__(self) -> None:
        self.growing = GrowingConversations()
        self.claude_code = ClaudeCode()
        self.codex = Codex()
        self.exported = Exported()

    def take(self, row: TraceRow) -> Iterator[Trace | UnreadableLine]:
        """Give a row to the reader of its shape. The first shape that fits is taken.

        Some shapes have fields of others, so the order matters: a line of Codex may have a `type`, as one of
        Claude Code has.
        """
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
            yield UnreadableLine(place=row.place, reason=_NO_RECORD)

    def end(self) -> Iterator[Trace | UnreadableLine]:
        """What was begun and not ended, in the order of the shapes."""
        for shape in (self.growing, self.claude_code, self.codex, self.exported):
            yield from shape.end()
