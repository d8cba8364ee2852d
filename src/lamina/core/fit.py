"""Lowering forms until the request fits: the one place where a cut is made.

Under the trigger nothing happens. Above it, one pass lowers many segments down to the target, in the
order that `ladder` proposes. The budget is law: the wish to spare the last steps yields to it, and what
cannot be recovered goes only when nothing else is left. The prompt, the last step, pinned segments and
the system text are never touched; if they alone exceed the room, `BudgetExceeded` says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from lamina.core.admit import Admitted
from lamina.core.arrange import system_first
from lamina.core.bench import Bench
from lamina.core.bind import held, unbound
from lamina.core.fold import SHARE as DIGEST_SHARE
from lamina.core.fold import cost, extra, fold, keeps, neighbours, runs
from lamina.core.kinds import row
from lamina.core.ladder import Batch, Move, Order, View, goes_last, last_resort
from lamina.core.ledger import folded as with_folds
from lamina.core.ledger import line, lower
from lamina.core.target import Limits
from lamina.core.values import Cut, Entry, Fold, Form, Layer, Line, Ref, Role
from lamina.core.weigh import settled
from lamina.errors import BudgetExceeded

OPEN_LOOP = (
    "thinking in the open tool loop is bound to what a cut would change; ask for drop_block to allow it"
)


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """Entries that fit, and what the ledger must remember of how."""

    entries: list[Entry]
    tokens: int
    lines: dict[Ref, Line]
    folds: tuple[Fold, ...]
    promoted: tuple[Ref, ...] = ()
    cut: Cut | None = None


def fit(admitted: Admitted, limits: Limits, bench: Bench, *, keep_last: int, cold: bool = False) -> Fitted:
    """Entries within the room. A cut is made when it is due, and waits while it would free too little."""
    entries, before = admitted.entries, bench.scale.total(admitted.tokens)
    stay = unfitted(admitted, bench)
    due = before > limits.trigger or (cold and before - limits.target >= max(limits.least, 1))
    waits = held(entries, bench.options.binding)
    if not due or (waits and before <= limits.room):
        return stay
    plan = planned(entries, limits, bench, keep_last=keep_last, forced=before > limits.room)
    if before <= limits.room and before - plan.total < max(limits.least, 1):
        return stay
    if waits:
        raise exceeded(entries, before, limits.room, bench, reason=OPEN_LOOP)
    if plan.total > limits.room:
        raise exceeded(plan.result, plan.total, limits.room, bench)
    return _cut(plan, admitted, "over the trigger" if before > limits.trigger else "the cache is cold anyway")


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


def preview(admitted: Admitted, limits: Limits, bench: Bench, *, keep_last: int) -> CutPlan:
    """The plan of a cut, told and not taken."""
    before = bench.scale.total(admitted.tokens)
    plan = planned(admitted.entries, limits, bench, keep_last=keep_last, forced=before > limits.room)
    fitted = _cut(plan, admitted, "planned")
    now = {e.ref: e for e in fitted.entries}
    lowered = tuple(
        Lowered(ref=e.ref, was=e.form, now=to.form, tokens=e.tokens - to.tokens, why=to.why)
        for e in plan.entries if (to := now.get(e.ref)) is not None and to.sent != e.sent
    )  # fmt: skip
    new = tuple(fold.text for fold in plan.folds if fold.cut == plan.number)
    return CutPlan(
        before=before, after=bench.scale.total(fitted.tokens), fits=plan.total <= limits.room,
        floor=plan.exhausted, lowered=lowered, digests=new,
    )  # fmt: skip


def unfitted(admitted: Admitted, bench: Bench) -> Fitted:
    """What was admitted, as it is."""
    folds = bench.ledger.folds
    return Fitted(entries=admitted.entries, tokens=admitted.tokens, lines=admitted.lines, folds=folds)


def _cut(plan: Plan, admitted: Admitted, reason: str) -> Fitted:
    bench, entries, lines = plan.bench, plan.result, admitted.lines | plan.lines
    if bench.options.binding != "none":
        entries, loose = unbound(entries, plan.entries, binding=bench.options.binding, cut=plan.number)
        entries, lines = settled(entries, bench.scale, prefix=bench.root), lines | loose
    tokens = sum(e.tokens for e in entries)
    changed = plan.changed()
    cut = Cut(
        number=plan.number, reason=reason, before=plan.before, after=bench.scale.total(tokens),
        first=changed[0].ref if changed else "", lowered=len(changed), floor=plan.exhausted,
    )  # fmt: skip
    return _promoted(
        Fitted(entries=entries, tokens=tokens, lines=lines, folds=plan.folds, cut=cut), cut, bench
    )


def _promoted(fitted: Fitted, cut: Cut, bench: Bench) -> Fitted:
    """At a cut, sections that came later take their place in the system text."""
    later = tuple(
        e.ref for e in fitted.entries
        if e.form is Form.FULL and e.layer is not Layer.SYSTEM and row(bench.kinds, e.segment).section
    )  # fmt: skip
    if not later:
        return fitted
    promoted = bench.ledger.promoted + later
    entries = settled(system_first(fitted.entries, promoted, bench.kinds), bench.scale, prefix=bench.root)
    tokens = sum(e.tokens for e in entries)
    cut = msgspec.structs.replace(cut, after=bench.scale.total(tokens))
    return msgspec.structs.replace(fitted, entries=entries, tokens=tokens, promoted=later, cut=cut)


def planned(entries: list[Entry], limits: Limits, bench: Bench, *, keep_last: int, forced: bool) -> Plan:
    """What a cut would do, without doing it. `forced`: the room is exceeded, so wishes yield."""
    plan = Plan(entries, limits, bench)
    plan.take(bench.options.order, keep=keep_last, goal=limits.target)
    enough = max(limits.target, min(limits.trigger, plan.before) - limits.least)
    keep = keep_last
    while forced and plan.total > enough and keep > 0:
        keep //= 2
        plan.take(bench.options.order, keep=keep, goal=enough)
    shallow = plan.before - plan.total < limits.least
    for size, most in ((limits.room, enough if shallow else limits.room), (0, limits.room)):
        if forced and plan.total > most:
            plan.take(last_resort, keep=0, goal=enough, limit=size)
    if forced and plan.total > limits.room:  # a few stubs can be smaller than their digest
        plan.chosen.clear()
        plan.take(last_resort, keep=0, goal=limits.room, limit=0)
    return plan


class Plan:
    """A cut in the making: each stage takes moves from an order until its goal, then the digests are written.

    `now` are the entries with the moves taken so far, `chosen` the positions that go under digests,
    `result` and `total` the request as it would be sent.
    """

    def __init__(self, entries: list[Entry], limits: Limits, bench: Bench) -> None:
        self.entries, self.limits, self.bench = entries, limits, bench
        self.number = len(bench.ledger.cuts) + 1
        self.before = bench.scale.total(sum(e.tokens for e in entries))
        self.now = list(entries)
        self.chosen: set[int] = set()
        self.lines: dict[Ref, Line] = {}
        self.folds = bench.ledger.folds
        self.result, self.total = entries, self.before
        self.exhausted = False

    def take(self, order: Order, *, keep: int, goal: int, limit: int | None = None) -> None:
        """Moves from `order`, sparing the last `keep` steps, until the request is at most `goal` tokens.

        A `limit` bounds each digest in characters, even the words that it would keep; 0 leaves one line.

        What digests will cost is a guess until they are written, so the moves may go on after that; the
        guess is made a few times only, then the order is taken to its end.
        """
        moves = order(self.view(keep))
        raw = sum(e.tokens for e in self.result)
        guess = ((extra(self.limits.room) if limit is None else limit) + 120) // 3
        for attempt in range(6):
            left = self._take(moves, raw, goal, guess=guess, to_the_end=attempt == 5, tight=limit is not None)
            self._compose(limit)
            if self.total <= goal or not left:
                break
            raw, guess = sum(e.tokens for e in self.result), (self.total - goal) // 2
        self.exhausted = self.total > goal

    def _take(
        self, moves: Iterator[Batch], raw: int, goal: int, *, guess: int, to_the_end: bool, tight: bool
    ) -> bool:
        """Applies moves until the guess is at most `goal`; says whether moves may be left."""
        for batch in moves:
            raw -= sum(self._choose(m, tight=tight) if m.fold else self._lower(m) for m in batch)
            if not to_the_end and self.bench.scale.total(raw + (guess if self.chosen else 0)) <= goal:
                return True
        return False

    def view(self, keep: int) -> View:
        return View(
            entries=self.now, kinds=self.bench.kinds,
            untouchable=untouchable(self.now) | self.chosen, spared=spared(self.now, keep),
        )  # fmt: skip

    def changed(self) -> list[Entry]:
        """Entries of the request as it was that now differ or are gone."""
        now = {e.ref: e.sent for e in self.result}
        return [e for e in self.entries if e.form is not Form.OMITTED and now.get(e.ref) != e.sent]

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
        lowered = lower(entry, move.form, move.why, wording=self.bench.wording, limit=move.limit)
        gain = self.bench.scale.body(entry) - (self.bench.scale.body(lowered) if lowered.parts else 0)
        if gain < (move.form is not Form.OMITTED):
            return 0
        self.now[move.at] = msgspec.structs.replace(lowered, tokens=max(entry.tokens - gain, 0))
        self.lines[entry.ref] = line(lowered, wording=self.bench.wording, limit=move.limit, cut=self.number)
        return gain

    def _compose(self, limit: int | None) -> None:
        """Writes the digests, and weighs the request as it would be sent."""
        made: list[Fold] = []
        for run in runs(self.now, frozenset(self.chosen)):
            made += self._fold([self.now[i] for i in run], limit)
        self.folds = self.bench.ledger.folds + tuple(made)
        self._weigh()
        self._merge(limit)

    def _fold(self, run: Sequence[Entry], limit: int | None) -> list[Fold]:
        """A digest of the run that is smaller than it and keeps the user's words, if there is one."""
        whole = sum(e.tokens for e in run)
        tried = (self._digest(run, limit, share) for share in (1, 4))
        return list(islice((made for made in tried if self._pays(made, run, whole, limit)), 1))

    def _digest(self, run: Sequence[Entry], limit: int | None, share: int = 1) -> Fold:
        spare = (extra(self.limits.room) if limit is None else limit) // share
        return fold(run, spare=spare, cut=self.number, kinds=self.bench.kinds, bounded=limit is not None)

    def _pays(self, made: Fold, run: Sequence[Entry], whole: int, limit: int | None) -> bool:
        if cost(made, run[0], self.bench.scale, self.bench.wording) >= whole:
            return False
        kept = [e.segment for e in run if goes_last(e, self.bench.kinds)]
        return limit is not None or keeps(made.text, kept)

    def _merge(self, limit: int | None) -> None:
        """Digests side by side become one where they take too much of the room, or nothing else helps."""
        digests = {e.ref: e.tokens for e in self.result if e.segment.kind == "digest"}
        if limit is None and sum(digests.values()) <= self.limits.room // DIGEST_SHARE:
            return
        where = {e.ref: e for e in self.result}
        for group in neighbours(self.result, self.folds, least=2 if limit is None else 1):
            run = [where[ref] for f in group for ref in f.covers if ref in where]
            merged = self._digest(run, limit)
            if self._pays(merged, run, sum(digests[Ref(f.key)] for f in group), limit):
                gone = {f.key for f in group}
                first = self.folds.index(group[0])
                rest = [f for f in self.folds if f.key not in gone]
                known = tuple(k for f in group for k in (f.key, *f.merged) if k != merged.key)
                merged = msgspec.structs.replace(merged, merged=known)
                self.folds = (*rest[:first], merged, *rest[first:])
        self._weigh()

    def _weigh(self) -> None:
        plain = [e for e in self.now if e.segment.kind != "digest" or e.segment.origin != "lamina"]
        laid = with_folds(plain, self.folds, wording=self.bench.wording)
        self.result = settled(laid, self.bench.scale, prefix=self.bench.root)
        self.total = self.bench.scale.total(sum(e.tokens for e in self.result))


def untouchable(entries: Sequence[Entry]) -> frozenset[int]:
    """Positions that no cut may touch: the system text, what is pinned, the prompt, the last step."""
    last = max((e.step for e in entries if e.layer is not Layer.SYSTEM), default=0)
    return frozenset(
        i for i, e in enumerate(entries)
        if e.layer in (Layer.SYSTEM, Layer.PROMPT) or e.segment.pinned
        or (e.step == last and e.layer is Layer.STEPS and e.segment.kind != "digest")
    )  # fmt: skip


def spared(entries: Sequence[Entry], keep: int) -> frozenset[int]:
    """Positions that a cut would rather spare: the last `keep` assistant steps, what came with the prompt."""
    if keep == 0:
        return frozenset()
    spoken = sorted({e.step for e in entries if e.role is Role.ASSISTANT and e.form is not Form.OMITTED})
    first = spoken[-keep] if len(spoken) >= keep else 0
    return frozenset(i for i, e in enumerate(entries) if e.step >= first or e.layer is Layer.TURN)


def exceeded(
    entries: Sequence[Entry], floor: int, room: int, bench: Bench, *, reason: str = ""
) -> BudgetExceeded:
    """The error that names the floor and the largest of what it is made of."""
    rows = [(e.segment.key or e.ref, e.tokens) for e in entries if e.form is not Form.OMITTED]
    rows += bench.scale.head_rows()
    rows.sort(key=lambda row: -row[1])
    return BudgetExceeded(floor=floor, room=room, segments=tuple(rows[:8]), reason=reason)
