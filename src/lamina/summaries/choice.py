"""What a summary should stand for: old steps, oldest first, as many as a cut would want gone.

The core's plan of a cut says whether it would fold at all, and how far. A summary stands for what may be
summarised: never the user's words, system text, what is pinned or cannot be had again. It asks no model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec

from lamina.core.arrange import pairs
from lamina.core.bound_thinking import held
from lamina.core.build import build, plan_cut
from lamina.core.cut import spared, untouchable
from lamina.core.cut_target import limits
from lamina.core.envelope import Envelope
from lamina.core.hashing import handle
from lamina.core.kinds import Kinds, Retention, recoverable, row
from lamina.core.recall import refs
from lamina.core.values import Entry, Form, Layer, Ledger, Ref, Role, Segment, ToolCall, ToolResult
from lamina.summaries.values import Terms

LEAST = 200
"""Tokens below which old steps are not worth a question: the summary names each of them."""


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of the log that a summary would stand for, in order; where there are none, `why`.

    `exactly`: these appearances, and no other content under the same key.
    """

    entries: tuple[Entry, ...] = ()
    why: str = ""
    exactly: bool = False

    @property
    def tokens(self) -> int:
        return sum(entry.tokens for entry in self.entries)

    @property
    def names(self) -> tuple[str, ...]:
        """What the summary covers, each name once."""
        names = (str(entry.ref) if self.exactly else name_of(entry) for entry in self.entries)
        return tuple(dict.fromkeys(names))


def choose(
    log: Sequence[Segment],
    *,
    terms: Terms,
    ledger: Ledger,
    coming: Sequence[Segment] = (),
    everything: bool = False,
) -> Chosen:
    """What to summarise now. `coming` is added next, and counts. `everything`: all that is old, always."""
    if _waits(log):
        return Chosen(why="a call waits for its result, and a summary would stand between them")
    whole = build(
        [*log, *coming], head=terms.head, ledger=ledger, counter=terms.counter, options=terms.options
    )
    goal: int | None = None
    waits = held(whole.entries, terms.options.binding)
    if not everything and not waits:
        folds, why = _would_fold([*log, *coming], whole, terms, ledger)
        if terms.budget is None or why:
            return Chosen(why=why or "there is no budget")
        goal = limits(terms.budget, terms.head, whole.entries, terms.options.rates).target
    if waits:
        return Chosen(why="thinking in the open tool loop is bound to what a summary would change")
    kept = 0 if terms.budget is None else terms.budget.keep_last
    free = _free(whole.entries, {ref for ref, _ in refs(log)}, terms.options.kinds, keep=kept)
    taken = _taken(whole, free, goal=goal, until=0 if everything else folds)
    entries = tuple(whole.entries[i] for i in sorted(_alone(whole.entries, taken)))
    found = Chosen(entries=entries)
    return found if found.tokens >= LEAST else Chosen(why="what is old and may be summarised is too little")


def _waits(log: Sequence[Segment]) -> bool:
    """Whether the model's last calls have no results yet."""
    open_: list[str] = []
    for segment in log:
        for part in segment.parts:
            if isinstance(part, ToolCall):
                open_.append(part.id)
            elif isinstance(part, ToolResult) and part.id in open_:
                open_.remove(part.id)
            elif segment.role is Role.USER:
                open_.clear()  # the user went on without them
    return bool(open_)


def name_of(entry: Entry) -> str:
    """The name by which a summary covers an entry."""
    return entry.segment.key or handle(entry.content)


def _would_fold(log: Sequence[Segment], whole: Envelope, terms: Terms, ledger: Ledger) -> tuple[int, str]:
    """Up to which step a cut would fold, or why there is none."""
    if terms.budget is None:
        return 0, "there is no budget"
    if whole.tokens <= limits(terms.budget, terms.head, whole.entries).trigger:
        return 0, "no cut is due"
    plan = plan_cut(
        log, budget=terms.budget, head=terms.head, ledger=ledger, counter=terms.counter, options=terms.options
    )
    gone = {each.ref for each in plan.lowered if each.now is Form.OMITTED and "fold" in each.why}
    if not gone:
        return 0, "a cut would fold nothing"
    return max(entry.step for entry in whole.entries if entry.ref in gone), ""


def _free(entries: Sequence[Entry], logged: set[Ref], kinds: Kinds, *, keep: int) -> set[int]:
    blocked = untouchable(entries) | spared(entries, keep)
    return {
        i
        for i, entry in enumerate(entries)
        if i not in blocked and entry.ref in logged and _may_be_summarised(entry, kinds)
    }


def _may_be_summarised(entry: Entry, kinds: Kinds) -> bool:
    kind = row(kinds, entry.segment)
    return (
        entry.form is not Form.OMITTED
        and entry.layer not in (Layer.SYSTEM, Layer.LIBRARY)
        and recoverable(kinds, entry.segment)
        and kind.retention is not Retention.CRITICAL
    )


def _in_pairs(entries: Sequence[Entry], taken: Iterable[int]) -> set[int]:
    """Without the calls whose results stay, and the results whose calls stay."""
    left = set(taken)
    for call, result in pairs(entries):
        if (call in left) != (result in left):
            left -= {call, result}
    return left


def _taken(whole: Envelope, free: set[int], *, goal: int | None, until: int) -> set[int]:
    """Whole steps, oldest first: those up to `until`, then more until what is left is at most `goal`."""
    taken: set[int] = set()
    left = whole.tokens
    for step, group in groupby(sorted(free), key=lambda i: whole.entries[i].step):
        if goal is not None and step > until and left <= goal:
            break
        mine = list(group)
        taken.update(mine)
        left -= sum(whole.entries[i].tokens for i in mine) * 3 // 4  # a summary takes some of it
    return taken


def _alone(entries: Sequence[Entry], taken: set[int]) -> set[int]:
    """Without those that share their name with one that stays: a name covers all that answer to it."""
    while True:
        stay = {name_of(e) for i, e in enumerate(entries) if i not in taken and e.form is not Form.OMITTED}
        left = _in_pairs(entries, (i for i in taken if name_of(entries[i]) not in stay))
        if left == taken:
            return taken
        taken = left
