"""What is lowered first, unless a caller has an order of their own.

The ladder, top rung first: what is disposable; results of tools with the rule
"short"; superseded results; then everything else that can be recovered, the ripest first; at the very end
what cannot be recovered. A move is the riper, the older and larger the entry is that it lowers, and the less
that entry says for its size (`ripeness`).

A result is superseded if the same call returned the same text again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lamina.core.bound_thinking import AFTER_CUT, is_in_last_step, is_thinking
from lamina.core.entries import VERBATIM_LIMIT, begins_with, find_first_answer, is_long_message, pair_calls
from lamina.core.kinds import Retention, is_turn_scoped, kind_of, priority, recoverable
from lamina.core.orders import CHARACTERS_PER_TOKEN, Batch, Move, OrderView, fold_steps, goes_last
from lamina.core.turns import OWN_TURN_ONLY
from lamina.core.values import Document, Entry, Form, Image, Layer, Role, Text, Thinking, ToolCall, ToolResult

REPLY_LIMIT = 400
"""Characters of an old reply that stay when replies are shortened."""


OLD_RESULT = "old result"
SHORT_TOOL = "results of this tool go first, by its rule"

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
"""How much a token says that a move takes away, in thousandths of one of a small result: notes/planner.md."""

COMPACT_TOKENS, SHORT_TOKENS, STUB_TOKENS = 250, 100, 60
"""About what is left of a COMPACT result, of a shortened reply or call, and of anything by handle."""


def ladder(view: OrderView) -> Iterator[Batch]:
    """The order that is lamina's own.

    The first four rungs are taken whole, in their order. From there on the ripest move comes first, wherever
    it is from.
    """
    free = _free_foreign(view)
    plain = [position for position in free if not goes_last(view.entries[position], view.kinds)]
    yield from _drop_disposable(view, plain)
    yield from _drop_thinking(view, plain)
    yield from _stub_short(view, plain)
    yield from _stub_superseded(view, plain)
    rated_batches = [
        *_shorten_spared_results(view),
        *_lower_messages(view, plain),
        *_lower_attachments(view, plain),
        *_shorten_long_messages(view, free),
        *_stub_media(view, free),
        *_fold_old_steps(view),
    ]
    # The sort is stable: of equally ripe moves, the one that is listed first above comes first.
    rated_batches.sort(key=lambda rated: -rated.ripeness)
    for rated in rated_batches:
        yield rated.batch


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
    """Old thinking; of one step all of it or none.

    A provider that checks thinking refuses a step of which only a part comes back.
    """
    moves_by_step: dict[int, list[Move]] = {}
    for position in free:
        entry = view.entries[position]
        if begins_with(entry.parts, Thinking):
            move = Move(position, Form.OMITTED, "disposable")
            moves_by_step.setdefault(entry.step, []).append(move)
    for moves in moves_by_step.values():
        yield tuple(moves)


def _stub_short(view: OrderView, free: list[int]) -> Iterator[Batch]:
    """Results of tools that the caller wants short, oldest first."""
    for position in free:
        is_result = begins_with(view.entries[position].parts, ToolResult)
        if is_result and view.tool_rules.get(position) == "short":
            yield (Move(position, Form.STUB, SHORT_TOOL),)


def _stub_superseded(view: OrderView, free: list[int]) -> Iterator[Batch]:
    """Results that a later one, sent in full, repeats: of three equal reads of one file the first two go."""
    allowed = frozenset(free)
    for position, later in sorted(find_superseded(view.entries).items()):
        if position in allowed:
            yield (Move(position, Form.STUB, f"superseded by {view.entries[later].ref}"),)


# Everything else that can be recovered, by ripeness.


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


def _rate(view: OrderView, move: Move, token_value: str, *, tokens: int | None = None) -> RatedBatch:
    """A batch of one move, with its ripeness. `tokens` are those that the entry will have by then.

    None is for the tokens that it has now.
    """
    entry = view.entries[move.at]
    if tokens is None:
        tokens = entry.tokens
    return RatedBatch(ripeness(_age_of(view, entry), tokens, TOKEN_VALUES[token_value]), (move,))


def _age_of(view: OrderView, entry: Entry) -> int:
    return view.entries[-1].step - entry.step


def _lower_messages(view: OrderView, plain: list[int]) -> Iterator[RatedBatch]:
    """Old results, shortened and then by handle; old replies; large arguments of old calls.

    Moves of higher rungs were taken meanwhile, so an entry may have no parts any more.
    """
    for position in plain:
        entry = view.entries[position]
        match entry.parts[:1]:
            case (ToolResult(),):
                yield from _shorten_in_steps(view, position, OLD_RESULT)
            case (Text(),) if entry.role is Role.ASSISTANT:
                yield _rate(view, Move(position, Form.COMPACT, "old reply", REPLY_LIMIT), "reply")
            case (ToolCall(),):
                yield _rate(view, Move(position, Form.COMPACT, "large arguments"), "call")
            case _:
                pass


def _shorten_spared_results(view: OrderView) -> Iterator[RatedBatch]:
    """Large results of the spared steps, shortened to what each of them may keep.

    One that is only a little larger than that is left alone: shortening it would free next to nothing.
    """
    if not view.largest_spared:
        return
    worth_shortening = view.largest_spared * 5 // 4
    limit = view.largest_spared * CHARACTERS_PER_TOKEN
    for position in sorted(view.spared - view.untouchable - view.current):
        entry = view.entries[position]
        if entry.form is not Form.FULL or entry.tokens <= worth_shortening:
            continue
        if view.tool_rules.get(position) == "never":
            continue
        if begins_with(entry.parts, ToolResult) and not goes_last(entry, view.kinds):
            yield _rate(view, Move(position, Form.COMPACT, "large result", limit), "full")


def _shorten_in_steps(view: OrderView, position: int, why: str) -> Iterator[RatedBatch]:
    """COMPACT and then STUB; a small text has no COMPACT form that would be worth it."""
    entry = view.entries[position]
    stub = Move(position, Form.STUB, why)
    # Of a tool with the rule "never" no old words stay, not even the outline of a COMPACT form.
    has_no_outline = entry.tokens <= COMPACT_TOKENS or view.tool_rules.get(position) == "never"
    if entry.form is not Form.FULL:
        yield _rate(view, stub, "compact")
    elif has_no_outline:
        yield _rate(view, stub, "small")
    else:
        compact = _rate(view, Move(position, Form.COMPACT, why), "full")
        yield compact
        # The stub follows its COMPACT form, however ripe that form would be by then.
        later = _rate(view, stub, "compact", tokens=COMPACT_TOKENS)
        yield RatedBatch(min(compact.ripeness, later.ripeness), later.batch)


def _shorten_long_messages(view: OrderView, free: list[int]) -> Iterator[RatedBatch]:
    """Long messages of the user that came after the first answer, shortened to what a digest would quote.

    Agents send skills, edited files and lists of commands as messages of the user, and some send them again
    and again. What came before the first answer is the task: it stays whole.
    """
    first_answer = find_first_answer(view.entries)
    for position in free:
        entry = view.entries[position]
        if position > first_answer and entry.form is Form.FULL and is_long_message(entry):
            yield _rate(view, Move(position, Form.COMPACT, "long message", VERBATIM_LIMIT), "asked")


def _lower_attachments(view: OrderView, free: list[int]) -> list[RatedBatch]:
    """Lowest importance first; among equals the one that was added first.

    Attachments are visited in the opposite order, the most important first. None may be less ripe than one
    that is more important, so each has at least the ripeness of those before it. Where that makes the STUB of
    one riper than its COMPACT form, that form comes with it: it is tried first.
    """

    def importance(position: int) -> tuple[int, int]:
        return priority(view.kinds, view.entries[position].segment), -position

    attachments = [at for at in free if kind_of(view.kinds, view.entries[at].segment).attachment]
    highest = {Form.COMPACT: 0, Form.STUB: 0}
    rated_batches: list[RatedBatch] = []
    for position in sorted(attachments, key=importance):
        # From the STUB on, so that the COMPACT form stands before it when the list is reversed.
        for rated in reversed(list(_shorten_in_steps(view, position, "attachment"))):
            form = rated.batch[0].form
            highest[form] = max(highest[form], rated.ripeness)
            if form is Form.COMPACT:
                highest[form] = max(highest.values())
            rated_batches.append(RatedBatch(highest[form], rated.batch))
    rated_batches.reverse()
    return rated_batches


def _stub_media(view: OrderView, free: list[int]) -> Iterator[RatedBatch]:
    """Images and documents, by handle. A token of theirs says about as much as one of a reply."""
    for position in free:
        if begins_with(view.entries[position].parts, Image | Document):
            yield _rate(view, Move(position, Form.STUB, "image or document"), "reply")


def _fold_old_steps(view: OrderView) -> Iterator[RatedBatch]:
    """Whole old steps, as they would be once everything in them is lowered, the oldest first.

    So a step is folded only when lowering its parts one by one has little left to give. All steps count as
    equally large, and no step goes before an older one: a short reply that stayed between two long messages
    would keep their digests apart for ever.
    """
    batches = list(fold_steps(view, verbatim=VERBATIM_LIMIT))
    if not batches:
        return
    tokens_left = 0
    for batch in batches:
        tokens_left += sum(_tokens_when_lowered(view, view.entries[move.at]) for move in batch)
    mean_tokens = max(tokens_left // len(batches), 1)
    for batch in batches:
        age = _age_of(view, view.entries[batch[0].at])
        yield RatedBatch(ripeness(age, mean_tokens, TOKEN_VALUES["step"]), batch)


def _tokens_when_lowered(view: OrderView, entry: Entry) -> int:
    """About what is left of an entry in its lowest form: a handle, or a shortened text.

    An order cannot know it exactly, since nothing is worded before a move is taken.
    """
    has_stub = begins_with(entry.parts, ToolResult | Image | Document)
    if has_stub or kind_of(view.kinds, entry.segment).attachment:
        return min(entry.tokens, STUB_TOKENS)
    return min(entry.tokens, SHORT_TOKENS)


# What is left when the ladder has come to its end.


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
    return [position for position in view.free() if not view.entries[position].segment.is_own]


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
    if entry.form is Form.OMITTED or segment.pinned or segment.is_own:
        return False
    return begins_with(segment.parts, ToolResult) and recoverable(view.kinds, segment)


# What may go while the model waits in an open tool loop, with thinking that is bound to the past.


def thinking_before_last_step(view: OrderView) -> Iterator[Batch]:
    """All thinking before the last step, at once.

    A provider accepts the latest thinking without the earlier one, but not a gap between two blocks.
    """
    moves: list[Move] = []
    for at, entry in enumerate(view.entries):
        if is_thinking(entry) and not is_in_last_step(view.entries, at):
            moves.append(Move(at, Form.OMITTED, AFTER_CUT))
    if moves:
        yield tuple(moves)


def results_behind_thinking(view: OrderView) -> Iterator[Batch]:
    """Results of the last step that no thinking follows: to shorten them changes no thinking's past.

    Nothing else may be touched while the model waits with bound thinking.
    """
    last_thinking = -1
    for at, entry in enumerate(view.entries):
        if is_thinking(entry):
            last_thinking = at
    for batch in last_results(view):
        if all(move.at > last_thinking for move in batch):
            yield batch


def find_superseded(entries: Sequence[Entry]) -> dict[int, int]:
    """The position of each result in full that the same call returned again, with that of the latest one.

    Nothing is lost with it: a later result has the same text, asked by the same words.
    """
    latest: dict[tuple[str, str, object], int] = {}
    superseded: dict[int, int] = {}
    for call_at, result_at in reversed(list(pair_calls(entries))):
        if entries[result_at].form is not Form.FULL:
            continue
        match entries[call_at].parts[0], entries[result_at].parts[0]:
            case ToolCall() as call, ToolResult() as result if _is_text(result):
                newest = latest.setdefault((call.name, call.arguments, result.content), result_at)
                if newest != result_at:
                    superseded[result_at] = newest
            case _:
                pass
    return superseded


def _is_text(result: ToolResult) -> bool:
    """Whether a result is nothing but text: no picture, no document and no block of a provider's own."""
    return all(isinstance(part, Text) for part in result.content)
