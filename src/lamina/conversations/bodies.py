"""A body as pieces, so that a growing request is stored as what it adds.

Where a body is cut decides only how much is stored, never what is built again: the pieces in their order are
always the very bytes of the body. A message begins a piece, with the comma before it. So a request that goes
on after its last message has every earlier piece unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

LEAST = 256
"""Bytes of the shortest piece, but for the last one. A record of its own for each short block costs more."""

_BOUNDARY = re.compile(
    rb',[ \n]{0,2}\{[ \n]{0,2}"(?:role|type|parts|content|name|id|function)"'
    rb'|\]?,[ \n]{0,2}"(?:messages|contents|input|system|tools|instructions|systemInstruction)"'
    rb'|\][ \n]{0,2}(?:,[ \n]{0,2}"|\}[ \n]{0,2}\Z)'
)
"""The beginning of a message, of a block or tool in a list, or of a long field, with the comma before it; and
the end of a list, so that its last message is the same piece when another one follows."""


class Body(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The pieces of a body: so many of the `base` from its start, then `runs`, then so many from its end.

    `base` is the number of the record of an earlier request, -1 for none. A run is the number of a piece's
    record, and how many pieces follow each other from there.
    """

    base: int = -1
    head: int = 0
    runs: tuple[tuple[int, int], ...] = ()
    tail: int = 0

    def resolve(self, base: Sequence[int]) -> tuple[int, ...]:
        """The numbers of the pieces, if the base has these."""
        middle: list[int] = []
        for first, count in self.runs:
            middle.extend(range(first, first + count))
        return (*base[: self.head], *middle, *base[len(base) - self.tail :])


class LastBody(NamedTuple):
    """The pieces of the last body of a conversation, where each begins in it, and the record it stands in."""

    pieces: tuple[bytes, ...] = ()
    starts: tuple[int, ...] = ()
    size: int = 0
    record: int = -1


def split_body(text: bytes, last: LastBody, place_of: Callable[[bytes], int]) -> tuple[Body, LastBody]:
    """Cut a body into pieces, most of which the last body had. `place_of` stores a piece and says where.

    The record of the new body is not known yet: the caller sets it.
    """
    head = _count_same(text, last.pieces, last.starts)
    shift = len(text) - last.size
    rest = last.pieces[head:]
    ends = [start + shift for start in reversed(last.starts[head:])]
    head_end = last.starts[head - 1] + len(last.pieces[head - 1]) if head else 0
    # The fields after the messages are the same again, further back by what was added.
    tail = 0
    for piece, start in zip(reversed(rest), ends, strict=True):
        if start < head_end or not text.startswith(piece, start):
            break
        tail += 1
    tail_start = ends[tail - 1] if tail else len(text)
    new_starts = _find_starts(text, head_end, tail_start)
    new_ends = [*new_starts[1:], tail_start][: len(new_starts)]
    new_pieces = [text[start:end] for start, end in zip(new_starts, new_ends, strict=True)]
    body = Body(
        base=last.record if head or tail else -1,
        head=head,
        runs=join_runs([place_of(piece) for piece in new_pieces]),
        tail=tail,
    )
    tail_index = len(last.pieces) - tail
    pieces = (*last.pieces[:head], *new_pieces, *last.pieces[tail_index:])
    starts = (*last.starts[:head], *new_starts, *(start + shift for start in last.starts[tail_index:]))
    return body, LastBody(pieces, starts, len(text), last.record)


def join_runs(places: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Places as runs of places that follow each other."""
    runs: list[tuple[int, int]] = []
    for place in places:
        if runs and sum(runs[-1]) == place:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((place, 1))
    return tuple(runs)


def _count_same(text: bytes, pieces: Sequence[bytes], starts: Sequence[int]) -> int:
    """How many pieces a text begins with."""
    is_same = map(text.startswith, pieces, starts)
    for count, same in enumerate(is_same):
        if not same:
            return count
    return len(pieces)


def _find_starts(text: bytes, start: int, end: int) -> list[int]:
    """Where the pieces of this part of a text begin."""
    if start >= end:
        return []
    starts = [start]
    for match in _BOUNDARY.finditer(text, start, end):
        if match.start() - starts[-1] >= LEAST:
            starts.append(match.start())
    return starts
