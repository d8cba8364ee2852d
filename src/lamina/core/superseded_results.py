"""Finds the earlier tool results that say nothing that a later result does not say better.

Calls are compared by their subjects (`lamina.core.text.subjects`). A result is outdated if a later call
showed the same and more, or changed what it showed. A call without a subject supersedes nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from lamina.core.entries import pair_calls
from lamina.core.text.subjects import SUBJECT_READERS, Subject, SubjectReader, read_subject
from lamina.core.values import Entry, Form, ToolCall, ToolResult


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """A call and the result that answered it."""

    call: ToolCall
    result: ToolResult


def find_superseded(
    exchanges: Sequence[Exchange], *, table: tuple[SubjectReader, ...] = SUBJECT_READERS
) -> dict[int, int]:
    """The index of each result that says nothing new, with the index of the latest that says it better."""
    calls = [(read_subject(exchange.call, table=table), exchange.result.error) for exchange in exchanges]
    return find_replaced_calls(calls)


def find_full_exchanges(entries: Sequence[Entry]) -> tuple[list[int], list[Exchange]]:
    """The positions of all results that are sent in full, and each of them with its call.

    Only such a result can make an earlier one redundant.
    """
    positions: list[int] = []
    exchanges: list[Exchange] = []
    for call_at, result_at in pair_calls(entries):
        if entries[result_at].form is not Form.FULL:
            continue
        match entries[call_at].parts[0], entries[result_at].parts[0]:
            case ToolCall() as call, ToolResult() as result:
                positions.append(result_at)
                exchanges.append(Exchange(call=call, result=result))
    return positions, exchanges


# Which call is outdated by which.


class _ShownRange(NamedTuple):
    """What one call showed of a resource, as two ends that can be compared with those of other calls.

    One range contains another if it begins no later and ends no earlier.
    """

    begin: tuple[int, int]
    end: tuple[int, int]
    call_index: int
    """Which call it was."""
    can_replace: bool
    """Whether it may replace others. It can always be replaced."""


def find_replaced_calls(calls: Iterable[tuple[Subject | None, bool]]) -> dict[int, int]:
    """Each call that is outdated, and by which one, both by index.

    `calls` are, in order, the subject of each and whether it failed. A successful read replaces earlier reads
    of lines that it contains, a successful write all earlier reads of its paths. Writes are receipts and
    stay. Anything else is replaced by its own repetition.
    """
    last_write: dict[str, int] = {}
    groups: dict[tuple[str, str], list[_ShownRange]] = defaultdict(list)
    for index, (subject, failed) in enumerate(calls):
        if subject is None:
            continue
        if subject.verb != "write":
            groups[subject.verb, subject.resource].append(_range_of(subject, index, failed=failed))
        elif not failed:
            for path in subject.resource.split("\n"):
                last_write[path] = index
    replaced: dict[int, int] = {}
    for (verb, resource), ranges in groups.items():
        for index, containing_index in _find_latest_containing(ranges):
            replaced_by = containing_index
            if verb == "read":
                replaced_by = max(containing_index, last_write.get(resource, -1))
            if replaced_by > index:
                replaced[index] = replaced_by
    return dict(sorted(replaced.items()))


def _range_of(subject: Subject, index: int, *, failed: bool) -> _ShownRange:
    """Lines counted from the start and from the end cannot be compared: only a whole read contains both.

    So an end is a pair: lines counted from the start are (0, line), and the file's own ends sort after them.
    """
    if failed:
        # It shows nothing, so any success contains it. A plain call that fails again replaces the failure.
        return _ShownRange(begin=(2, 0), end=(-1, 0), call_index=index, can_replace=subject.verb == "call")
    if subject.start is not None and subject.start < 0:
        return _ShownRange(begin=(1, subject.start), end=(2, 0), call_index=index, can_replace=True)
    first_line = subject.start or 1
    if subject.end is not None:
        end = (0, subject.end)
    elif first_line == 1:
        end = (2, 0)
    else:
        end = (1, 0)
    return _ShownRange(begin=(0, first_line), end=end, call_index=index, can_replace=True)


def _find_latest_containing(ranges: Sequence[_ShownRange]) -> Iterator[tuple[int, int]]:
    """For each range the index of the latest one that contains it, itself excepted, or -1.

    The ranges are sorted by where they begin, so that whatever may contain a range comes before it. The
    latest of those that end no earlier is then the maximum of a prefix of the ends. A Fenwick tree holds
    these maxima, so the whole takes n log n.
    """
    ends = sorted({shown_range.end for shown_range in ranges}, reverse=True)
    rank = {end: place for place, end in enumerate(ends, start=1)}
    latest = [-1] * (len(ends) + 1)
    for shown_range in sorted(
        ranges, key=lambda shown_range: (shown_range.begin, rank[shown_range.end], -shown_range.call_index)
    ):
        yield shown_range.call_index, _prefix_maximum(latest, rank[shown_range.end])
        if shown_range.can_replace:
            _raise_maximum(latest, rank[shown_range.end], shown_range.call_index)


def _prefix_maximum(tree: Sequence[int], place: int) -> int:
    """The greatest value at places 1 to `place` of a Fenwick tree."""
    maximum = -1
    while place:
        maximum = max(maximum, tree[place])
        place &= place - 1
    return maximum


def _raise_maximum(tree: list[int], place: int, value: int) -> None:
    """Take `value` into a Fenwick tree at `place`.

    Every node whose range includes `place` is raised: each is one set bit further than the one before it.
    """
    while place < len(tree):
        tree[place] = max(tree[place], value)
        place += place & -place
