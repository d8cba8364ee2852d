"""The way of a cut, from the decision to cut to the request that leaves.

1. Decide (`_cut_for_room`): under the trigger nothing happens, and a cut that frees too little waits.
2. Depth (`cut_target`): how many tokens may be left, and how many of the last steps are spared.
3. Moves (`cut_moves`): `ladder` proposes what to lower, the least needed first. Moves are taken until the
   target is reached. If it is not, the cut spares less and asks again.
4. Digests (`cut_digests`): what is folded gets a digest. Its size is known only when it is written, so moves
   and digests take turns until the request lands on its target.
5. Check: if the request is still over the room, the last resorts follow, one after the other. What no resort
   makes small enough raises `BudgetExceeded`.

The budget is law: the wish to spare the last steps yields to it, and what cannot be recovered goes only when
nothing else is left. The prompt, the last step, pinned segments and system text are never touched, except for
results of the last step that do not fit beside the rest. Each step takes a `CutProgress` and returns
another.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.core.bound_thinking import is_held_by_thinking
from lamina.core.budget_errors import report_held_by_thinking, report_too_large
from lamina.core.cut_digests import join_digests
from lamina.core.cut_moves import omit_repeated_system_text, take_moves
from lamina.core.cut_positions import find_spared, find_untouchable
from lamina.core.cut_progress import CutProgress, finish_cut, start_cut
from lamina.core.cut_target import CutLimits, Sparing
from lamina.core.draft import Draft
from lamina.core.history_cut import cut_history
from lamina.core.ladder import last_resort, last_results, results_behind_thinking, thinking_before_last_step
from lamina.core.options import BuildContext
from lamina.core.sized_digests import ONE_LINE, ONLY_RULES
from lamina.core.values import Entry, Form
from lamina.errors import BudgetExceeded

OVER_THE_TRIGGER = "over the trigger"
CACHE_IS_COLD = "the cache is cold anyway"


def cut_to_fit(draft: Draft, limits: CutLimits | None, context: BuildContext) -> Draft:
    """The fourth stage: the draft within the window of history and within the room, by at most one cut.

    If both ask for a cut, the history goes first, and what the room still needs is part of the same cut.
    """
    with_less_history = cut_history(draft, context)
    if limits is None:
        return with_less_history or draft
    if with_less_history is None:
        return _cut_for_room(draft, limits, context)
    return _cut_rest(with_less_history, draft, limits, context)


# Decide.


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
    progress = lower_to_target(draft, limits, context)
    freed = tokens - progress.tokens
    if not is_over_room and freed < max(limits.least, 1):
        return draft
    if progress.tokens > limits.room:
        raise _make_error(progress, must_wait=must_wait)
    reason = draft.moment or CACHE_IS_COLD
    if tokens > limits.trigger:
        reason = OVER_THE_TRIGGER
    return finish_cut(progress, reason)


def _make_error(progress: CutProgress, *, must_wait: bool) -> BudgetExceeded:
    """The error of a request that is over the room after everything that could be done."""
    room = progress.limits.room
    if not must_wait:
        head_rows = progress.context.scale.head_rows()
        return report_too_large(progress.request, head_rows, floor=progress.tokens, room=room)
    untouchable = find_untouchable(progress.entries)
    lowerable = [entry for at, entry in enumerate(progress.entries) if at not in untouchable]
    return report_held_by_thinking(lowerable, floor=progress.tokens, room=room)


# Depth and moves. `take_moves` writes the digests.


def lower_to_target(draft: Draft, limits: CutLimits, context: BuildContext) -> CutProgress:
    """Lower entries down to the target, or as far as that can be done.

    The budget is law: if the request cannot be sent otherwise, what the model pinned is lowered too.
    """
    progress = _lower_unpinned(draft, limits, context)
    if progress.tokens > limits.room and progress.held:
        without_pins = msgspec.structs.replace(draft, held=frozenset())
        progress = _lower_unpinned(without_pins, limits, context)
    return progress


def _lower_unpinned(draft: Draft, limits: CutLimits, context: BuildContext) -> CutProgress:
    """Lower what the model has not pinned: down to the target first, and then, if it must, to the room."""
    progress = start_cut(draft, limits, context)
    if is_held_by_thinking(draft.entries, context.options.binding):
        return _lower_beside_thinking(progress)
    progress = omit_repeated_system_text(progress)
    progress, sparing = _lower_and_spare_less(progress)
    if progress.tokens_before <= limits.room:
        return progress
    return _lower_to_room(progress, sparing)


def _lower_beside_thinking(progress: CutProgress) -> CutProgress:
    """Lower what may go while the model waits with bound thinking, if the request is over the room."""
    room = progress.limits.room
    if progress.tokens > room:
        progress = take_moves(progress, thinking_before_last_step, goal=room)
        progress = take_moves(progress, results_behind_thinking, goal=room)
    return msgspec.structs.replace(progress, exhausted=True)


def _lower_and_spare_less(progress: CutProgress) -> tuple[CutProgress, Sparing]:
    """Take moves down to the target. Returns what is still spared as well.

    The wish to spare recent steps yields if the target cannot be reached otherwise, down to a few steps.
    """
    limits = progress.limits
    order = progress.context.options.order
    sparing = limits.sparing
    progress = take_moves(progress, order, sparing=sparing, goal=limits.target)
    while progress.tokens > limits.target and sparing.tokens > limits.least_spared:
        sparing = sparing.halve(least=limits.least_spared)
        progress = take_moves(progress, order, sparing=sparing, goal=limits.target)
    if progress.exhausted and _spares_any(progress, sparing):
        progress = msgspec.structs.replace(progress, exhausted=False)
    return progress, sparing


def _spares_any(progress: CutProgress, sparing: Sparing) -> bool:
    """Whether something is spared that could still be lowered."""
    entries = progress.entries
    untouchable = find_untouchable(entries) | progress.folded | progress.held
    lowerable = find_spared(entries, sparing) - untouchable
    return any(entries[at].form is not Form.OMITTED for at in lowerable)


# Check: the request was over the room, so it must be within it now.


def _lower_to_room(progress: CutProgress, sparing: Sparing) -> CutProgress:
    """Lower what a cut would rather leave alone, as far as the room needs it.

    The few steps that were still spared yield first, and a number of steps that the caller gave. What cannot
    be recovered goes last, under ever shorter digests.
    """
    limits = progress.limits
    order = progress.context.options.order
    enough = max(limits.target, min(limits.trigger, progress.tokens_before) - limits.least)
    while progress.tokens > enough and sparing:
        sparing = sparing.halve()
        progress = take_moves(progress, order, sparing=sparing, goal=enough)
    # A cut that has freed too little goes on to `enough`: another one would soon follow otherwise.
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
    """Lower what is left when all history is one line each: results of the last step, and digests.

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


# A cut of history and a cut for room are one cut.


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
