"""Lowering forms until the request fits: the one place where a cut is made.

Under the trigger nothing happens. Above it, one pass lowers many segments down to the target, in the order
that `ladder` proposes. The budget is law: the wish to spare the last steps yields to it, and what cannot be
recovered goes only when nothing else is left. The prompt, the last step, pinned segments and system text are
never touched, except for results of the last step that do not fit beside the rest. If what is left still
exceeds the room, `BudgetExceeded` is raised.

Here stands whether a cut is made and how far it goes. `cut_target` says where the limits are, `cut_moves` how
moves are taken, and `cut_digests` how digests are written. They pass a `CutProgress` along.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from lamina.core.arrange import find_later_sections, put_system_first
from lamina.core.bound_thinking import (
    AFTER_CUT,
    is_held_by_thinking,
    is_in_last_step,
    is_thinking,
    omit_thinking_after_cut,
)
from lamina.core.cut_digests import ONE_LINE, ONLY_RULES, join_digests
from lamina.core.cut_moves import find_spared, find_untouchable, omit_repeated_system_text, take_moves
from lamina.core.cut_progress import CutProgress, start_cut, without_digests
from lamina.core.cut_target import CutLimits, Sparing
from lamina.core.draft import Draft
from lamina.core.entries import find_sent
from lamina.core.folds import lay_folds
from lamina.core.history_window import LastN, fold_outside, omit_outside, refs_up_to
from lamina.core.ladder import last_resort, last_results
from lamina.core.options import BuildContext
from lamina.core.orders import Batch, Move, OrderView
from lamina.core.text.tags import make_inert
from lamina.core.tokens import weigh_entries
from lamina.core.values import Cut, Entry, Form, Ref
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

OVER_THE_TRIGGER = "over the trigger"
CACHE_IS_COLD = "the cache is cold anyway"

_NO_LIMITS = CutLimits(room=0, trigger=0, target=0, least=0)
"""For a cut that no budget asks for."""

_LARGEST_SEGMENTS = 8
"""How many segments an error names."""

_QUOTE = 30
"""Characters of a segment without a key that an error shows."""


class Lowered(msgspec.Struct, frozen=True, kw_only=True):
    """One segment that a cut would lower: from which form to which, and what that frees."""

    ref: Ref
    was: Form
    now: Form
    tokens: int
    why: str


class CutPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a cut would do. `fits`: the request would be within the room."""

    before: int
    after: int
    fits: bool
    floor: bool
    lowered: tuple[Lowered, ...]
    digests: tuple[str, ...]


def cut_to_fit(draft: Draft, limits: CutLimits | None, context: BuildContext) -> Draft:
    """The fourth stage: the draft within the window of history and within the room, by at most one cut.

    If both ask for a cut, the history goes first, and what the room still needs is part of the same cut.
    """
    with_less_history = _cut_history(draft, context)
    if limits is None:
        return with_less_history or draft
    if with_less_history is None:
        return _cut_for_room(draft, limits, context)
    return _cut_rest(with_less_history, draft, limits, context)


def preview_cut(draft: Draft, limits: CutLimits, context: BuildContext) -> CutPlan:
    """What a cut would do; nothing is changed.

    A segment that a digest would stand for is listed too, with the form OMITTED.
    """
    progress = _lower_to_target(draft, limits, context)
    after_cut = _finish_cut(progress, "planned")
    entries_after = {entry.ref: entry for entry in after_cut.entries}
    lowered: list[Lowered] = []
    for entry in draft.entries:
        after = entries_after.get(entry.ref)
        if after is None or after.sent == entry.sent:
            continue
        freed = entry.tokens - after.tokens
        lowered.append(Lowered(ref=entry.ref, was=entry.form, now=after.form, tokens=freed, why=after.why))
    new_folds = [fold for fold in progress.folds if fold.cut == progress.number]
    digests = [f"{fold.text}\n{fold.notes}" if fold.notes else fold.text for fold in new_folds]
    return CutPlan(
        before=progress.tokens_before,
        after=context.scale.total(after_cut.tokens),
        fits=progress.tokens <= limits.room,
        floor=progress.exhausted,
        lowered=tuple(lowered),
        digests=tuple(digests),
    )


def _cut_for_room(draft: Draft, limits: CutLimits, context: BuildContext) -> Draft:
    """The draft within the room. A cut is made when it is due, and waits while it would free too little.

    Above the room nothing waits: then the cut is made, or `BudgetExceeded` says why it cannot be.
    """
    tokens = context.scale.total(draft.tokens)
    if not draft.moment and not limits.ask_for_cut(tokens, cold=context.cold):
        return draft
    is_over_room = tokens > limits.room
    must_wait = is_held_by_thinking(draft.entries, context.options.binding)
    if must_wait and not is_over_room:
        return draft
    progress = _lower_to_target(draft, limits, context)
    freed = tokens - progress.tokens
    if not is_over_room and freed < max(limits.least, 1):
        return draft
    if progress.tokens > limits.room:
        if must_wait:
            raise _held_by_thinking(progress)
        raise _budget_exceeded(progress.request, progress.tokens, limits.room, context)
    reason = draft.moment or CACHE_IS_COLD
    if tokens > limits.trigger:
        reason = OVER_THE_TRIGGER
    return _finish_cut(progress, reason)


def _lower_to_target(draft: Draft, limits: CutLimits, context: BuildContext) -> CutProgress:
    """Lowers entries down to the target.

    The wish to spare recent steps yields if the target cannot be reached otherwise, down to a few steps.
    Those few, and a number of steps that the caller gave, yield only if the room is exceeded.
    """
    progress = _lower_with_pins(draft, limits, context)
    if progress.tokens <= limits.room or not progress.held:
        return progress
    # The budget is law: a pin of the model yields before a request cannot be sent.
    return _lower_with_pins(msgspec.structs.replace(draft, held=frozenset()), limits, context)


def _lower_with_pins(draft: Draft, limits: CutLimits, context: BuildContext) -> CutProgress:
    """Lowers entries down to the target, without those that the model pinned."""
    progress = start_cut(draft, limits, context)
    is_over_room = progress.tokens > limits.room
    if is_held_by_thinking(draft.entries, context.options.binding):
        if is_over_room:
            progress = take_moves(progress, _thinking_before_last_step, goal=limits.room)
            progress = take_moves(progress, _results_behind_thinking, goal=limits.room)
        return msgspec.structs.replace(progress, exhausted=True)
    order = context.options.order
    progress = omit_repeated_system_text(progress)
    sparing = limits.sparing
    progress = take_moves(progress, order, sparing=sparing, goal=limits.target)
    while progress.tokens > limits.target and sparing.tokens > limits.least_spared:
        sparing = sparing.halve(least=limits.least_spared)
        progress = take_moves(progress, order, sparing=sparing, goal=limits.target)
    if progress.exhausted and _spares_any(progress, sparing):
        progress = msgspec.structs.replace(progress, exhausted=False)
    if not is_over_room:
        return progress
    enough = max(limits.target, min(limits.trigger, progress.tokens_before) - limits.least)
    while progress.tokens > enough and sparing:
        sparing = sparing.halve()
        progress = take_moves(progress, order, sparing=sparing, goal=enough)
    return _lower_as_last_resort(progress, enough)


def _spares_any(progress: CutProgress, sparing: Sparing) -> bool:
    """Whether something is spared that could still be lowered."""
    entries = progress.entries
    untouchable = find_untouchable(entries) | progress.folded | progress.held
    lowerable = find_spared(entries, sparing) - untouchable
    return any(entries[at].form is not Form.OMITTED for at in lowerable)


def _lower_as_last_resort(progress: CutProgress, enough: int) -> CutProgress:
    """Lowers what cannot be recovered, and bounds the digests, as far as the room needs it.

    If the cut has freed too little so far, it goes on to `enough`: another one would soon follow otherwise.
    """
    limits = progress.limits
    freed_too_little = progress.tokens_before - progress.tokens < limits.least
    goal = enough if freed_too_little else limits.room
    if progress.tokens > goal:
        progress = take_moves(progress, last_resort, goal=enough, digest_limit=limits.room)
    if progress.tokens > limits.room:
        progress = take_moves(progress, last_resort, goal=enough, digest_limit=ONLY_RULES)
    if progress.tokens > limits.room:
        progress = _lower_to_floor(progress)
    return progress


def _lower_to_floor(progress: CutProgress) -> CutProgress:
    """Lowers what is left when all history is one line each: results of the last step, and digests.

    Each step is taken only if the ones before it were not enough. What is over the room after the last of
    them cannot be sent.
    """
    room = progress.limits.room
    progress = take_moves(progress, last_results, goal=room, digest_limit=ONLY_RULES)
    progress = msgspec.structs.replace(progress, exhausted=True)
    if progress.tokens > room:
        progress = join_digests(progress, ONLY_RULES)
    if progress.tokens > room:
        # A few stubs can be smaller than their digest: choose anew what is folded.
        progress = msgspec.structs.replace(progress, folded=frozenset())
        progress = take_moves(progress, last_resort, goal=room, digest_limit=ONE_LINE)
    if progress.tokens > room:
        progress = join_digests(progress, ONE_LINE)
    return progress


def _thinking_before_last_step(view: OrderView) -> Iterator[Batch]:
    """All thinking before the last step, at once.

    A provider accepts the latest thinking without the earlier one, but not a gap between two blocks.
    """
    moves: list[Move] = []
    for at, entry in enumerate(view.entries):
        if is_thinking(entry) and not is_in_last_step(view.entries, at):
            moves.append(Move(at, Form.OMITTED, AFTER_CUT))
    if moves:
        yield tuple(moves)


def _results_behind_thinking(view: OrderView) -> Iterator[Batch]:
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


def _finish_cut(progress: CutProgress, reason: str) -> Draft:
    """The draft as the cut leaves it.

    Thinking is left out here, and sections are promoted, since both need to know what the cut has changed.
    """
    draft = progress.draft
    context = progress.context
    entries = progress.request
    lines = draft.lines | progress.lines
    if context.binds_thinking:
        entries, thinking_lines = omit_thinking_after_cut(
            entries, draft.entries, binding=context.options.binding, cut=progress.number
        )
        # How a digest ends depends on who speaks next, and that may have been thinking that is left out now.
        laid = lay_folds(without_digests(entries), progress.folds, wording=context.wording)
        entries = weigh_entries(laid, context.scale, prefix=context.root)
        lines |= thinking_lines
    promoted = find_later_sections(entries, context.kinds)
    if promoted:
        entries = put_system_first(entries, draft.ledger.promoted + promoted, context.kinds)
        entries = weigh_entries(entries, context.scale, prefix=context.root)
    tokens = sum(entry.tokens for entry in entries)
    changed = progress.changed
    cut = Cut(
        number=progress.number,
        reason=reason,
        before=progress.tokens_before,
        after=context.scale.total(tokens),
        first=changed[0].ref if changed else "",
        lowered=len(changed),
        floor=progress.exhausted,
    )
    return msgspec.structs.replace(
        draft,
        entries=entries,
        tokens=tokens,
        lines=lines,
        folds=progress.folds,
        promoted=promoted,
        cut=cut,
        unchanged=0,
        unchanged_sent=0,
    )


def _cut_history(draft: Draft, context: BuildContext) -> Draft | None:
    """The draft without what is beyond the window of history; None if there is nothing to take out.

    The cut waits while it would not make the request smaller, and in an open tool loop with bound thinking.
    """
    window = context.options.window
    if window is None or is_held_by_thinking(draft.entries, context.options.binding):
        return None
    outside = window.outside(draft.entries)
    if not outside:
        return None
    progress = _take_out_history(draft, outside, window, context)
    if progress.tokens >= progress.tokens_before:
        return None
    return _finish_cut(progress, window.reason)


def _take_out_history(
    draft: Draft, outside: frozenset[int], window: LastN, context: BuildContext
) -> CutProgress:
    """Takes the steps out that are outside of the window, under the longest digest that frees something.

    If not even one line is shorter than these steps, they stay. An exact window leaves them out without one.
    """
    digest_limits: list[int] = []
    if window.digest is not None:
        digest_limits = [window.digest, ONLY_RULES, ONE_LINE]
    for digest_limit in digest_limits:
        progress = _fold_history(draft, outside, digest_limit, context)
        if not _is_too_long(progress, window):
            return progress
    if digest_limits and not window.is_exact:
        return progress
    return _omit_history(draft, outside, window, context)


def _is_too_long(progress: CutProgress, window: LastN) -> bool:
    """Whether folding freed nothing, or left more than the window allows.

    The digest of few short messages can be longer than these messages.
    """
    return progress.tokens >= progress.tokens_before or bool(window.outside(progress.request))


def _fold_history(
    draft: Draft, outside: frozenset[int], digest_limit: int, context: BuildContext
) -> CutProgress:
    """Folds the steps outside of the window, with so many characters for their digest."""
    mergeable = refs_up_to(draft.entries, outside)
    progress = start_cut(draft, _NO_LIMITS, context, mergeable=mergeable)
    progress = take_moves(progress, fold_outside(outside), goal=0, digest_limit=digest_limit)
    return msgspec.structs.replace(progress, exhausted=False)


def _omit_history(draft: Draft, outside: frozenset[int], window: LastN, context: BuildContext) -> CutProgress:
    """Leaves the steps outside of the window out, with nothing in their place."""
    progress = start_cut(draft, _NO_LIMITS, context)
    progress = take_moves(progress, omit_outside(outside, window.reason), goal=0, digest_limit=ONE_LINE)
    return msgspec.structs.replace(progress, exhausted=False)


def _cut_rest(first_cut: Draft, draft: Draft, limits: CutLimits, context: BuildContext) -> Draft:
    """What is left after a cut of history, within the room. Both are one cut."""
    ledger = msgspec.structs.replace(
        draft.ledger, folds=first_cut.folds, promoted=draft.ledger.promoted + first_cut.promoted
    )
    left = msgspec.structs.replace(first_cut, ledger=ledger, promoted=(), cut=None)
    second_cut = _cut_for_room(left, limits, context)
    if second_cut.cut is None or first_cut.cut is None:
        return first_cut
    cut = msgspec.structs.replace(
        second_cut.cut,
        reason=f"{first_cut.cut.reason}; {second_cut.cut.reason}",
        before=first_cut.cut.before,
        first=_find_earlier(first_cut.cut.first, second_cut.cut.first, draft.entries),
        lowered=first_cut.cut.lowered + second_cut.cut.lowered,
    )
    promoted = first_cut.promoted + second_cut.promoted
    return msgspec.structs.replace(second_cut, ledger=draft.ledger, promoted=promoted, cut=cut)


def _find_earlier(one: str, other: str, entries: Sequence[Entry]) -> str:
    """The ref that stands first in the request before the cut. A digest of the cut itself is not there.

    It says from where on a cache has lost what it had.
    """
    for entry in entries:
        if entry.ref in (one, other):
            return entry.ref
    return one or other


def _held_by_thinking(progress: CutProgress) -> BudgetExceeded:
    """The error of a cut that bound thinking forbids. It names what a cut would lower otherwise."""
    untouchable = find_untouchable(progress.entries)
    held: list[Entry] = []
    for at, entry in enumerate(progress.entries):
        if at not in untouchable:
            held.append(entry)
    largest, names = _find_largest(held, ())
    return BudgetExceeded(
        floor=progress.tokens,
        room=progress.limits.room,
        segments=largest,
        reason=OPEN_LOOP,
        hint=OPEN_LOOP_HINT,
        names=names,
    )


def _budget_exceeded(
    entries: Sequence[Entry], floor: int, room: int, context: BuildContext
) -> BudgetExceeded:
    """The error that names the floor and the largest segments in it.

    Tool definitions and parameters are named too: often they are what does not fit.
    """
    largest, names = _find_largest(entries, context.scale.head_rows())
    return BudgetExceeded(floor=floor, room=room, segments=largest, names=names)


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
