"""Lowering forms until the request fits: the one place where a cut is made.

Under the trigger nothing happens. Above it, one pass lowers many segments down to the target, in the order
that `ladder` proposes. The budget is law: the wish to spare the last steps yields to it, and what cannot be
recovered goes only when nothing else is left. The prompt, the last step, pinned segments and system text are
never touched, except for results of the last step that do not fit beside the rest. If what is left still
exceeds the room, `BudgetExceeded` is raised.

From top to bottom: whether a cut is made and how far it goes, the value that its steps pass along, how moves
are taken, and how digests are written. `cut_target` says where the limits are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from lamina.core.arrange import put_system_first
from lamina.core.bound_thinking import is_held_by_thinking, is_thinking, omit_thinking_after_cut
from lamina.core.cut_target import LEAST_SPARED, NOTHING_SPARED, CutLimits, Sparing
from lamina.core.draft import Draft
from lamina.core.entries import begins_with, find_sent
from lamina.core.folds import (
    FOLD_VERSION,
    DigestSize,
    bound_digest,
    find_digest_size,
    find_neighbours,
    find_runs,
    is_digest,
    lay_folds,
    make_fold,
    map_covered,
    measure_fold,
)
from lamina.core.folds import SHARE as DIGEST_SHARE
from lamina.core.history_window import LastN, fold_outside, refs_up_to
from lamina.core.kinds import is_section
from lamina.core.ledger import SAME_TEXT_LATER, current_turn
from lamina.core.library import IN_THE_LIBRARY, NAMED_IN_THE_LIST
from lamina.core.lowering import make_line, shorten_entry
from lamina.core.options import BuildContext
from lamina.core.orders import (
    Batch,
    Move,
    Order,
    OrderView,
    last_resort,
    last_results,
    repeated_system_text,
)
from lamina.core.text.tags import make_inert
from lamina.core.tokens import weigh_entries
from lamina.core.values import Cut, Entry, Fold, Form, Layer, LedgerLine, Ref, Role, ToolResult
from lamina.core.wording import text_of
from lamina.errors import BudgetExceeded

OPEN_LOOP = (
    "thinking in the open tool loop is bound to what a cut would change; ask for drop_block to allow it"
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
    if not limits.ask_for_cut(tokens, cold=context.cold):
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
            raise _budget_exceeded(draft.entries, tokens, limits.room, context, reason=OPEN_LOOP)
        raise _budget_exceeded(progress.request, progress.tokens, limits.room, context)
    reason = OVER_THE_TRIGGER if tokens > limits.trigger else CACHE_IS_COLD
    return _finish_cut(progress, reason)


def _lower_to_target(draft: Draft, limits: CutLimits, context: BuildContext) -> CutProgress:
    """Lowers entries down to the target.

    The wish to spare recent steps yields if the target cannot be reached otherwise, down to a few steps.
    Those few, and a number of steps that the caller gave, yield only if the room is exceeded.
    """
    progress = start_cut(draft, limits, context)
    is_over_room = progress.tokens > limits.room
    if is_held_by_thinking(draft.entries, context.options.binding):
        if is_over_room:
            progress = take_moves(progress, _results_behind_thinking, goal=limits.room)
        return msgspec.structs.replace(progress, exhausted=True)
    order = context.options.order
    progress = omit_repeated_system_text(progress)
    sparing = limits.sparing
    progress = take_moves(progress, order, sparing=sparing, goal=limits.target)
    while progress.tokens > limits.target and sparing.tokens > LEAST_SPARED:
        sparing = sparing.halve(least=LEAST_SPARED)
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
    untouchable = find_untouchable(entries) | progress.folded
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
        progress = take_moves(progress, last_resort, goal=enough, digest_limit=0)
    if progress.tokens > limits.room:
        progress = _lower_to_floor(progress)
    return progress


def _lower_to_floor(progress: CutProgress) -> CutProgress:
    """Lowers what is left when all history is one line each: results of the last step, and digests."""
    room = progress.limits.room
    progress = take_moves(progress, last_results, goal=room, digest_limit=0)
    progress = msgspec.structs.replace(progress, exhausted=True)
    if progress.tokens > room:
        progress = join_digests(progress)
    if progress.tokens > room:
        # A few stubs can be smaller than their digest: choose anew what is folded.
        progress = msgspec.structs.replace(progress, folded=frozenset())
        progress = take_moves(progress, last_resort, goal=room, digest_limit=0)
    if progress.tokens > room:
        progress = join_digests(progress)
    return progress


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
    """The draft as the cut leaves it."""
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
    promoted = _find_later_sections(entries, context)
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


def _find_later_sections(entries: Sequence[Entry], context: BuildContext) -> tuple[Ref, ...]:
    """Sections that came later. At a cut they take their place in the system text.

    Their bytes move, and a cut is the one moment at which that costs nothing more.
    """
    later: list[Ref] = []
    for entry in entries:
        if entry.form is not Form.FULL or entry.layer is Layer.SYSTEM:
            continue
        if is_section(context.kinds, entry.segment):
            later.append(entry.ref)
    return tuple(later)


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
    progress = _fold_history(draft, outside, window.digest, context)
    if _is_too_long(progress, window):
        # A digest can be longer than what it stands for. One line is shorter.
        progress = _fold_history(draft, outside, 0, context)
    if progress.tokens >= progress.tokens_before:
        return None
    return _finish_cut(progress, window.reason)


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


def _budget_exceeded(
    entries: Sequence[Entry], floor: int, room: int, context: BuildContext, *, reason: str = ""
) -> BudgetExceeded:
    """The error that names the floor and the largest segments in it.

    Tool definitions and parameters are named too: often they are what does not fit.
    """
    rows: list[tuple[str, int]] = []
    names: dict[str, str] = {}
    for entry in find_sent(entries):
        segment = entry.segment
        rows.append((segment.key or str(entry.ref), entry.tokens))
        if not segment.key:  # a ref says nothing to a person
            names[str(entry.ref)] = f'{segment.kind} "{make_inert(text_of(segment.parts), _QUOTE)}"'
    rows += context.scale.head_rows()
    rows.sort(key=lambda row: -row[1])
    largest = tuple(rows[:_LARGEST_SEGMENTS])
    return BudgetExceeded(floor=floor, room=room, segments=largest, reason=reason, names=names)


# The value that the steps of a cut pass along.


class CutProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A cut in the making.

    `draft` is the request before the cut, and `tokens_before` its size. `entries` are its entries with the
    moves taken so far, `folded` the positions that go under digests, `lines` the new lines and `folds` all
    folds, old and new. `request` are the entries as they would be sent now, and `tokens` their size.
    `exhausted`: nothing more could be lowered to reach the goal.

    `current` are the positions of the prompt and the last step. Only digests of nothing but `mergeable`
    segments may be written anew; None allows all.

    `written` remembers the digests of this cut, by what they cover and their size: while the cut spares less
    and less, most of them would be written again word for word.
    """

    draft: Draft
    limits: CutLimits
    context: BuildContext
    tokens_before: int
    current: frozenset[int]
    mergeable: frozenset[Ref] | None
    entries: list[Entry]
    folded: frozenset[int]
    lines: dict[Ref, LedgerLine]
    folds: tuple[Fold, ...]
    request: list[Entry]
    tokens: int
    exhausted: bool = False
    written: dict[tuple[tuple[Ref, ...], DigestSize], Fold] = msgspec.field(default_factory=dict)

    @property
    def number(self) -> int:
        """The number that the cut will have in the ledger."""
        return len(self.draft.ledger.cuts) + 1

    @property
    def changed(self) -> list[Entry]:
        """Entries of the request before the cut that are sent differently now, or not at all.

        Digests are not among them: they are new.
        """
        sent_now = {entry.ref: entry.sent for entry in self.request}
        sent_before = find_sent(self.draft.entries)
        return [entry for entry in sent_before if sent_now.get(entry.ref) != entry.sent]


def start_cut(
    draft: Draft, limits: CutLimits, context: BuildContext, *, mergeable: frozenset[Ref] | None = None
) -> CutProgress:
    """A cut in which nothing is lowered yet."""
    tokens = context.scale.total(draft.tokens)
    return CutProgress(
        draft=draft,
        limits=limits,
        context=context,
        tokens_before=tokens,
        current=current_turn(draft.entries),
        mergeable=mergeable,
        entries=draft.entries,
        folded=frozenset(),
        lines={},
        folds=draft.ledger.folds,
        request=draft.entries,
        tokens=tokens,
    )


def lay_request(progress: CutProgress, folds: tuple[Fold, ...]) -> CutProgress:
    """The progress with these folds, and the request as it would be sent with them."""
    context = progress.context
    laid = lay_folds(without_digests(progress.entries), folds, wording=context.wording)
    request = weigh_entries(laid, context.scale, prefix=context.root)
    tokens = context.scale.total(sum(entry.tokens for entry in request))
    return msgspec.structs.replace(progress, folds=folds, request=request, tokens=tokens)


def without_digests(entries: Sequence[Entry]) -> list[Entry]:
    """The entries of the log, and those of lamina's own that belong to no fold.

    Digests are laid anew whenever the folds change.
    """
    return [entry for entry in entries if not is_digest(entry)]


# Which positions a cut may touch, and how it takes moves from an order until its goal.

_ATTEMPTS = 6
"""How often the cost of digests is guessed; in the last attempt the order is taken to its end."""


def take_moves(
    progress: CutProgress,
    order: Order,
    *,
    goal: int,
    sparing: Sparing = NOTHING_SPARED,
    digest_limit: int | None = None,
) -> CutProgress:
    """Takes moves from `order`, sparing the last steps, until the request has at most `goal` tokens.

    A `digest_limit` bounds each digest in characters; 0 leaves one line. What digests cost is a guess until
    they are written, so more moves may be needed after that.
    """
    lowering = _Lowering(progress)
    moves = order(lowering.view(sparing))
    guess = (_digest_size(progress, digest_limit).total + 120) // 3
    for attempt in range(1, _ATTEMPTS + 1):
        tokens = sum(entry.tokens for entry in progress.request)
        has_more = lowering.take(moves, tokens, goal, guess=guess, to_the_end=attempt == _ATTEMPTS)
        progress = write_digests(lowering.finish(progress), digest_limit)
        if progress.tokens <= goal or not has_more:
            break
        guess = (progress.tokens - goal) // 2
    return msgspec.structs.replace(progress, exhausted=progress.tokens > goal)


def omit_repeated_system_text(progress: CutProgress) -> CutProgress:
    """Leaves out system text in the conversation that is said again later: only the newest must be sent."""
    lowering = _Lowering(progress)
    for at in repeated_system_text(lowering.view(NOTHING_SPARED)):
        lowering.take_one(Move(at, Form.OMITTED, SAME_TEXT_LATER))
    return lowering.finish(progress)


class _Lowering:
    """The entries of a cut while moves are taken, one after the other.

    An order is a generator that looks at the entries while it proposes moves. What it proposes later depends
    on the moves that were taken before, so these change one list.
    """

    def __init__(self, progress: CutProgress) -> None:
        self.context = progress.context
        self.current = progress.current
        self.cut_number = progress.number
        self.entries = list(progress.entries)
        self.folded = set(progress.folded)
        self.lines = dict(progress.lines)

    def view(self, sparing: Sparing) -> OrderView:
        """What an order may look at."""
        return OrderView(
            entries=self.entries,
            kinds=self.context.kinds,
            untouchable=find_untouchable(self.entries) | self.folded,
            spared=find_spared(self.entries, sparing),
            largest_spared=sparing.largest,
            current=self.current,
        )

    def take(self, moves: Iterator[Batch], tokens: int, goal: int, *, guess: int, to_the_end: bool) -> bool:
        """Takes moves until the request has about `goal` tokens; returns whether moves may be left.

        `guess` is what the digests may cost.
        """
        for batch in moves:
            for move in batch:
                if move.fold:
                    tokens -= self._fold(move)
                else:
                    tokens -= self.take_one(move)
            if to_the_end:
                continue
            digest_tokens = guess if self.folded else 0
            if self.context.scale.total(tokens + digest_tokens) <= goal:
                return True
        return False

    def take_one(self, move: Move) -> int:
        """Takes one move if it shrinks the request; returns the tokens that it frees."""
        entry = self.entries[move.at]
        if entry.form <= move.form or move.at in self.folded:
            return 0
        scale = self.context.scale
        wording = self.context.wording
        lowered, limit = shorten_entry(
            entry, move.form, move.why, wording=wording, scale=scale, limit=move.limit
        )
        gain = scale.body(entry)
        if lowered.parts:
            gain -= scale.body(lowered)
        least_gain = 0 if move.form is Form.OMITTED else 1
        if gain < least_gain:
            return 0
        self.entries[move.at] = msgspec.structs.replace(lowered, tokens=max(entry.tokens - gain, 0))
        # A line of a cut is undone when its entry is the prompt or the last step again, after a rewind. What
        # is lowered while it stands there must stay so when the request is sent once more.
        cut = 0 if move.at in self.current else self.cut_number
        self.lines[entry.ref] = make_line(lowered, wording=wording, limit=limit, cut=cut)
        return gain

    def _fold(self, move: Move) -> int:
        """Marks one entry for a digest; returns the tokens that this frees."""
        if move.at in self.folded:
            return 0
        self.folded.add(move.at)
        return self.entries[move.at].tokens

    def finish(self, progress: CutProgress) -> CutProgress:
        """The progress after the moves that were taken so far."""
        return msgspec.structs.replace(
            progress, entries=list(self.entries), folded=frozenset(self.folded), lines=dict(self.lines)
        )


def find_untouchable(entries: Sequence[Entry]) -> frozenset[int]:
    """Positions that no cut may touch: system text, what is pinned, the prompt, the last step.

    A digest that stands in the last turn may be written anew, and an attachment of the prompt may be lowered.
    """
    current = current_turn(entries)
    positions: set[int] = set()
    for at, entry in enumerate(entries):
        if _is_untouchable(entry, is_current=at in current):
            positions.add(at)
    return frozenset(positions)


def _is_untouchable(entry: Entry, *, is_current: bool) -> bool:
    """Whether no cut may touch an entry, given whether it belongs to the prompt or the last step.

    What came with the prompt, in the layer TURN, may be lowered. A digest may be written anew wherever it
    stands.
    """
    is_system_text = entry.role is Role.SYSTEM or entry.layer is Layer.SYSTEM
    if is_system_text or entry.segment.pinned:
        return True
    if entry.segment.kind == "digest":
        return False
    return is_current and entry.layer in (Layer.PROMPT, Layer.STEPS)


def find_spared(entries: Sequence[Entry], sparing: Sparing) -> frozenset[int]:
    """Positions that a cut would rather spare: the last steps, and what came with the prompt.

    In the hoisted layout, what came with the prompt may stand in the library, with equal content.
    """
    if not sparing:
        return frozenset()
    if sparing.steps:
        first_step = _find_first_of_last_steps(entries, sparing.steps)
    else:
        first_step = _find_first_step_within(entries, sparing)
    named_now = (IN_THE_LIBRARY, NAMED_IN_THE_LIST)
    attached_now = {entry.content for entry in entries if entry.why in named_now}
    positions: set[int] = set()
    for at, entry in enumerate(entries):
        is_recent = entry.step >= first_step
        came_with_prompt = entry.layer is Layer.TURN or entry.content in attached_now
        if is_recent or came_with_prompt:
            positions.add(at)
    return frozenset(positions)


def _find_first_step_within(entries: Sequence[Entry], sparing: Sparing) -> int:
    """The first of the newest steps that together have at most the tokens to spare, besides the last one.

    No cut touches the last step and the prompt, so they do not count. A large result counts as the cut may
    leave it.
    """
    current = current_turn(entries)
    left = sparing.tokens
    first_step = entries[-1].step if entries else 0
    for at in range(len(entries) - 1, -1, -1):
        entry = entries[at]
        if at in current or entry.layer is Layer.SYSTEM or is_digest(entry):
            continue
        tokens = entry.tokens
        if sparing.largest and begins_with(entry.parts, ToolResult):
            tokens = min(tokens, sparing.largest)
        left -= tokens
        if left < 0:
            return max(first_step, entry.step + 1)
        first_step = min(first_step, entry.step)
    return first_step


def _find_first_of_last_steps(entries: Sequence[Entry], keep: int) -> int:
    """The first of the last `keep` steps in which the assistant speaks.

    If there are fewer than `keep`, it is the first step of all.
    """
    spoken: set[int] = set()
    for entry in entries:
        if entry.segment.role is not Role.ASSISTANT or entry.segment.kind == "digest":
            continue
        if entry.form is not Form.OMITTED:
            spoken.add(entry.step)
    if len(spoken) < keep:
        return 0
    return sorted(spoken)[-keep]


# The digests of a cut: written for what it folds, and merged where they take too much of the room.

_SHARES = (1, 4)
"""A digest may have its whole size, or else one part in this many of it."""

_TRIES = 3
"""How often a digest is written shorter until its size in tokens is right too."""


def write_digests(progress: CutProgress, digest_limit: int | None) -> CutProgress:
    """Writes the digests of what is to be folded, and weighs the request as it would be sent.

    A `digest_limit` bounds each digest in characters, even the user's words in it; 0 leaves one line.
    """
    new_folds: list[Fold] = []
    for run in find_runs(progress.entries, progress.folded):
        fold = _fold_run([progress.entries[at] for at in run], progress, digest_limit)
        if fold is not None:
            new_folds.append(fold)
    folds = progress.draft.ledger.folds + tuple(new_folds)
    return _merge_digests(lay_request(progress, folds), digest_limit)


def _fold_run(run: Sequence[Entry], progress: CutProgress, digest_limit: int | None) -> Fold | None:
    """A digest of the run that is smaller than it; None if there is none.

    A digest of its whole size is tried first, then one of a quarter. What cannot be folded stays as it is.
    """
    run_tokens = sum(entry.tokens for entry in run)
    for share in _SHARES:
        fold = _write_digest(run, progress, digest_limit, share)
        if _pays(fold, run, run_tokens, progress):
            return fold
    return None


def _write_digest(
    run: Sequence[Entry], progress: CutProgress, digest_limit: int | None, share: int = 1
) -> Fold:
    """A digest that keeps its size in tokens too: in dense scripts a character takes several tokens.

    Each try is shorter by as much as the last one was too long. A digest of one line cannot be shorter.
    """
    context = progress.context
    counter = context.scale.counter
    size = _digest_size(progress, digest_limit).scale(1, share)
    name = (tuple(entry.ref for entry in run), size)
    if name in progress.written:
        return progress.written[name]
    most_tokens = max(size.total // 2, 1)
    for _ in range(_TRIES):
        fold = make_fold(run, size=size, cut=progress.number, kinds=context.kinds)
        tokens = counter.count(fold.text)
        if fold.notes:
            tokens += counter.count(fold.notes)
        if tokens <= most_tokens or not size.total:
            break
        size = size.scale(most_tokens, tokens)
    progress.written[name] = fold
    return fold


def _digest_size(progress: CutProgress, digest_limit: int | None) -> DigestSize:
    """The size of one digest: a share of the free room, or what is left of it as a last resort."""
    if digest_limit is None:
        return find_digest_size(progress.limits.free)
    return bound_digest(digest_limit)


def _pays(fold: Fold, run: Sequence[Entry], run_tokens: int, progress: CutProgress) -> bool:
    """Whether a digest is smaller than what it stands for."""
    context = progress.context
    return measure_fold(fold, run, context.scale, context.wording) < run_tokens


def _merge_digests(progress: CutProgress, digest_limit: int | None) -> CutProgress:
    """Merges digests side by side where they take too much of the room, or if nothing else helps.

    Digests of an older version are written anew: they did not keep the voices apart.
    """
    groups = _find_groups_to_merge(progress, digest_limit)
    if not groups:
        return progress
    sizes = _digest_sizes(progress.request)
    by_ref = {entry.ref: entry for entry in progress.request}
    folds = progress.folds
    for group in groups:
        run = _find_covered(group, by_ref)
        merged = _write_digest(run, progress, digest_limit, share=len(groups))
        group_tokens = sum(sizes.get(fold.key, 0) for fold in group)
        if _has_old_version(group) or _pays(merged, run, group_tokens, progress):
            folds = _replace_folds(folds, group, merged)
    return lay_request(progress, folds)


def _find_groups_to_merge(progress: CutProgress, digest_limit: int | None) -> list[list[Fold]]:
    """Groups of neighbouring folds that should have one digest.

    A bounded digest is shorter, so one is written even where it takes the place of only one.
    """
    digest_tokens = sum(_digest_sizes(progress.request).values())
    is_bounded = digest_limit is not None
    is_crowded = is_bounded or digest_tokens > progress.limits.free // DIGEST_SHARE
    fewest = 1 if is_bounded else 2
    groups: list[list[Fold]] = []
    for group in find_neighbours(progress.request, _mergeable_folds(progress)):
        may_merge = is_crowded and len(group) >= fewest
        if may_merge or _has_old_version(group):
            groups.append(group)
    return groups


def _has_old_version(folds: Iterable[Fold]) -> bool:
    """Whether one of these digests was written by a release that did not keep the voices apart."""
    return any(fold.version < FOLD_VERSION for fold in folds)


def _find_covered(folds: Sequence[Fold], by_ref: Mapping[Ref, Entry]) -> list[Entry]:
    """The entries that these folds cover, in their order.

    An entry that the request does not have, since a window took it out, is passed over.
    """
    covered: list[Entry] = []
    for fold in folds:
        covered += [by_ref[ref] for ref in fold.covers if ref in by_ref]
    return covered


def _mergeable_folds(progress: CutProgress) -> Sequence[Fold]:
    """The folds that may be written anew.

    A cut for a window of history may not touch the digests of what is inside of the window.
    """
    if progress.mergeable is None:
        return progress.folds
    return [fold for fold in progress.folds if progress.mergeable.issuperset(fold.covers)]


def join_digests(progress: CutProgress) -> CutProgress:
    """Joins digests with what stands between them, where that is lowered as far as it can be."""
    owner = map_covered(progress.folds)
    sizes = _digest_sizes(progress.request)
    folds = progress.folds
    for run in _find_foldable_runs(progress, owner):
        group: dict[str, Fold] = {}
        unfolded_tokens = 0
        has_unfolded = False
        for entry in run:
            fold = owner.get(entry.ref)
            if fold is None:
                has_unfolded = True
                unfolded_tokens += entry.tokens
            else:
                group[fold.key] = fold
        if not group or not has_unfolded:
            continue
        merged = _write_digest(run, progress, 0)
        run_tokens = unfolded_tokens + sum(sizes.get(key, 0) for key in group)
        if _pays(merged, run, run_tokens, progress):
            folds = _replace_folds(folds, list(group.values()), merged)
    return lay_request(progress, folds)


def _find_foldable_runs(progress: CutProgress, owner: Mapping[Ref, Fold]) -> list[list[Entry]]:
    """Entries in a row that are folded, or that this cut would fold.

    The digests that stand for them now are passed over, so that two folds with a few stubs between them are
    one run.
    """
    entries: list[Entry] = []
    foldable: set[int] = set()
    for at, entry in enumerate(progress.entries):
        if is_digest(entry):
            continue
        if at in progress.folded or entry.ref in owner:
            foldable.add(len(entries))
        entries.append(entry)
    runs = find_runs(entries, frozenset(foldable))
    return [[entries[at] for at in run] for run in runs]


def _digest_sizes(request: Sequence[Entry]) -> dict[str, int]:
    """Tokens of each fold's digest in the request, by the key of the fold.

    A digest has up to three entries: the user's words, the notes, and the line that ends them.
    """
    sizes: dict[str, int] = {}
    for entry in request:
        if is_digest(entry):
            key = entry.segment.key.partition("!")[0]  # fold-1a2b!notes is a part of the digest of fold-1a2b
            sizes[key] = sizes.get(key, 0) + entry.tokens
    return sizes


def _replace_folds(folds: tuple[Fold, ...], group: Sequence[Fold], merged: Fold) -> tuple[Fold, ...]:
    """The folds with `merged` in the place of a group. It answers to the keys of all that it replaces.

    The model may still recall a digest by the key that it saw in an earlier request.
    """
    first = folds.index(group[0])
    answers_to: list[str] = []
    for fold in group:
        answers_to += [fold.key, *fold.merged]
    replaced = frozenset(fold.key for fold in group)
    rest = [fold for fold in folds if fold.key not in replaced]
    other_keys = tuple(key for key in answers_to if key != merged.key)
    return (*rest[:first], msgspec.structs.replace(merged, merged=other_keys), *rest[first:])
