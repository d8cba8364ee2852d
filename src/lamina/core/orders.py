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

from lamina.core.entries import OWN_TURN_ONLY, begins_with, is_message, pair_calls
from lamina.core.kinds import Kinds, Retention, is_section, is_turn_scoped, kind_of, priority, recoverable
from lamina.core.superseded_results import Exchange, find_superseded
from lamina.core.values import (
    Digest,
    Document,
    Entry,
    Form,
    Image,
    Layer,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

REPLY_LIMIT = 400
"""Characters of an old reply that stay when replies are shortened."""

VERBATIM_LIMIT = 2_000
"""Characters of a user's message that a digest may quote; longer ones are not folded."""

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
    folded.
    """

    entries: Sequence[Entry]
    kinds: Kinds
    untouchable: frozenset[int]
    spared: frozenset[int]
    largest_spared: int = 0
    current: frozenset[int] = frozenset()

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


def ladder(view: OrderView) -> Iterator[Batch]:
    """The order that is lamina's own."""
    free = _free_foreign(view)
    plain = [position for position in free if not goes_last(view.entries[position], view.kinds)]
    yield from _drop_disposable(view, plain)
    yield from _drop_thinking(view, plain)
    yield from _stub_superseded(view, plain)
    rated_batches = [
        *_shorten_spared_results(view),
        *_lower_messages(view, plain),
        *_lower_attachments(view, plain),
        *_stub_media(view, free),
        *_fold_old_steps(view),
    ]
    rated_batches.sort(key=lambda rated: -rated.ripeness)
    for rated in rated_batches:
        yield rated.batch


def last_resort(view: OrderView) -> Iterator[Batch]:
    """When nothing else is left: what cannot be recovered, oldest first, then everything under digests.

    By then the user's own words are lowered too. They can still be recalled by their handles.
    """
    for position in _free_foreign(view):
        yield (Move(position, Form.STUB, "nothing else is left to lower"),)
    yield from fold_steps(view, verbatim=None)


def _free_foreign(view: OrderView) -> list[int]:
    """Positions that may be lowered, without those of segments that lamina added itself.

    Its answers and closing lines are as short as they can be.
    """
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
    if entry.form is Form.OMITTED or segment.pinned or segment.origin == "lamina":
        return False
    return begins_with(segment.parts, ToolResult) and recoverable(view.kinds, segment)


def repeated_system_text(view: OrderView) -> list[int]:
    """Positions of system text in the conversation that is repeated, byte for byte, further on.

    Sections do not count: a cut puts the newest one among the system text, in place of the older ones.
    """
    older: dict[Digest, list[int]] = {}
    for position, entry in enumerate(view.entries):
        if _is_reminder(view, entry):
            older.setdefault(entry.content, []).append(position)
    repeated: list[int] = []
    for positions in older.values():
        repeated += positions[:-1]
    must_stay = view.current.union(at for at in repeated if view.entries[at].segment.pinned)
    return sorted(set(repeated) - must_stay)


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
    """Critical, or not to be had again: lowered when nothing else is left. Images have their own rung.

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
    foldable: set[int] = set()
    for position in set(view.free()) - view.current:
        if _is_foldable(view.entries[position], view.kinds, verbatim):
            foldable.add(position)
    broken_steps = _find_broken_steps(view.entries, foldable)
    whole = [position for position in sorted(foldable) if view.entries[position].step not in broken_steps]
    for _, step in groupby(whole, key=lambda position: view.entries[position].step):
        yield tuple(Move(position, Form.OMITTED, "folded", fold=True) for position in step)


def _is_foldable(entry: Entry, kinds: Kinds, verbatim: int | None) -> bool:
    """Whether a digest may replace an entry.

    A digest quotes what the user said. So a message that cannot be had again is folded only if it is text
    alone, of at most `verbatim` characters; None sets no limit. What the user attached is not quoted.
    """
    if not _is_sent_in_step(entry):
        return False
    is_own = entry.segment.origin == "lamina"
    if verbatim is None or is_own or not goes_last(entry, kinds):
        return True
    if kind_of(kinds, entry.segment).attachment:
        return False
    return entry.role is Role.USER and is_short_text(entry, verbatim)


def is_short_text(entry: Entry, most_characters: int) -> bool:
    """Whether an entry is text alone, of at most so many characters.

    Parts that are sent as something else cannot stand in a digest word for word.
    """
    texts = [part.text for part in entry.segment.parts if isinstance(part, Text)]
    if len(texts) != len(entry.parts):
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
        stays = position not in foldable and _is_sent_in_step(entry)
        if not stays or entry.step not in steps_with_calls:
            continue
        first, last = folded_spans.get(entry.step, (position, position))
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
    stands_outside = entry.segment.kind == "digest" or entry.layer is Layer.LIBRARY
    return is_message(entry) and not stands_outside


# The first rungs: disposable and superseded entries.


def _drop_disposable(view: OrderView, free: list[int]) -> Iterator[Batch]:
    """What is sent in its own turn only, and other disposable kinds. Thinking has a rung of its own.

    What was for one turn is left out as a whole, since a handle to it would be of no use.
    """
    for position in free:
        entry = view.entries[position]
        is_disposable = kind_of(view.kinds, entry.segment).retention is Retention.DISPOSABLE
        if is_turn_scoped(view.kinds, entry.segment) and entry.layer is Layer.HISTORY:
            yield (Move(position, Form.OMITTED, OWN_TURN_ONLY),)
        elif is_disposable and not begins_with(entry.parts, Thinking):
            yield (Move(position, Form.STUB, "disposable"),)


def _drop_thinking(view: OrderView, free: list[int]) -> Iterator[Batch]:
    """Old thinking; of one step all of it or none."""
    moves_by_step: dict[int, list[Move]] = {}
    for position in free:
        entry = view.entries[position]
        if begins_with(entry.parts, Thinking):
            move = Move(position, Form.OMITTED, "disposable")
            moves_by_step.setdefault(entry.step, []).append(move)
    for moves in moves_by_step.values():
        yield tuple(moves)


def _stub_superseded(view: OrderView, free: list[int]) -> Iterator[Batch]:
    """Results that a later one, sent in full, makes redundant.

    Of three reads of one file the first two go. If the third is lowered already, none does: nothing would
    show the file any more.
    """
    positions: list[int] = []
    exchanges: list[Exchange] = []
    for call_position, result_position in pair_calls(view.entries):
        call = view.entries[call_position].parts[0]
        result = view.entries[result_position].parts[0]
        is_in_full = view.entries[result_position].form is Form.FULL
        if is_in_full and isinstance(call, ToolCall) and isinstance(result, ToolResult):
            positions.append(result_position)
            exchanges.append(Exchange(call=call, result=result))
    allowed = frozenset(free)
    for index, later_index in sorted(find_superseded(exchanges).items()):
        later = view.entries[positions[later_index]]
        if positions[index] in allowed:
            yield (Move(positions[index], Form.STUB, f"superseded by {later.ref}"),)


def _rate(view: OrderView, move: Move, token_value: str, *, tokens: int | None = None) -> RatedBatch:
    """A batch of one move, with its ripeness. `tokens` are those that the entry will have by then.

    None is for the tokens that it has now.
    """
    entry = view.entries[move.at]
    if tokens is None:
        tokens = entry.tokens
    return RatedBatch(ripeness(_age_of(view, entry), tokens, TOKEN_VALUES[token_value]), (move,))


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
    """Old results, shortened and then by handle; old replies; large arguments of old calls.

    Moves of higher rungs were taken meanwhile, so an entry may have no parts any more.
    """
    for position in plain:
        entry = view.entries[position]
        match entry.parts[:1]:
            case (ToolResult(),):
                yield from _shorten_in_steps(view, position, "old result")
            case (Text(),) if entry.role is Role.ASSISTANT:
                yield _rate(view, Move(position, Form.COMPACT, "old reply", REPLY_LIMIT), "reply")
            case (ToolCall(),):
                yield _rate(view, Move(position, Form.COMPACT, "large arguments"), "call")
            case _:
                pass


def _shorten_spared_results(view: OrderView) -> Iterator[RatedBatch]:
    """Large results of the spared steps, shortened to what each of them may keep."""
    if not view.largest_spared:
        return
    worth_shortening = view.largest_spared * 5 // 4
    limit = view.largest_spared * CHARACTERS_PER_TOKEN
    for position in sorted(view.spared - view.untouchable - view.current):
        entry = view.entries[position]
        if entry.form is not Form.FULL or entry.tokens <= worth_shortening:
            continue
        if begins_with(entry.parts, ToolResult) and not goes_last(entry, view.kinds):
            yield _rate(view, Move(position, Form.COMPACT, "large result", limit), "full")


def _shorten_in_steps(view: OrderView, position: int, why: str) -> Iterator[RatedBatch]:
    """COMPACT and then STUB; a small text has no COMPACT form that would be worth it."""
    entry = view.entries[position]
    stub = Move(position, Form.STUB, why)
    if entry.form is not Form.FULL:
        yield _rate(view, stub, "compact")
    elif entry.tokens <= COMPACT_TOKENS:
        yield _rate(view, stub, "small")
    else:
        compact = _rate(view, Move(position, Form.COMPACT, why), "full")
        yield compact
        # The stub follows its COMPACT form, however ripe that form would be by then.
        later = _rate(view, stub, "compact", tokens=COMPACT_TOKENS)
        yield RatedBatch(min(compact.ripeness, later.ripeness), later.batch)


def _lower_attachments(view: OrderView, free: list[int]) -> list[RatedBatch]:
    """Lowest importance first; among equals the one that was added first.

    Attachments are visited in the opposite order, the most important first. None may be less ripe than one
    that is more important, so each has at least the ripeness of those before it.
    """

    def importance(position: int) -> tuple[int, int]:
        return priority(view.kinds, view.entries[position].segment), -position

    attachments = [at for at in free if kind_of(view.kinds, view.entries[at].segment).attachment]
    highest = {Form.COMPACT: 0, Form.STUB: 0}
    rated_batches: list[RatedBatch] = []
    for position in sorted(attachments, key=importance):
        for rated in _shorten_in_steps(view, position, "attachment"):
            form = rated.batch[0].form
            highest[form] = max(highest[form], rated.ripeness)
            rated_batches.append(RatedBatch(highest[form], rated.batch))
    rated_batches.reverse()
    return rated_batches


def _stub_media(view: OrderView, free: list[int]) -> Iterator[RatedBatch]:
    """Images and documents, by handle. A token of theirs says about as much as one of a reply."""
    for position in free:
        if begins_with(view.entries[position].parts, Image | Document):
            yield _rate(view, Move(position, Form.STUB, "image or document"), "reply")


def _fold_old_steps(view: OrderView) -> Iterator[RatedBatch]:
    """Whole old steps, as they would be once everything in them is lowered.

    So a step is folded only when lowering its parts one by one has little left to give.
    """
    for batch in fold_steps(view, verbatim=VERBATIM_LIMIT):
        entries = [view.entries[move.at] for move in batch]
        tokens_left = sum(_tokens_when_lowered(view, entry) for entry in entries)
        token_value = TOKEN_VALUES["step"]
        if entries[0].role is Role.USER:
            token_value = TOKEN_VALUES["asked"]
        yield RatedBatch(ripeness(_age_of(view, entries[0]), tokens_left, token_value), batch)


def _tokens_when_lowered(view: OrderView, entry: Entry) -> int:
    """About what is left of an entry in its lowest form: a handle, or a shortened text.

    An order cannot know it exactly, since nothing is worded before a move is taken.
    """
    has_stub = begins_with(entry.parts, ToolResult | Image | Document)
    if has_stub or kind_of(view.kinds, entry.segment).attachment:
        return min(entry.tokens, STUB_TOKENS)
    return min(entry.tokens, SHORT_TOKENS)
