"""Lowering forms until the request fits: the one place where a cut is made.

Under the trigger nothing happens. Above it, one pass lowers many segments down to the target, in the
order that `ladder` proposes. The budget is law: the wish to spare the last steps yields to it, and what
cannot be recovered goes only when nothing else is left. The prompt, the last step, pinned segments and
system text are never touched, but for results of the last step that do not fit beside the rest; if what is
left still exceeds the room, `BudgetExceeded` says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from lamina.core.admit import Admitted
from lamina.core.arrange import system_first
from lamina.core.bound_thinking import held, thinks, unbound
from lamina.core.cut_target import CutLimits
from lamina.core.folds import FOLD_VERSION, cost, extra, fold, keeps, neighbours, runs
from lamina.core.folds import SHARE as DIGEST_SHARE
from lamina.core.history_window import folding, standing_before
from lamina.core.kinds import is_section
from lamina.core.ledger import SAME_TEXT_LATER, current_turn, is_digest, lay_folds, line
from lamina.core.library import IN_THE_LIBRARY, NAMED_IN_THE_LIST
from lamina.core.options import BuildContext
from lamina.core.orders import (
    Batch,
    Move,
    Order,
    OrderView,
    goes_last,
    last_resort,
    last_results,
    repeated_system_text,
)
from lamina.core.scale import settled
from lamina.core.shortening import shortened
from lamina.core.values import Cut, Entry, Fold, Form, Layer, LedgerLine, Ref, Role
from lamina.errors import BudgetExceeded

OPEN_LOOP = (
    "thinking in the open tool loop is bound to what a cut would change; ask for drop_block to allow it"
)

OVER_THE_TRIGGER = "over the trigger"
CACHE_IS_COLD = "the cache is cold anyway"


class CutResult(msgspec.Struct, frozen=True, kw_only=True):
    """Entries that fit, and what the ledger must remember of how."""

    entries: list[Entry]
    tokens: int
    lines: dict[Ref, LedgerLine]
    folds: tuple[Fold, ...]
    promoted: tuple[Ref, ...] = ()
    cut: Cut | None = None


def fit(
    admitted: Admitted, limits: CutLimits, bench: BuildContext, *, keep_last: int, cold: bool = False
) -> CutResult:
    """Entries within the room. A cut is made when it is due, and waits while it would free too little."""
    entries = admitted.entries
    before = bench.scale.total(admitted.tokens)
    stay = unfitted(admitted, bench)
    worth_it_when_cold = cold and before - limits.target >= max(limits.least, 1)
    due = before > limits.trigger or worth_it_when_cold
    waits = held(entries, bench.options.binding)
    if not due or (waits and before <= limits.room):
        return stay
    plan = planned(entries, limits, bench, keep_last=keep_last, forced=before > limits.room)
    if before <= limits.room and before - plan.total < max(limits.least, 1):
        return stay
    if waits and plan.total > limits.room:
        raise exceeded(entries, before, limits.room, bench, reason=OPEN_LOOP)
    if plan.total > limits.room:
        raise exceeded(plan.result, plan.total, limits.room, bench)
    return _cut(plan, admitted, OVER_THE_TRIGGER if before > limits.trigger else CACHE_IS_COLD)


NO_LIMITS = CutLimits(room=0, trigger=0, target=0, least=0, largest=0)
"""For a cut that no budget asks for."""


def fit_history(admitted: Admitted, bench: BuildContext) -> CutResult | None:
    """The cut that takes out what is beyond the window of history; None if there is none to make.

    It waits while it would not make the request smaller, and in an open tool loop with bound thinking.
    """
    window = bench.options.window
    entries = admitted.entries
    if window is None or held(entries, bench.options.binding):
        return None
    outside = window.outside(entries)
    if not outside:
        return None
    plan = _plan_without(outside, window.digest, entries, bench)
    if plan.total >= plan.before or window.outside(plan.result):
        # a digest can be longer than what it would stand for; one line is shorter
        plan = _plan_without(outside, 0, entries, bench)
    if plan.total >= plan.before:
        return None
    return _cut(plan, admitted, window.reason)


def _plan_without(
    outside: frozenset[int], digest_limit: int, entries: list[Entry], bench: BuildContext
) -> CutInProgress:
    """The plan of a cut that takes out these steps, with so many characters for what stands for them."""
    plan = CutInProgress(entries, NO_LIMITS, bench, mergeable=standing_before(entries, outside))
    plan.take(folding(outside), keep=0, goal=0, digest_limit=digest_limit)
    plan.exhausted = False
    return plan


def fit_rest(
    slid: CutResult, admitted: Admitted, limits: CutLimits, bench: BuildContext, *, keep_last: int, cold: bool
) -> CutResult:
    """What is left after a cut of history, within the room: both are one cut."""
    ledger = msgspec.structs.replace(
        bench.ledger, folds=slid.folds, promoted=bench.ledger.promoted + slid.promoted
    )
    left = msgspec.structs.replace(
        admitted, entries=slid.entries, tokens=slid.tokens, lines=slid.lines, known=0, known_sent=0
    )
    rest = fit(left, limits, msgspec.structs.replace(bench, ledger=ledger), keep_last=keep_last, cold=cold)
    if rest.cut is None or slid.cut is None:
        return slid
    cut = msgspec.structs.replace(
        rest.cut,
        reason=f"{slid.cut.reason}; {rest.cut.reason}",
        before=slid.cut.before,
        first=_earlier(slid.cut.first, rest.cut.first, admitted.entries),
        lowered=slid.cut.lowered + rest.cut.lowered,
    )
    return msgspec.structs.replace(rest, promoted=slid.promoted + rest.promoted, cut=cut)


def _earlier(one: str, other: str, entries: Sequence[Entry]) -> str:
    """The ref that stands first in the request before the cut. A digest that the cut itself made does not."""
    return next((entry.ref for entry in entries if entry.ref in (one, other)), one or other)


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


def preview(admitted: Admitted, limits: CutLimits, bench: BuildContext, *, keep_last: int) -> CutPlan:
    """The plan of a cut, told and not taken."""
    before = bench.scale.total(admitted.tokens)
    plan = planned(admitted.entries, limits, bench, keep_last=keep_last, forced=before > limits.room)
    fitted = _cut(plan, admitted, "planned")
    after = {entry.ref: entry for entry in fitted.entries}
    lowered = []
    for entry in plan.entries:
        now = after.get(entry.ref)
        if now is not None and now.sent != entry.sent:
            freed = entry.tokens - now.tokens
            lowered.append(Lowered(ref=entry.ref, was=entry.form, now=now.form, tokens=freed, why=now.why))
    new_digests = [
        "\n".join(filter(None, (each.text, each.notes))) for each in plan.folds if each.cut == plan.number
    ]
    return CutPlan(
        before=before,
        after=bench.scale.total(fitted.tokens),
        fits=plan.total <= limits.room,
        floor=plan.exhausted,
        lowered=tuple(lowered),
        digests=tuple(new_digests),
    )


def unfitted(admitted: Admitted, bench: BuildContext) -> CutResult:
    """What was admitted, as it is."""
    folds = bench.ledger.folds
    return CutResult(entries=admitted.entries, tokens=admitted.tokens, lines=admitted.lines, folds=folds)


def _cut(plan: CutInProgress, admitted: Admitted, reason: str) -> CutResult:
    bench = plan.bench
    entries = plan.result
    lines = admitted.lines | plan.lines
    if bench.options.binding != "none":
        entries, loose = unbound(entries, plan.entries, binding=bench.options.binding, cut=plan.number)
        # who speaks after a digest decides how it ends, and that thinking may have been the one
        laid = lay_folds(_without_digests(entries), plan.folds, wording=bench.wording)
        entries = settled(laid, bench.scale, prefix=bench.root)
        lines |= loose
    tokens = sum(entry.tokens for entry in entries)
    changed = plan.changed()
    cut = Cut(
        number=plan.number,
        reason=reason,
        before=plan.before,
        after=bench.scale.total(tokens),
        first=changed[0].ref if changed else "",
        lowered=len(changed),
        floor=plan.exhausted,
    )
    return _promoted(
        CutResult(entries=entries, tokens=tokens, lines=lines, folds=plan.folds, cut=cut), cut, bench
    )


def _promoted(fitted: CutResult, cut: Cut, bench: BuildContext) -> CutResult:
    """At a cut, sections that came later take their place in the system text."""
    later = tuple(
        entry.ref
        for entry in fitted.entries
        if entry.form is Form.FULL
        and entry.layer is not Layer.SYSTEM
        and is_section(bench.kinds, entry.segment)
    )
    if not later:
        return fitted
    promoted = bench.ledger.promoted + later
    entries = settled(system_first(fitted.entries, promoted, bench.kinds), bench.scale, prefix=bench.root)
    tokens = sum(entry.tokens for entry in entries)
    cut = msgspec.structs.replace(cut, after=bench.scale.total(tokens))
    return msgspec.structs.replace(fitted, entries=entries, tokens=tokens, promoted=later, cut=cut)


def planned(
    entries: list[Entry], limits: CutLimits, bench: BuildContext, *, keep_last: int, forced: bool
) -> CutInProgress:
    """What a cut would do, without doing it. `forced`: the room is exceeded, so wishes yield."""
    plan = CutInProgress(entries, limits, bench)
    if held(entries, bench.options.binding):
        if forced:
            plan.take(_results_behind_thinking, keep=0, goal=limits.room)
        plan.exhausted = True
        return plan
    plan.omit_repeated_system_text()
    plan.take(bench.options.order, keep=keep_last, goal=limits.target)
    if not forced:
        return plan
    enough = max(limits.target, min(limits.trigger, plan.before) - limits.least)
    keep = keep_last
    while plan.total > enough and keep > 0:
        keep //= 2
        plan.take(bench.options.order, keep=keep, goal=enough)
    freed_too_little = plan.before - plan.total < limits.least
    if plan.total > (enough if freed_too_little else limits.room):
        plan.take(last_resort, keep=0, goal=enough, digest_limit=limits.room)
    if plan.total > limits.room:
        plan.take(last_resort, keep=0, goal=enough, digest_limit=0)
    if plan.total > limits.room:
        _lower_to_the_floor(plan)
    return plan


def _lower_to_the_floor(plan: CutInProgress) -> None:
    """What is left when all history is one line each: results of the last step, and fewer digests."""
    room = plan.limits.room
    plan.take(last_results, keep=0, goal=room, digest_limit=0)
    plan.exhausted = True
    if plan.total > room:
        plan.join_folds()
    if plan.total > room:  # a few stubs can be smaller than their digest
        plan.chosen.clear()
        plan.take(last_resort, keep=0, goal=room, digest_limit=0)
    if plan.total > room:
        plan.join_folds()


def _results_behind_thinking(view: OrderView) -> Iterator[Batch]:
    """Results of the last step that no thinking follows: to shorten them changes no thinking's past."""
    last_thought = max((i for i, entry in enumerate(view.entries) if thinks(entry)), default=-1)
    for batch in last_results(view):
        if all(move.at > last_thought for move in batch):
            yield batch


class CutInProgress:
    """A cut in the making: each stage takes moves from an order until its goal, then the digests are written.

    `now` are the entries with the moves taken so far, `chosen` the positions that go under digests,
    `result` and `total` the request as it would be sent.
    """

    def __init__(
        self,
        entries: list[Entry],
        limits: CutLimits,
        bench: BuildContext,
        *,
        mergeable: frozenset[Ref] | None = None,
    ) -> None:
        """`mergeable`: only digests of nothing but these may be written anew; None is all."""
        self.entries = entries
        self.mergeable = mergeable
        self.limits = limits
        self.bench = bench
        self.number = len(bench.ledger.cuts) + 1
        self.before = bench.scale.total(sum(entry.tokens for entry in entries))
        self.current = current_turn(entries)
        self.now = list(entries)
        self.chosen: set[int] = set()
        self.lines: dict[Ref, LedgerLine] = {}
        self.folds = bench.ledger.folds
        self.result = entries
        self.total = self.before
        self.exhausted = False

    def omit_repeated_system_text(self) -> None:
        """Of system text in the conversation that is said again and again, only the newest must stand."""
        for at in repeated_system_text(self.view(keep=0)):
            self._lower(Move(at, Form.OMITTED, SAME_TEXT_LATER))

    def take(self, order: Order, *, keep: int, goal: int, digest_limit: int | None = None) -> None:
        """Moves from `order`, sparing the last `keep` steps, until the request is at most `goal` tokens.

        A `digest_limit` bounds each digest in characters, even the words that it would keep; 0 leaves one
        line.

        What digests will cost is a guess until they are written, so the moves may go on after that; the
        guess is made a few times only, then the order is taken to its end.
        """
        moves = order(self.view(keep))
        tokens = sum(entry.tokens for entry in self.result)
        digest_size = extra(self.limits.room) if digest_limit is None else digest_limit
        guess = (digest_size + 120) // 3
        for attempt in range(6):
            left = self._take_moves(
                moves, tokens, goal, guess=guess, to_the_end=attempt == 5, tight=digest_limit is not None
            )
            self._compose(digest_limit)
            if self.total <= goal or not left:
                break
            tokens = sum(entry.tokens for entry in self.result)
            guess = (self.total - goal) // 2
        self.exhausted = self.total > goal

    def _take_moves(
        self, moves: Iterator[Batch], tokens: int, goal: int, *, guess: int, to_the_end: bool, tight: bool
    ) -> bool:
        """Applies moves until the guess is at most `goal`; says whether moves may be left."""
        for batch in moves:
            for move in batch:
                tokens -= self._choose(move, tight=tight) if move.fold else self._lower(move)
            if to_the_end:
                continue
            if self.bench.scale.total(tokens + (guess if self.chosen else 0)) <= goal:
                return True
        return False

    def view(self, keep: int) -> OrderView:
        return OrderView(
            entries=self.now,
            kinds=self.bench.kinds,
            untouchable=untouchable(self.now) | self.chosen,
            spared=spared(self.now, keep),
            current=self.current,
        )

    def changed(self) -> list[Entry]:
        """Entries of the request as it was that now differ or are gone."""
        now = {entry.ref: entry.sent for entry in self.result}
        return [
            entry
            for entry in self.entries
            if entry.form is not Form.OMITTED and now.get(entry.ref) != entry.sent
        ]

    def _choose(self, move: Move, *, tight: bool) -> int:
        """Marks one entry for a digest; the user's own words are kept there, so they free nothing."""
        entry = self.now[move.at]
        if move.at in self.chosen:
            return 0
        self.chosen.add(move.at)
        return entry.tokens if tight or not goes_last(entry, self.bench.kinds) else 0

    def _lower(self, move: Move) -> int:
        """Takes one move if it shrinks the request; returns the tokens that it frees."""
        entry = self.now[move.at]
        if entry.form <= move.form or move.at in self.chosen:
            return 0
        lowered, limit = shortened(
            entry, move.form, move.why, wording=self.bench.wording, scale=self.bench.scale, limit=move.limit
        )
        gain = self.bench.scale.body(entry) - (self.bench.scale.body(lowered) if lowered.parts else 0)
        if gain < (move.form is not Form.OMITTED):
            return 0
        self.now[move.at] = msgspec.structs.replace(lowered, tokens=max(entry.tokens - gain, 0))
        # A line of a cut is undone when its entry is the prompt or the last step again, after a rewind. What
        # is lowered while it stands there has to stay so when the request is sent once more.
        cut = 0 if move.at in self.current else self.number
        self.lines[entry.ref] = line(lowered, wording=self.bench.wording, limit=limit, cut=cut)
        return gain

    def _compose(self, digest_limit: int | None) -> None:
        """Writes the digests, and weighs the request as it would be sent."""
        new_folds: list[Fold] = []
        for run in runs(self.now, frozenset(self.chosen)):
            new_fold = self._fold([self.now[i] for i in run], digest_limit)
            if new_fold is not None:
                new_folds.append(new_fold)
        self.folds = self.bench.ledger.folds + tuple(new_folds)
        self._weigh()
        self._merge(digest_limit)

    def _fold(self, run: Sequence[Entry], digest_limit: int | None) -> Fold | None:
        """A digest of the run that is smaller than it and keeps the user's words, if there is one."""
        whole = sum(entry.tokens for entry in run)
        for share in (1, 4):
            new_fold = self._digest(run, digest_limit, share)
            if self._pays(new_fold, run, whole, digest_limit):
                return new_fold
        return None

    def _digest(self, run: Sequence[Entry], digest_limit: int | None, share: int = 1) -> Fold:
        """A digest whose notes have their size in tokens too: dense scripts take several a character."""
        spare = (extra(self.limits.room) if digest_limit is None else digest_limit) // share
        bounded = digest_limit is not None
        most = max(spare // 2, 1)
        for _ in range(3):
            new_fold = fold(run, spare=spare, cut=self.number, kinds=self.bench.kinds, bounded=bounded)
            tokens = self.bench.scale.counter.count(new_fold.notes) if new_fold.notes else 0
            if bounded:
                tokens += self.bench.scale.counter.count(new_fold.text)
            if tokens <= most or not spare:
                break
            spare = spare * most // tokens
        return new_fold

    def _pays(self, new_fold: Fold, run: Sequence[Entry], whole: int, digest_limit: int | None) -> bool:
        if cost(new_fold, run, self.bench.scale, self.bench.wording) >= whole:
            return False
        kept = [entry.segment for entry in run if goes_last(entry, self.bench.kinds)]
        return digest_limit is not None or keeps(new_fold.text, kept)

    def _merge(self, digest_limit: int | None) -> None:
        """Digests side by side become one where they take too much of the room, or nothing else helps.

        Digests of an older version are written anew: their voices were not apart.
        """
        sizes = self._digest_sizes()
        stale = {each.key for each in self.folds if each.version < FOLD_VERSION}
        crowded = digest_limit is not None or sum(sizes.values()) > self.limits.room // DIGEST_SHARE
        if not crowded and not stale:
            return
        by_ref = {entry.ref: entry for entry in self.result}
        for group in neighbours(self.result, self._mergeable_folds(), least=1):
            outdated = any(each.key in stale for each in group)
            if not outdated and (not crowded or (digest_limit is None and len(group) < 2)):
                continue
            run = [by_ref[ref] for each in group for ref in each.covers if ref in by_ref]
            merged = self._digest(run, digest_limit)
            whole = sum(sizes.get(each.key, 0) for each in group)
            if outdated or self._pays(merged, run, whole, digest_limit):
                self._replace_folds(group, merged)
        self._weigh()

    def join_folds(self) -> None:
        """Digests become one with what stands between them, where that is lowered as far as it can be."""
        owner = {ref: each for each in self.folds for ref in each.covers}
        sizes = self._digest_sizes()
        for run in self._foldable_runs(owner):
            group = list(
                {owner[entry.ref].key: owner[entry.ref] for entry in run if entry.ref in owner}.values()
            )
            loose = [entry for entry in run if entry.ref not in owner]
            if not group or not loose:
                continue
            merged = self._digest(run, 0)
            whole = sum(sizes.get(each.key, 0) for each in group) + sum(entry.tokens for entry in loose)
            if self._pays(merged, run, whole, 0):
                self._replace_folds(group, merged)
        self._weigh()

    def _foldable_runs(self, owner: Mapping[Ref, Fold]) -> list[list[Entry]]:
        """Entries in a row that are folded, or that this cut would fold."""
        entries = [(i, entry) for i, entry in enumerate(self.now) if not is_digest(entry)]
        chosen = frozenset(
            at for at, (i, entry) in enumerate(entries) if i in self.chosen or entry.ref in owner
        )
        alone = [entry for _, entry in entries]
        return [[alone[at] for at in run] for run in runs(alone, chosen)]

    def _mergeable_folds(self) -> Sequence[Fold]:
        if self.mergeable is None:
            return self.folds
        return [each for each in self.folds if self.mergeable.issuperset(each.covers)]

    def _digest_sizes(self) -> dict[str, int]:
        """Tokens of each fold's digest as it stands in the request, by the key of the fold."""
        sizes: dict[str, int] = {}
        for entry in self.result:
            if is_digest(entry):
                key = entry.segment.key.partition("!")[0]
                sizes[key] = sizes.get(key, 0) + entry.tokens
        return sizes

    def _replace_folds(self, group: Sequence[Fold], merged: Fold) -> None:
        gone = {each.key for each in group}
        first = self.folds.index(group[0])
        rest = [each for each in self.folds if each.key not in gone]
        known = tuple(key for each in group for key in (each.key, *each.merged) if key != merged.key)
        merged = msgspec.structs.replace(merged, merged=known)
        self.folds = (*rest[:first], merged, *rest[first:])

    def _weigh(self) -> None:
        laid = lay_folds(_without_digests(self.now), self.folds, wording=self.bench.wording)
        self.result = settled(laid, self.bench.scale, prefix=self.bench.root)
        self.total = self.bench.scale.total(sum(entry.tokens for entry in self.result))


def _without_digests(entries: Sequence[Entry]) -> list[Entry]:
    """The entries of the log, and lamina's own that stand for no fold."""
    return [entry for entry in entries if not is_digest(entry)]


def untouchable(entries: Sequence[Entry]) -> frozenset[int]:
    """Positions that no cut may touch: system text, what is pinned, the prompt, the last step."""
    current = current_turn(entries)
    return frozenset(i for i, entry in enumerate(entries) if _is_untouchable(entry, current=i in current))


def _is_untouchable(entry: Entry, *, current: bool) -> bool:
    if entry.role is Role.SYSTEM or entry.layer is Layer.SYSTEM or entry.segment.pinned:
        return True
    return current and entry.layer in (Layer.PROMPT, Layer.STEPS) and entry.segment.kind != "digest"


def spared(entries: Sequence[Entry], keep: int) -> frozenset[int]:
    """Positions that a cut would rather spare: the last `keep` assistant steps, what came with the prompt."""
    if keep == 0:
        return frozenset()
    spoken = sorted(
        {
            entry.step
            for entry in entries
            if entry.segment.role is Role.ASSISTANT
            and entry.form is not Form.OMITTED
            and entry.segment.kind != "digest"
        }
    )
    first = spoken[-keep] if len(spoken) >= keep else 0
    attached_now = {entry.content for entry in entries if entry.why in (IN_THE_LIBRARY, NAMED_IN_THE_LIST)}
    return frozenset(
        i
        for i, entry in enumerate(entries)
        if entry.step >= first or entry.layer is Layer.TURN or entry.content in attached_now
    )


def exceeded(
    entries: Sequence[Entry], floor: int, room: int, bench: BuildContext, *, reason: str = ""
) -> BudgetExceeded:
    """The error that names the floor and the largest of what it is made of."""
    rows = [(e.segment.key or e.ref, e.tokens) for e in entries if e.form is not Form.OMITTED]
    rows += bench.scale.head_rows()
    rows.sort(key=lambda row: -row[1])
    return BudgetExceeded(floor=floor, room=room, segments=tuple(rows[:8]), reason=reason)
