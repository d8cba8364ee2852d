"""What an order of cuts is: a pure function from entries to moves, and which whole steps it may fold.

An order only proposes: the cut takes moves until the target is reached, and skips each that would not shrink
the request. `ladder` is the order that is lamina's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import NamedTuple

import msgspec

from lamina.core.entries import (
    begins_with,
    count_characters,
    find_first_answer,
    is_attachment,
    is_message,
    is_text_alone,
    pair_calls,
)
from lamina.core.kinds import Kinds, Retention, is_section, kind_of, recoverable
from lamina.core.tool_rules import ToolRule
from lamina.core.values import Digest, Document, Entry, Form, Image, Layer, Role

CHARACTERS_PER_TOKEN = 3
"""Characters for each token that a shortened result or a digest may have: names and lists take more tokens
than prose."""


class Move(NamedTuple):
    """Send the entry at `at` in `form`; `fold`: omitted under a digest, with its neighbours."""

    at: int
    form: Form
    why: str
    limit: int = 0
    fold: bool = False


Batch = tuple[Move, ...]
"""Moves that are taken together or not at all."""


class OrderView(msgspec.Struct, frozen=True, kw_only=True):
    """What an order may look at.

    `untouchable` are positions that no cut may lower, `spared` those that it should not. Of results among
    the spared, what is above `largest_spared` tokens may go; 0 sets no limit. `current` are the positions of
    the prompt and the last step: they may be lowered only where they are not untouchable, and they are never
    folded. `tool_rules` has the rules of tools by
    position (`lamina.core.tool_rules`).
    """

    entries: Sequence[Entry]
    kinds: Kinds
    untouchable: frozenset[int]
    spared: frozenset[int]
    largest_spared: int = 0
    current: frozenset[int] = frozenset()
    tool_rules: Mapping[int, ToolRule] = {}

    def free(self) -> list[int]:
        """Positions that may be lowered now, oldest first.

        The entries change while a cut takes moves, so what is free changes too.
        """
        blocked = self.untouchable | self.spared
        positions = []
        for position, entry in enumerate(self.entries):
            if entry.form is not Form.OMITTED and position not in blocked:
                positions.append(position)
        return positions


Order = Callable[[OrderView], Iterator[Batch]]
"""What a cut lowers first: from the view of a draft, batches of moves until the target is reached."""


def pass_over_untouchable(order: Order) -> Order:
    """The order without batches that have a move of what no cut may touch: a caller may have written it."""

    def passing(view: OrderView) -> Iterator[Batch]:
        return (batch for batch in order(view) if view.untouchable.isdisjoint(move.at for move in batch))

    return passing


def repeated_system_text(view: OrderView) -> list[int]:
    """Positions of system text in the conversation that is repeated, byte for byte, further on.

    Sections do not count: a cut puts the newest one among the system text, in place of the older ones.
    """
    newest: dict[Digest, int] = {}
    repeated: set[int] = set()
    for position, entry in enumerate(view.entries):
        if not _is_reminder(view, entry):
            continue
        older = newest.get(entry.content)
        if older is not None and not view.entries[older].segment.pinned:
            repeated.add(older)
        newest[entry.content] = position
    return sorted(repeated - view.current)


def _is_reminder(view: OrderView, entry: Entry) -> bool:
    """Whether an entry is system text that is sent in the middle of the conversation.

    Agents repeat such text with every message, and only the newest copy matters.
    """
    if entry.role is not Role.SYSTEM or entry.layer is Layer.SYSTEM:
        return False
    if entry.form is Form.OMITTED:
        return False
    return not is_section(view.kinds, entry.segment)


def goes_last(entry: Entry, kinds: Kinds) -> bool:
    """Critical, or not to be recovered: lowered when nothing else is left. Images have their own rung.

    The user's own words go last, and text that the user selected somewhere. A file does not: it can be read
    again.
    """
    segment = entry.segment
    if begins_with(segment.parts, Image | Document):
        return False
    is_critical = kind_of(kinds, segment).retention is Retention.CRITICAL
    return is_critical or not recoverable(kinds, segment)


# Whole steps under a digest.


def fold_steps(view: OrderView, *, verbatim: int | None) -> Iterator[Batch]:
    """Whole steps, oldest first, for a digest.

    A step with calls is folded as a whole or not at all: a digest may not come between a call and its
    result, and no call may lose its result.
    """
    first_answer = find_first_answer(view.entries)
    foldable: set[int] = set()
    for position in set(view.free()) - view.current:
        is_task = position < first_answer
        if _is_foldable(view.entries[position], view.kinds, verbatim, is_task=is_task):
            foldable.add(position)
    broken_steps = _find_broken_steps(view.entries, foldable)
    whole = [position for position in sorted(foldable) if view.entries[position].step not in broken_steps]
    for _, step in groupby(whole, key=lambda position: view.entries[position].step):
        yield tuple(Move(position, Form.OMITTED, "folded", fold=True) for position in step)


def _is_foldable(entry: Entry, kinds: Kinds, verbatim: int | None, *, is_task: bool) -> bool:
    """Whether a digest may replace an entry.

    A digest quotes what the user said, and shortens what is long. So a message that cannot be recovered is
    folded only if it is text alone, and the task only if it has at most `verbatim` characters. None sets no
    limit at all. What the user attached is not quoted.
    """
    if not _is_sent_in_step(entry):
        return False
    if verbatim is None or entry.segment.is_own:
        return True
    if not goes_last(entry, kinds):
        return True
    if entry.role is not Role.USER or is_attachment(entry, kinds):
        return False
    if not is_text_alone(entry):
        return False
    return not is_task or count_characters(entry) <= verbatim


def _find_broken_steps(entries: Sequence[Entry], foldable: set[int]) -> set[int]:
    """Steps with calls that cannot be folded as a whole.

    A part of them must stay that is a call or a result, or lies among the rest. A part that stays before or
    after all the rest, such as an item of the provider's own, does no harm: it is sent next to the digest.
    """
    paired = frozenset(chain.from_iterable(pair_calls(entries)))
    steps_with_calls = {entries[position].step for position in paired}
    folded_spans = _folded_spans(entries, foldable)
    broken: set[int] = set()
    for position, entry in enumerate(entries):
        if entry.step not in steps_with_calls:
            continue
        if position in foldable or not _is_sent_in_step(entry):
            continue
        first, last = folded_spans.get(entry.step, (position, position))
        # A digest stands for a run without gaps, so what stays among the rest would split the step.
        stands_between = first < position < last
        if stands_between or position in paired:
            broken.add(entry.step)
    return broken


def _folded_spans(entries: Sequence[Entry], foldable: set[int]) -> dict[int, tuple[int, int]]:
    """The first and the last position that may be folded, by step."""
    spans: dict[int, tuple[int, int]] = {}
    for position in sorted(foldable):
        step = entries[position].step
        first, _ = spans.get(step, (position, position))
        spans[step] = (first, position)
    return spans


def _is_sent_in_step(entry: Entry) -> bool:
    """Whether an entry is sent as a part of its step.

    System text, digests and the library are sent outside of steps.
    """
    if entry.segment.kind == "digest" or entry.layer is Layer.LIBRARY:
        return False
    return is_message(entry)
