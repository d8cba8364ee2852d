"""Finds the earlier tool results that say nothing that a later result does not say better.

Calls are compared by their subjects (`lamina.text.subjects`): one pass finds, for each result, the
latest one that makes it redundant. Where a subject is not known, nothing is superseded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from lamina.core.values import ToolCall, ToolResult
from lamina.text.subjects import SUBJECTS, Reader, Subject, subject


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """A call and the result that answered it."""

    call: ToolCall
    result: ToolResult


def superseded(exchanges: Sequence[Exchange], *, table: tuple[Reader, ...] = SUBJECTS) -> dict[int, int]:
    """The index of each result that says nothing new, with the index of the latest that says it better.

    A successful read replaces earlier reads of lines that it contains, a successful write all earlier
    reads of its paths. Writes are receipts and stay. Anything else is replaced by its own repetition.
    """
    writes: dict[str, int] = {}
    groups: dict[tuple[str, str], list[_Seen]] = defaultdict(list)
    for index, exchange in enumerate(exchanges):
        about, failed = subject(exchange.call, table=table), exchange.result.error
        if about is not None and about.verb != "write":
            groups[about.verb, about.resource].append(_seen(about, index, failed=failed))
        elif about is not None and not failed:
            writes.update(dict.fromkeys(about.resource.split("\n"), index))
    found = (
        (old, max(new, writes.get(resource, -1) if verb == "read" else -1))
        for (verb, resource), group in groups.items()
        for old, new in _containing(group)
    )
    return dict(sorted((old, new) for old, new in found if new > old))


_Seen = tuple[tuple[int, int], tuple[int, int], int, bool]
"""Where it begins, where it ends (greater contains), which exchange it was, whether it can replace others."""


def _seen(about: Subject, index: int, *, failed: bool) -> _Seen:
    """Lines counted from the start and from the end cannot be compared: only a whole read contains both."""
    if failed:  # it shows nothing, so any success contains it; a call that fails again is news all the same
        return (2, 0), (-1, 0), index, about.verb == "call"
    if about.start is not None and about.start < 0:
        return (1, about.start), (2, 0), index, True
    first = about.start or 1
    return (0, first), (1 + (first == 1), 0) if about.end is None else (0, about.end), index, True


def _containing(group: list[_Seen]) -> Iterator[tuple[int, int]]:
    """For each of the group the latest that contains it, itself excepted, or -1.

    Sorted by beginning, so that whatever may contain an item comes before it; the latest of those that
    end no earlier is then the maximum of a prefix of the ends, kept in a Fenwick tree: n log n.
    """
    ends = sorted({end for _, end, _, _ in group}, reverse=True)
    rank = {end: place for place, end in enumerate(ends, start=1)}
    latest = [-1] * (len(ends) + 1)
    for _, end, index, counts in sorted(group, key=lambda seen: (seen[0], rank[seen[1]], -seen[2])):
        place, best = rank[end], -1
        while place:
            best, place = max(best, latest[place]), place & (place - 1)
        yield index, best
        place = rank[end] if counts else len(latest)
        while place < len(latest):
            latest[place], place = max(latest[place], index), place + (place & -place)
