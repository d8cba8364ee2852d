"""What is lowered first: the order of a cut, as a pure function from entries to moves.

The ladder, top rung first: what is disposable; superseded results; then everything else that can be had
again, the ripest first; at the very end what cannot be recovered. A move is the riper, the older and larger
the entry is that it lowers, and the less that entry says for its size (`ripeness`). An order only proposes:
the cut takes moves until the target is reached, and skips each that would not shrink the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from lamina.core.entries import OWN_TURN_ONLY, pair_calls
from lamina.core.kinds import Kinds, Retention, is_section, is_turn_scoped, kind_of, priority, recoverable
from lamina.core.superseded_results import Exchange, find_superseded
from lamina.core.values import Document, Entry, Form, Image, Layer, Role, Text, Thinking, ToolCall, ToolResult

REPLY_LIMIT = 400
"""Characters of an old reply that stay when replies are shortened."""

VERBATIM_LIMIT = 2_000
"""Characters of a user's message that a digest keeps word for word; longer ones are not folded."""

DOES_NOT_FIT = "does not fit beside what must stand"

TOKEN_VALUES = {
    "full": 900,
    "compact": 2_500,
    "small": 1_200,
    "reply": 2_000,
    "call": 2_000,
    "asked": 2_000,
    "step": 1_200,
}
"""How much a token says that a move takes away, in thousandths of one of a small result: docs/planner.md."""

COMPACT_TOKENS, SHORT_TOKENS, STUB_TOKENS = 250, 100, 60
"""About what is left of a COMPACT result, of a shortened reply or call, and of anything by handle."""


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

    `untouchable` are positions that no cut may lower, `spared` those that it should not. `current` are the
    positions of the prompt and the last step: they may be lowered only where they are not untouchable, and
    they are never folded.
    """

    entries: Sequence[Entry]
    kinds: Kinds
    untouchable: frozenset[int]
    spared: frozenset[int]
    current: frozenset[int] = frozenset()

    def free(self) -> list[int]:
        """Positions that may be lowered now, oldest first."""
        blocked = self.untouchable | self.spared
        positions = []
        for position, entry in enumerate(self.entries):
            if entry.form is not Form.OMITTED and position not in blocked:
                positions.append(position)
        return positions


Order = Callable[[OrderView], Iterator[Batch]]


def ladder(view: OrderView) -> Iterator[Batch]:
    """The order that is lamina's own."""
    free = _free_foreign(view)
    plain = [position for position in free if not goes_last(view.entries[position], view.kinds)]
    yield from _drop_disposable(view, plain)
    yield from _drop_thinking(view, plain)
    yield from _stub_superseded(view, plain)
    rated_batches = [
        *_lower_messages(view, plain),
        *_lower_attachments(view, plain),
        *_stub_media(view, free),
        *_fold_old_steps(view),
    ]
    rated_batches.sort(key=lambda rated: -rated.ripeness)
    for rated in rated_batches:
        yield rated.batch


def last_resort(view: OrderView) -> Iterator[Batch]:
    """When nothing else is left: what cannot be recovered, oldest first, then everything under digests."""
    for position in _free_foreign(view):
        yield (Move(position, Form.STUB, "nothing else is left to lower"),)
    yield from fold_steps(view, verbatim=None)


def _free_foreign(view: OrderView) -> list[int]:
    """Positions that may be lowered, without those of segments that lamina added itself."""
    return [position for position in view.free() if view.entries[position].segment.origin != "lamina"]


def last_results(view: OrderView) -> Iterator[Batch]:
    """Results of the last step, when all else is lowered and the request is still too large; largest first.

    The model has not answered to them yet, so they are shortened as little as the room allows.
    """
    results = [position for position in view.current if _is_recoverable_result(view, position)]
    results.sort(key=lambda position: (-view.entries[position].tokens, position))
    for form in (Form.COMPACT, Form.STUB):
        for position in results:
            yield (Move(position, form, DOES_NOT_FIT),)


def _is_recoverable_result(view: OrderView, position: int) -> bool:
    """Whether an entry is the result of a call, and may be shortened.

    A result that came too late is sent as plain content, so the segment is asked, not the parts as sent.
    """
    entry = view.entries[position]
    segment = entry.segment
    if not segment.parts or not isinstance(segment.parts[0], ToolResult):
        return False
    if entry.form is Form.OMITTED or segment.pinned or segment.origin == "lamina":
        return False
    return recoverable(view.kinds, segment)


def repeated_system_text(view: OrderView) -> list[int]:
    """Positions of system text in the conversation that is repeated, byte for byte, further on.

    Sections do not count: a cut puts the newest one among the system text, in place of the older ones.
    """
    reminders = [position for position, entry in enumerate(view.entries) if _is_reminder(view, entry)]
    newest = {view.entries[position].content: position for position in reminders}
    repeated = []
    for position in reminders:
        entry = view.entries[position]
        if position in view.current or entry.segment.pinned:
            continue
        if newest[entry.content] > position:
            repeated.append(position)
    return repeated


def _is_reminder(view: OrderView, entry: Entry) -> bool:
    """Whether an entry is system text that is sent in the middle of the conversation."""
    if entry.role is not Role.SYSTEM or entry.layer is Layer.SYSTEM:
        return False
    if entry.form is Form.OMITTED:
        return False
    return not is_section(view.kinds, entry.segment)


def goes_last(entry: Entry, kinds: Kinds) -> bool:
    """Critical, or not to be had again: lowered when nothing else is left. Images have their own rung."""
    segment = entry.segment
    if segment.parts and isinstance(segment.parts[0], Image | Document):
        return False
    if kind_of(kinds, segment).retention is Retention.CRITICAL:
        return True
    return not recoverable(kinds, segment)


# Whole steps under a digest.


def fold_steps(view: OrderView, *, verbatim: int | None) -> Iterator[Batch]:
    """Whole steps, oldest first, for a digest.

    A step with calls is folded as a whole or not at all: a digest may not come between a call and its
    result, and no call may lose its result.
    """
    foldable: set[int] = set()
    for position in view.free():
        if position not in view.current and _is_foldable(view.entries[position], view.kinds, verbatim):
            foldable.add(position)
    broken_steps = _find_broken_steps(view.entries, foldable)
    positions = sorted(i for i in foldable if view.entries[i].step not in broken_steps)
    for _, step in groupby(positions, key=lambda position: view.entries[position].step):
        yield tuple(Move(position, Form.OMITTED, "folded", fold=True) for position in step)


def _is_foldable(entry: Entry, kinds: Kinds, verbatim: int | None) -> bool:
    """Whether a digest may replace an entry.

    A digest keeps a user's message word for word, so the message may have at most `verbatim` characters.
    """
    segment = entry.segment
    if segment.kind == "digest" or entry.layer is Layer.LIBRARY or entry.role is Role.SYSTEM:
        return False
    if verbatim is None or segment.origin == "lamina":
        return True
    if not goes_last(entry, kinds):
        return True
    return entry.role is Role.USER and _is_short_text(entry, verbatim)


def _is_short_text(entry: Entry, most_characters: int) -> bool:
    """Whether an entry is text alone, of at most so many characters."""
    texts = [part.text for part in entry.segment.parts if isinstance(part, Text)]
    has_other_parts = len(texts) != len(entry.parts)
    if has_other_parts:
        return False
    return sum(len(text) for text in texts) <= most_characters


def _find_broken_steps(entries: Sequence[Entry], foldable: set[int]) -> set[int]:
    """Steps with calls that cannot be folded as a whole.

    A part of them must stay that is a call or a result, or lies among the rest. A part that stays before or
    after all the rest, such as an item of the provider's own, does no harm: it is sent next to the digest.
    """
    paired = {position for pair in pair_calls(entries) for position in pair}
    steps_with_calls = {entries[position].step for position in paired}
    folded_spans = _folded_spans(entries, foldable)
    broken: set[int] = set()
    for position, entry in enumerate(entries):
        if position in foldable or entry.step not in steps_with_calls:
            continue
        if not _is_sent_in_step(entry):
            continue
        first, last = folded_spans.get(entry.step, (position, position))
        if position in paired or first < position < last:
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
    if entry.form is Form.OMITTED or entry.segment.kind == "digest":
        return False
    if entry.role is Role.SYSTEM:
        return False
    return entry.layer is not Layer.LIBRARY


# The first rungs: disposable and superseded entries.


def _drop_disposable(view: OrderView, free: list[int]) -> Iterator[Batch]:
    """What is sent in its own turn only, and other disposable kinds."""
    for position in free:
        entry = view.entries[position]
        if is_turn_scoped(view.kinds, entry.segment) and entry.layer is Layer.HISTORY:
            yield (Move(position, Form.OMITTED, OWN_TURN_ONLY),)
            continue
        if _has_first_part(entry, Thinking):
            continue
        if kind_of(view.kinds, entry.segment).retention is Retention.DISPOSABLE:
            yield (Move(position, Form.STUB, "disposable"),)


def _drop_thinking(view: OrderView, free: list[int]) -> Iterator[Batch]:
    """Old thinking; of one step all of it or none."""
    thoughts = [position for position in free if _has_first_part(view.entries[position], Thinking)]
    for _, step in groupby(thoughts, key=lambda position: view.entries[position].step):
        yield tuple(Move(position, Form.OMITTED, "disposable") for position in step)


def _stub_superseded(view: OrderView, free: list[int]) -> Iterator[Batch]:
    """Results that a later one, sent in full, makes redundant."""
    allowed = frozenset(free)
    result_positions: list[int] = []
    exchanges: list[Exchange] = []
    for call_position, result_position in pair_calls(view.entries):
        result = view.entries[result_position]
        if result.form is Form.FULL:
            result_positions.append(result_position)
            exchanges.append(_make_exchange(view.entries[call_position], result))
    for index, later_index in sorted(find_superseded(exchanges).items()):
        position = result_positions[index]
        later = view.entries[result_positions[later_index]]
        if position in allowed:
            yield (Move(position, Form.STUB, f"superseded by {later.ref}"),)


def _make_exchange(call_entry: Entry, result_entry: Entry) -> Exchange:
    call = call_entry.parts[0]
    result = result_entry.parts[0]
    if not isinstance(call, ToolCall) or not isinstance(result, ToolResult):
        raise TypeError((call, result))
    return Exchange(call=call, result=result)


# Everything else that can be had again, by ripeness.


class RatedBatch(NamedTuple):
    """A batch and how ripe it is."""

    ripeness: int
    batch: Batch


def ripeness(age: int, tokens: int, token_value: int) -> int:
    """How early a move comes: the older and larger the entry, and the less a token of it says, the earlier.

    Later answers take from a text of n tokens, a steps old, about a^-1.5 n^-0.5 for each token; the value is
    one over the square of that, in whole numbers, so that every machine agrees.
    """
    return (age + 1) ** 3 * max(tokens, 1) * 1_000_000 // token_value**2


def _age_of(view: OrderView, entry: Entry) -> int:
    """How many steps ago an entry was."""
    return view.entries[-1].step - entry.step


def _lower_messages(view: OrderView, plain: list[int]) -> Iterator[RatedBatch]:
    """Old results, shortened and then by handle; old replies; large arguments of old calls."""
    for position in plain:
        entry = view.entries[position]
        age = _age_of(view, entry)
        if _has_first_part(entry, ToolResult):
            yield from _shorten_in_steps(position, entry, age, "old result")
        elif _has_first_part(entry, Text) and entry.role is Role.ASSISTANT:
            move = Move(position, Form.COMPACT, "old reply", REPLY_LIMIT)
            yield RatedBatch(ripeness(age, entry.tokens, TOKEN_VALUES["reply"]), (move,))
        elif _has_first_part(entry, ToolCall):
            move = Move(position, Form.COMPACT, "large arguments")
            yield RatedBatch(ripeness(age, entry.tokens, TOKEN_VALUES["call"]), (move,))


def _shorten_in_steps(position: int, entry: Entry, age: int, why: str) -> Iterator[RatedBatch]:
    """COMPACT and then STUB; a small text has no COMPACT form that would be worth it."""
    stub = (Move(position, Form.STUB, why),)
    if entry.form is not Form.FULL:
        yield RatedBatch(ripeness(age, entry.tokens, TOKEN_VALUES["compact"]), stub)
    elif entry.tokens <= COMPACT_TOKENS:
        yield RatedBatch(ripeness(age, entry.tokens, TOKEN_VALUES["small"]), stub)
    else:
        ripeness_of_compact = ripeness(age, entry.tokens, TOKEN_VALUES["full"])
        yield RatedBatch(ripeness_of_compact, (Move(position, Form.COMPACT, why),))
        ripeness_of_stub = ripeness(age, COMPACT_TOKENS, TOKEN_VALUES["compact"])
        yield RatedBatch(min(ripeness_of_compact, ripeness_of_stub), stub)


def _lower_attachments(view: OrderView, free: list[int]) -> list[RatedBatch]:
    """Lowest importance first; among equals the one that was added first.

    Attachments are visited in the opposite order, the most important first. None may be less ripe than one
    that is more important, so each has at least the ripeness of those before it.
    """

    def importance(position: int) -> tuple[int, int]:
        return priority(view.kinds, view.entries[position].segment), -position

    attachments = [i for i in free if kind_of(view.kinds, view.entries[i].segment).attachment]
    attachments.sort(key=importance)
    highest = {Form.COMPACT: 0, Form.STUB: 0}
    rated_batches: list[RatedBatch] = []
    for position in attachments:
        entry = view.entries[position]
        for rated in _shorten_in_steps(position, entry, _age_of(view, entry), "attachment"):
            form = rated.batch[0].form
            highest[form] = max(highest[form], rated.ripeness)
            rated_batches.append(RatedBatch(highest[form], rated.batch))
    rated_batches.reverse()
    return rated_batches


def _stub_media(view: OrderView, free: list[int]) -> Iterator[RatedBatch]:
    for position in free:
        entry = view.entries[position]
        if _has_first_part(entry, Image | Document):
            move = Move(position, Form.STUB, "image or document")
            yield RatedBatch(ripeness(_age_of(view, entry), entry.tokens, TOKEN_VALUES["reply"]), (move,))


def _fold_old_steps(view: OrderView) -> Iterator[RatedBatch]:
    """Whole old steps, as they would be once everything in them is lowered."""
    for batch in fold_steps(view, verbatim=VERBATIM_LIMIT):
        entries = [view.entries[move.at] for move in batch]
        tokens_left = sum(_tokens_when_lowered(view, entry) for entry in entries)
        source = "asked" if entries[0].role is Role.USER else "step"
        age = _age_of(view, entries[0])
        yield RatedBatch(ripeness(age, tokens_left, TOKEN_VALUES[source]), batch)


def _tokens_when_lowered(view: OrderView, entry: Entry) -> int:
    has_stub = _has_first_part(entry, ToolResult | Image | Document)
    if has_stub or kind_of(view.kinds, entry.segment).attachment:
        return min(entry.tokens, STUB_TOKENS)
    return min(entry.tokens, SHORT_TOKENS)


def _has_first_part(entry: Entry, part_type: type | object) -> bool:
    """Whether the first part of an entry, as it is sent, is of this type or union of types."""
    return bool(entry.parts) and isinstance(entry.parts[0], part_type)  # type: ignore[arg-type]
