"""The errors of a request that no cut makes small enough: what takes the room, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lamina.core.entries import find_sent
from lamina.core.text.tags import make_inert
from lamina.core.values import Entry
from lamina.core.wording import text_of
from lamina.errors import BudgetExceeded

OPEN_LOOP = (
    "the model's thinking in the open tool loop is bound to what a cut would change, and the provider is not "
    "asked to drop it"
)
OPEN_LOOP_HINT = (
    "let the provider drop it (drop_block) if it can, let the model end its turn first, turn thinking off, "
    "or give a larger window"
)

_LARGEST_SEGMENTS = 8
"""How many segments an error names."""

_QUOTE = 30
"""Characters of a segment without a key that an error shows."""


def report_too_large(
    entries: Sequence[Entry], head_rows: Iterable[tuple[str, int]], *, floor: int, room: int
) -> BudgetExceeded:
    """The error that names the floor and the largest segments in it.

    Tool definitions and parameters are named too: often they are what does not fit.
    """
    largest, names = _find_largest(entries, head_rows)
    return BudgetExceeded(floor=floor, room=room, segments=largest, names=names)


def report_held_by_thinking(entries: Sequence[Entry], *, floor: int, room: int) -> BudgetExceeded:
    """The error of a cut that bound thinking forbids. `entries` are what it would lower otherwise."""
    largest, names = _find_largest(entries, ())
    return BudgetExceeded(
        floor=floor, room=room, segments=largest, reason=OPEN_LOOP, hint=OPEN_LOOP_HINT, names=names
    )


def _find_largest(
    entries: Sequence[Entry], head_rows: Iterable[tuple[str, int]]
) -> tuple[tuple[tuple[str, int], ...], dict[str, str]]:
    """The largest of these entries and rows, with their tokens, and names for those without a key."""
    rows: list[tuple[str, int]] = []
    names: dict[str, str] = {}
    for entry in find_sent(entries):
        segment = entry.segment
        rows.append((segment.key or str(entry.ref), entry.tokens))
        if not segment.key:  # a ref says nothing to a person
            names[str(entry.ref)] = f'{segment.kind} "{make_inert(text_of(segment.parts), _QUOTE)}"'
    rows += head_rows
    rows.sort(key=lambda row: -row[1])
    return tuple(rows[:_LARGEST_SEGMENTS]), names
