"""The way of a cut, from the decision to cut to the request that leaves.

1. Decide (`_cut_for_room`): under the trigger nothing happens, and a cut that frees too little waits.
2. Depth (`cut_target`): how many tokens may be left, and how many of the last steps are spared.
3. Moves (`cut_moves`): `ladder` proposes what to lower, the least needed first. Moves are taken until the
   target is reached. If it is not, the cut spares less and asks again.
4. Digests (`cut_digests`): what is folded gets a digest. Its size is known only when it is written, so moves
   and digests take turns until the request lands on its target. At last the names in them are chosen.
5. Check: if the request is still over the room, the last resorts follow, one after the other. What no resort
   makes small enough raises `BudgetExceeded`.

The budget is law: the wish to spare the last steps yields to it, and what cannot be recovered goes only when
nothing else is left. The prompt, the last step, pinned segments and system text are never touched, except for
results of the last step that do not fit beside the rest. Each step takes a `CutProgress` and returns
another.

A window over history (`history_window`) makes cuts, too: what is beyond its last messages goes under a
digest, or is left out. No budget asks for that, so such a cut has no room to keep to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from lamina.core.bound_thinking import is_held_by_thinking
from lamina.core.cut_digests import join_digests, list_hidden_names
from lamina.core.cut_moves import omit_repeated_system_text, take_moves
from lamina.core.cut_progress import CutProgress, find_spared, find_untouchable, finish_cut
from lamina.core.cut_target import CutLimits, Sparing
from lamina.core.digests import ONE_LINE, ONLY_RULES
from lamina.core.draft import Draft
from lamina.core.entries import find_sent
from lamina.core.epochs import is_sent_again
from lamina.core.history_window import LastN, refs_up_to, take_outside
from lamina.core.ladder import last_resort, last_results, results_behind_thinking, thinking_before_last_step
from lamina.core.moved_copies import move_full_forms
from lamina.core.options import BuildContext
from lamina.core.orders import Order, pass_over_untouchable
from lamina.core.references import find_lost_references
from lamina.core.reminders import is_reminder
from lamina.core.scale import weigh_entries
from lamina.core.text.tags import make_inert
from lamina.core.values import Cut, Entry, Form, Ref
from lamina.core.wording import text_of
from lamina.errors import BudgetExceeded

OVER_THE_TRIGGER = "over the trigger"
CACHE_IS_COLD = "the cache is cold anyway"


def cut_to_fit(draft: Draft, limits: CutLimits | None, context: BuildContext) -> Draft:
    """The fourth stage: the draft within the window of history and within the room, by at most one cut.

    If both ask for a cut, the history goes first, and what the room still needs is part of the same cut.
    Reminders are the first to yield: a cut leaves none of them. The request that was sent last is not cut
    when it is built again, as long as it fits and a cache may have it.
    """
    fits = limits is not None and context.scale.total(draft.tokens) <= limits.room
    if fits and not context.cold and is_sent_again(draft, context):
        limits = None
    bare = _drop_reminders(draft, context)
    after = _cut_bare(bare, limits, context)
    if after.cut is None:
        return draft
    first_reminder = next((entry.ref for entry in draft.entries if is_reminder(entry)), "")
    first = _find_earlier(first_reminder, after.cut.first, draft.entries)
    return msgspec.structs.replace(after, cut=msgspec.structs.replace(after.cut, first=first))


def _drop_reminders(draft: Draft, context: BuildContext) -> Draft:
    """The draft without reminders. It still counts their tokens: by those a cut is due, and they are freed.

    In an open tool loop thinking may be bound to them, and they stay.
    """
    if not draft.reminders or is_held_by_thinking(draft.entries, context.options.binding):
        return draft
    entries = [entry for entry in draft.entries if not is_reminder(entry)]
    weighed = weigh_entries(entries, context.scale, prefix=context.root)
    return msgspec.structs.replace(draft, entries=weighed, reminders=())


def _cut_bare(draft: Draft, limits: CutLimits | None, context: BuildContext) -> Draft:
    """The draft without reminders, within the window of history and within the room."""
    with_less_history = _cut_history(draft, context)
    if limits is None:
        return with_less_history
    if with_less_history.cut is None:
        return _cut_for_room(draft, limits, context)
    return _cut_rest(with_less_history, with_less_history.cut, draft, limits, context)


# Decide.


def _cut_for_room(draft: Draft, limits: CutLimits, context: BuildContext) -> Draft:
    """The draft within the room. A cut is made when it is due, and waits while it would free too little."""
    tokens = context.scale.total(draft.tokens)
    if not limits.ask_for_cut(tokens, cold=context.cold):
        return draft
    if tokens > limits.room:
        return _cut_or_raise(draft, limits, context)
    if is_held_by_thinking(draft.entries, context.options.binding):
        # The provider would refuse the cut request. While everything fits, the end of the tool loop is soon
        # enough.
        return draft
    progress = lower_to_target(draft, limits, context)
    # A cut that drops nothing but reminders frees nothing: the prompt gets one again, and each step of its
    # turn would make one more such cut.
    if not progress.changed or not limits.is_worth_a_cut(tokens - progress.tokens):
        return draft
    reason = CACHE_IS_COLD
    if tokens > limits.trigger:
        reason = OVER_THE_TRIGGER
    return finish_cut(progress, reason)


def _cut_or_raise(draft: Draft, limits: CutLimits, context: BuildContext) -> Draft:
    """The draft within the room, however little the cut frees; `BudgetExceeded` if that cannot be done."""
    progress = lower_to_target(draft, limits, context)
    if progress.tokens > limits.room:
        raise _make_error(progress)
    return finish_cut(progress, OVER_THE_TRIGGER)


# Depth and moves. `take_moves` writes the digests.


def lower_to_target(draft: Draft, limits: CutLimits, context: BuildContext) -> CutProgress:
    """Lower entries down to the target, or as far as that can be done.

    The budget is law: what a rule of a tool holds yields before what cannot be
    recovered.
    """
    progress = _lower_unheld(draft, limits, context)
    is_last_resort = progress.took_last_resort or progress.tokens > limits.room
    if is_last_resort and progress.held:
        unheld_draft = msgspec.structs.replace(draft, held=frozenset())
        progress = _lower_unheld(unheld_draft, limits, context)
    return list_hidden_names(progress)


def _lower_unheld(draft: Draft, limits: CutLimits, context: BuildContext) -> CutProgress:
    """Lower what no rule holds: down to the target first, and then, if it must, to the room."""

    def lower(start: Draft) -> CutProgress:
        progress = CutProgress(start, limits, context)
        if is_held_by_thinking(start.entries, context.options.binding):
            return _lower_beside_thinking(progress)
        progress = omit_repeated_system_text(progress)
        progress, sparing = _lower_and_spare_less(progress)
        if progress.tokens_before <= limits.room:
            return progress
        return _lower_to_room(progress, sparing)

    return _keep_references(draft, lower, context)


def _keep_references(
    draft: Draft, lower: Callable[[Draft], CutProgress], context: BuildContext
) -> CutProgress:
    """Lower entries such that every reference still has its full copy in the request.

    If the cut lowered such a copy, the full form moves to the newest reference, and the cut begins anew. So
    content is as old as its newest appearance, and is lowered there if it must be.
    """
    progress = lower(draft)
    moved = draft
    # It ends: content whose full form was moved has no reference left that could be lost again.
    while lost := find_lost_references(progress.request, context.kinds):
        moved = move_full_forms(moved, lost, context)
        progress = lower(moved).evolve(tokens_before=progress.tokens_before, entries_before=draft.entries)
    return progress


def _lower_beside_thinking(progress: CutProgress) -> CutProgress:
    """Lower what may go while the model waits with bound thinking, if the request is over the room."""
    room = progress.limits.room
    if progress.tokens > room:
        progress = take_moves(progress, thinking_before_last_step, goal=room)
        progress = take_moves(progress, results_behind_thinking, goal=room)
    return progress.evolve(exhausted=True)


def _lower_and_spare_less(progress: CutProgress) -> tuple[CutProgress, Sparing]:
    """Take moves down to the target. Returns what is still spared as well.

    The wish to spare the last steps yields if the target cannot be reached otherwise, down to a few steps. A
    number of steps yields, down to one, if the request would stay over the trigger or soon be over it again.
    """
    limits = progress.limits
    order = pass_over_untouchable(progress.context.options.order)
    sparing = limits.sparing
    progress = take_moves(progress, order, sparing=sparing, goal=limits.target)
    while progress.tokens > limits.target and sparing.tokens > limits.least_spared:
        sparing = sparing.halve(least=limits.least_spared)
        progress = take_moves(progress, order, sparing=sparing, goal=limits.target)
    # A number of steps that the caller gave is a wish, and the trigger is a limit: `keep_last=50` may be more
    # than the whole room.
    enough = max(limits.target, limits.trigger - limits.least)
    while progress.tokens_before > limits.trigger and progress.tokens > enough and sparing.steps > 1:
        sparing = sparing.halve()
        progress = take_moves(progress, order, sparing=sparing, goal=limits.target)
    if progress.exhausted and _spares_any(progress, sparing):
        progress = progress.evolve(exhausted=False)
    return progress, sparing


def _spares_any(progress: CutProgress, sparing: Sparing) -> bool:
    """Whether something is spared that could still be lowered."""
    entries = progress.entries
    untouchable = find_untouchable(entries, progress.current) | progress.folded | progress.held
    lowerable = find_spared(entries, sparing, progress.current) - untouchable
    return any(entries[at].form is not Form.OMITTED for at in lowerable)


# Check: the request was over the room, so it must be within it now.


def _lower_to_room(progress: CutProgress, sparing: Sparing) -> CutProgress:
    """Lower what a cut would rather leave alone, as far as the room needs it.

    The few steps that were still spared yield first, and a number of steps that the caller gave. What cannot
    be recovered goes last, under ever shorter digests.
    """
    limits = progress.limits
    order = pass_over_untouchable(progress.context.options.order)
    enough = max(limits.target, min(limits.trigger, progress.tokens_before) - limits.least)
    while progress.tokens > enough and sparing:
        sparing = sparing.halve()
        progress = take_moves(progress, order, sparing=sparing, goal=enough)
    # A cut that has freed too little goes on to `enough`: another one would soon follow otherwise.
    freed_too_little = progress.tokens_before - progress.tokens < limits.least
    goal = enough if freed_too_little else limits.room
    if progress.tokens > goal:
        progress = progress.evolve(took_last_resort=True)
        progress = take_moves(progress, last_resort, goal=enough, digest_limit=limits.room)
    if progress.tokens > limits.room:
        progress = take_moves(progress, last_resort, goal=enough, digest_limit=ONLY_RULES)
    return _lower_to_floor(progress)


class _Resort(NamedTuple):
    """What a cut tries while its request is over the room: moves of an order, or else joining its digests.

    `digest_limit` bounds each digest in characters. `anew`: what is folded is chosen anew.
    """

    digest_limit: int
    order: Order | None = None
    anew: bool = False


_RESORTS = (
    _Resort(ONLY_RULES, last_results),
    _Resort(ONLY_RULES),
    # A few stubs can be smaller than their digest.
    _Resort(ONE_LINE, last_resort, anew=True),
    _Resort(ONE_LINE),
)
"""What is left when all history is one line each, in this order. What is over the room after the last of them
cannot be sent."""


def _lower_to_floor(progress: CutProgress) -> CutProgress:
    """Try the last resorts, each only if what came before it was not enough."""
    room = progress.limits.room
    for resort in _RESORTS:
        if progress.tokens <= room:
            break
        if resort.anew:
            progress = progress.evolve(folded=frozenset())
        if resort.order is None:
            progress = join_digests(progress, resort.digest_limit)
        else:
            progress = take_moves(progress, resort.order, goal=room, digest_limit=resort.digest_limit)
        # The goal was the room. Even if it is reached, nothing is left to lower down to the target.
        progress = progress.evolve(exhausted=True)
    return progress


# The errors of a request that no cut makes small enough: what takes the room, and what to do about it.

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


def _make_error(progress: CutProgress) -> BudgetExceeded:
    """The error of a request that is over the room after everything that could be done.

    Tool definitions and parameters are named too: often they are what does not fit. If bound thinking
    forbids the cut, the error names what it would lower otherwise.
    """
    floor = progress.tokens
    room = progress.limits.room
    context = progress.context
    if not is_held_by_thinking(progress.draft.entries, context.options.binding):
        largest, names = _find_largest(progress.request, context.scale.head_rows())
        return BudgetExceeded(floor=floor, room=room, segments=largest, names=names)
    untouchable = find_untouchable(progress.entries, progress.current)
    lowerable = [entry for at, entry in enumerate(progress.entries) if at not in untouchable]
    largest, names = _find_largest(lowerable, ())
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


# The cut of a window over history.

_NO_LIMITS = CutLimits(room=0, working=0, trigger=0, target=0, least=0)


def _cut_history(draft: Draft, context: BuildContext) -> Draft:
    """The draft without what is beyond the window of history; the same draft if there is nothing of it.

    The cut waits while it would not make the request smaller, and in an open tool loop with bound thinking.
    """
    window = context.options.window
    if window is None or is_held_by_thinking(draft.entries, context.options.binding):
        return draft
    outside = window.outside(draft.entries)
    if not outside:
        return draft
    progress = _take_out_history(draft, outside, window, context)
    # As in `_cut_for_room`: what reminders took is not freed.
    if not progress.changed or progress.tokens >= progress.tokens_before:
        return draft
    return finish_cut(progress, window.reason)


def _take_out_history(
    draft: Draft, outside: frozenset[int], window: LastN, context: BuildContext
) -> CutProgress:
    """Take the steps out that are outside of the window, under the longest digest that frees something.

    If not even one line is shorter than these steps, they stay. An exact window leaves them out without one.
    """
    if window.digest is None:
        return _omit_history(draft, outside, window, context)
    for digest_limit in (window.digest, ONLY_RULES, ONE_LINE):
        progress = _take_all_moves(
            draft, take_outside(outside), digest_limit, context, mergeable=refs_up_to(draft.entries, outside)
        )
        # The digest of few short messages can be longer than these messages.
        frees_tokens = progress.tokens < progress.tokens_before
        if frees_tokens and not window.outside(progress.request):
            return progress
    if window.is_exact:
        return _omit_history(draft, outside, window, context)
    return progress


def _omit_history(draft: Draft, outside: frozenset[int], window: LastN, context: BuildContext) -> CutProgress:
    """Leave the steps outside of the window out, with nothing in their place.

    The digests of the room stay: one that this cut wrote would be of the window, and the next build ends it.
    """
    return _take_all_moves(
        draft, take_outside(outside, window.reason), ONE_LINE, context, mergeable=frozenset()
    )


def _take_all_moves(
    draft: Draft,
    order: Order,
    digest_limit: int,
    context: BuildContext,
    *,
    mergeable: frozenset[Ref] | None = None,
) -> CutProgress:
    """Take every move of an order. There is no goal that the cut could have missed."""

    def lower(start: Draft) -> CutProgress:
        progress = CutProgress(start, _NO_LIMITS, context, mergeable=mergeable)
        return take_moves(progress, order, goal=0, digest_limit=digest_limit)

    progress = list_hidden_names(_keep_references(draft, lower, context))
    return progress.evolve(exhausted=False)


def _cut_rest(
    with_less_history: Draft, first_cut: Cut, draft: Draft, limits: CutLimits, context: BuildContext
) -> Draft:
    """What is left after a cut of history, within the room. Both are one cut."""
    ledger = msgspec.structs.replace(
        with_less_history.ledger,
        folds=with_less_history.folds,
        promoted=draft.ledger.promoted + with_less_history.promoted,
    )
    left = msgspec.structs.replace(with_less_history, ledger=ledger, promoted=(), cut=None)
    within_room = _cut_for_room(left, limits, context)
    second_cut = within_room.cut
    if second_cut is None:
        return with_less_history
    cut = msgspec.structs.replace(
        second_cut,
        reason=f"{first_cut.reason}; {second_cut.reason}",
        before=first_cut.before,
        first=_find_earlier(first_cut.first, second_cut.first, draft.entries),
        lowered=first_cut.lowered + second_cut.lowered,
    )
    promoted = with_less_history.promoted + within_room.promoted
    ledger = msgspec.structs.replace(
        within_room.ledger, folds=draft.ledger.folds, promoted=draft.ledger.promoted
    )
    return msgspec.structs.replace(within_room, ledger=ledger, promoted=promoted, cut=cut)


def _find_earlier(one: str, other: str, entries: Sequence[Entry]) -> str:
    """The ref that stands first in the request before the cut. A digest of the cut itself is not there.

    It says from where on a cache has lost what it had.
    """
    for entry in entries:
        if entry.ref in (one, other):
            return entry.ref
    return one or other


# What a cut would do, before it is made.


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


def preview_cut(draft: Draft, limits: CutLimits, context: BuildContext) -> CutPlan:
    """What a cut would do; nothing is changed.

    A segment that a digest would stand for is listed too, with the form OMITTED. Reminders are dropped, as a
    cut drops them, and not listed.
    """
    progress = lower_to_target(_drop_reminders(draft, context), limits, context)
    after_cut = finish_cut(progress, "planned")
    entries_after = {entry.ref: entry for entry in after_cut.entries}
    lowered: list[Lowered] = []
    for entry in draft.entries:
        after = entries_after.get(entry.ref, entry)
        if after.sent == entry.sent:
            continue
        freed = entry.tokens - after.tokens
        lowered.append(Lowered(ref=entry.ref, was=entry.form, now=after.form, tokens=freed, why=after.why))
    new_folds = [fold for fold in progress.folds if fold.cut == progress.number]
    digests = ["\n".join(filter(None, (fold.text, fold.notes))) for fold in new_folds]
    return CutPlan(
        before=progress.tokens_before,
        after=context.scale.total(after_cut.tokens),
        fits=progress.tokens <= limits.room,
        floor=progress.exhausted,
        lowered=tuple(lowered),
        digests=tuple(digests),
    )
