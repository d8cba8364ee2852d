"""Traces in: recorded conversations out of files and folders, in whatever shape they were kept.

    for trace in read_traces(["~/.claude/projects", "logs/*.jsonl.zst"]):
        ...                                # a Trace, or an UnreadableLine with its place and the reason

The content of each record decides what it is, so one file may hold several shapes. Files are read one after
the other and in pieces: what is held is a record, and the few conversations that may still go on. Damage is
reported and passed over. An answer that stands in several files, since its session was resumed or copied, is
counted in the first one only. Nothing here asks what a trace cost or would cost.

    pieces ──▶ lines ──▶ rows ──▶ session | growing | claude_code | codex | exported ──▶ traces
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import msgspec

from lamina.errors import BadInput
from lamina.replay.traces.claude_code import ClaudeCode, is_claude_code
from lamina.replay.traces.codex import Codex, is_codex
from lamina.replay.traces.files import Paths, TraceFile, file_size, find_files
from lamina.replay.traces.growing_requests import GrowingConversations
from lamina.replay.traces.json_fields import as_list, text_field
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

LONGEST_TITLE = 60
"""Characters of the first words of a session."""

_BY_CLIENTS = ("<", "Caveat:", "# AGENTS.md")
_NO_RECORD = "it is no record of a conversation that is known here"


def read_traces(paths: Paths, *, progress: Progress | None = None) -> Iterator[Trace | UnreadableLine]:
    """Every trace in these files, folders, globs and URLs, in an order that is always the same.

    A path that does not exist raises `BadInput` at once; what a file holds never raises.
    """
    return _count_once(_read_files(find_files(paths), progress))


def _count_once(results: Iterable[Trace | UnreadableLine]) -> Iterator[Trace | UnreadableLine]:
    """All results. Answers that an earlier trace has are marked, and a trace of nothing else is left out.

    A resumed session begins with a copy of the one before it. Its copied answers were paid for once.
    """
    seen: set[str] = set()
    for result in results:
        if isinstance(result, UnreadableLine):
            yield result
            continue
        names = {place: _name_of_call(result, place) for place in result.call_ids}
        copied = frozenset(place for place, name in names.items() if name in seen)
        seen.update(names.values())
        if copied and copied.issuperset([*names, *result.used]):
            continue
        yield _describe(result, copied)


def _name_of_call(trace: Trace, place: int) -> str:
    """The ids of an answer with its usage, since some servers give every answer the same id."""
    name = trace.call_ids[place]
    usage = trace.used.get(place)
    if usage is None:
        return name
    return f"{name} {usage.uncached} {usage.read} {usage.written} {usage.written_long} {usage.output}"


def _describe(trace: Trace, copied: frozenset[int]) -> Trace:
    """The trace with what a reader tells it by, and with the usage of its own answers only.

    A session that began with copied answers began when its first own answer came.
    """
    used = {place: usage for place, usage in trace.used.items() if place not in copied}
    began = trace.began
    if began is None or copied:
        moments = [usage.at for usage in used.values() if usage.at is not None]
        began = min(moments, default=began)
    return msgspec.structs.replace(
        trace, used=used, copied=copied, began=began, title=trace.title or _first_words(trace.items)
    )


def _first_words(items: Iterable[dict[str, Any]]) -> str:
    """The beginning of what the user wrote first. What a client put there itself begins with a tag.

    `<environment_context>…` is passed over, and `Fix the tests` is a title.
    """
    for item in items:
        if item.get("role") != "user":
            continue
        words = " ".join(_user_text(item.get("content")).split())
        if words and not words.startswith(_BY_CLIENTS):
            return words if len(words) <= LONGEST_TITLE else f"{words[: LONGEST_TITLE - 1]}…"
    return ""


def _user_text(content: Any) -> str:
    """The user's words in a message: its last text that no client put there.

    Attachments and reminders come before the words, each in a block of its own.
    """
    if isinstance(content, str):
        return content
    for block in reversed(as_list(content)):
        text = text_field(block, "text")
        if text and not text.startswith(_BY_CLIENTS):
            return text
    return ""


def _read_files(paths: list[TraceFile], progress: Progress | None) -> Iterator[Trace | UnreadableLine]:
    """The traces of all files, with progress after each.

    Progress counts bytes, so that one large file is not one large step.
    """
    sizes = [file_size(path) for path in paths]
    total = sum(sizes)
    done = 0
    for path, size in zip(paths, sizes, strict=True):
        tell = partial(_tell_progress, progress, done, size, total)
        yield from _bound_damage(_read_file(path, tell), str(path))
        tell(size)
        done += size


def _tell_progress(progress: Progress | None, done: int, size: int, total: int, behind: int) -> None:
    """Tells the progress within one file as progress over all files."""
    if progress is not None:
        progress(done + min(behind, size), total)


def _bound_damage(results: Iterator[Trace | UnreadableLine], path: str) -> Iterator[Trace | UnreadableLine]:
    """All traces, and the first few damaged records; of the others only how many there are.

    A file in which every record is in order, but none is of a conversation, is one foreign file: the index
    that a client keeps of its sessions, say.
    """
    unknown_records: list[UnreadableLine] = []
    is_foreign = True
    damaged = 0
    for result in results:
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


def _read_file(path: TraceFile, tell: Tell) -> Iterator[Trace | UnreadableLine]:
    """The traces of one file. Damage in a record does not end the file.

    A page of Markdown is read as a whole, any other file row by row.
    """
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


def _read_markdown(path: TraceFile, tell: Tell) -> Iterator[Trace | UnreadableLine]:
    """The chat that a Markdown page holds."""
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
        """Gives a row to the reader of its shape. The first shape that fits is taken.

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
