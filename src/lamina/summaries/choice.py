"""Chooses what a summary covers: old steps, oldest first, as many as a cut would fold.

The core's plan of a cut says whether it would fold at all, and how far. A summary never covers the user's
words, system text, or segments that are pinned or cannot be recovered. No model is asked here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import msgspec

from lamina.core.bound_thinking import is_held_by_thinking
from lamina.core.build import plan_cut
from lamina.core.cut_progress import find_spared, find_untouchable
from lamina.core.cut_target import NOTHING_SPARED, derive_limits, find_trigger, spare_steps
from lamina.core.entries import pair_calls
from lamina.core.envelope import Envelope
from lamina.core.hashing import handle
from lamina.core.kinds import Kinds, Retention, kind_of, recoverable
from lamina.core.recall import list_refs
from lamina.core.turns import current_turn
from lamina.core.values import Budget, Entry, Form, Layer, Ledger, Ref, Role, Segment, ToolCall, ToolResult
from lamina.summaries.values import Terms, build_log

LEAST = 200
"""Fewer tokens than this are not worth a question, since the summary names each covered segment."""


class CoveredEntries(msgspec.Struct, frozen=True, kw_only=True):
    """The entries that a summary would cover, in order. If there are none, `why` says why.

    `exactly`: it covers these entries by their refs, and no other content under the same key.
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
        if self.exactly:
            names = [str(entry.ref) for entry in self.entries]
        else:
            names = [name_of(entry) for entry in self.entries]
        return tuple(dict.fromkeys(names))


def choose(
    log: Sequence[Segment],
    *,
    terms: Terms,
    ledger: Ledger,
    coming: Sequence[Segment] = (),
    everything: bool = False,
) -> CoveredEntries:
    """Choose the entries that a summary should cover now: those that the next cut would fold.

    `coming` is added to the log next, and counts. `everything`: all that is old, whether a cut is due or not.
    """
    if _has_open_calls(log):
        return CoveredEntries(why="a call waits for its result, and a summary would stand between them")
    whole_log = [*log, *coming]
    envelope = build_log(whole_log, terms, ledger)
    if is_held_by_thinking(envelope.entries, terms.options.binding):
        return CoveredEntries(why="thinking in the open tool loop is bound to what a summary would change")
    goal: int | None = None
    last_step = 0
    if not everything:
        if terms.budget is None:
            return CoveredEntries(why="there is no budget")
        last_step, reason = _find_last_folded_step(whole_log, envelope, terms.budget, terms, ledger)
        if reason:
            return CoveredEntries(why=reason)
        goal = derive_limits(
            terms.budget,
            terms.head,
            envelope.entries,
            terms.options.rates,
            prefer=terms.options.prefer,
        ).target
    free = _list_free(envelope.entries, {ref for ref, _ in list_refs(log)}, terms)
    taken = _take_steps(envelope, free, goal=goal, last_step=last_step)
    taken = _drop_shared_names(envelope.entries, taken)
    chosen = CoveredEntries(entries=tuple(envelope.entries[index] for index in sorted(taken)))
    if chosen.tokens < LEAST:
        return CoveredEntries(why="what is old and may be summarised is too little")
    return chosen


def name_of(entry: Entry) -> str:
    """The name by which a summary covers an entry."""
    return entry.segment.key or handle(entry.content)


def _has_open_calls(log: Sequence[Segment]) -> bool:
    """Whether the model's last calls have no results yet.

    Call, result, call has one open call. After "go on" of the user it has none: nobody waits for it.
    """
    open_ids: list[str] = []
    for segment in log:
        for part in segment.parts:
            if isinstance(part, ToolCall):
                open_ids.append(part.id)
            elif isinstance(part, ToolResult) and part.id in open_ids:
                open_ids.remove(part.id)
            elif segment.role is Role.USER:
                open_ids.clear()  # the user went on without them
    return bool(open_ids)


def _find_last_folded_step(
    log: Sequence[Segment], envelope: Envelope, budget: Budget, terms: Terms, ledger: Ledger
) -> tuple[int, str]:
    """The last step that a cut would fold, or the reason why it would fold none."""
    if envelope.tokens <= find_trigger(budget, terms.head):
        return 0, "no cut is due"
    # a plan that is not carried out: it says which steps the cut would fold
    plan = plan_cut(
        log, budget=budget, head=terms.head, ledger=ledger, counter=terms.counter, options=terms.options
    )
    folded: set[Ref] = set()
    for lowering in plan.lowered:
        if lowering.now is Form.OMITTED and "fold" in lowering.why:
            folded.add(lowering.ref)
    if not folded:
        return 0, "a cut would fold nothing"
    return max(entry.step for entry in envelope.entries if entry.ref in folded), ""


def _list_free(entries: Sequence[Entry], logged: set[Ref], terms: Terms) -> set[int]:
    """The indices of entries that a summary may cover. `logged` are the refs of the log."""
    sparing = NOTHING_SPARED
    if terms.budget is not None:
        # A summary can be asked for long before the window is full.
        room = min(terms.budget.window, sum(entry.tokens for entry in entries))
        sparing = spare_steps(terms.budget, room)
    # what a cut would spare, a summary spares too
    current = current_turn(entries)
    blocked = find_untouchable(entries, current) | find_spared(entries, sparing, current)
    free: set[int] = set()
    for index, entry in enumerate(entries):
        if index in blocked or entry.ref not in logged:
            continue
        if _may_be_summarised(entry, terms.options.kinds):
            free.add(index)
    return free


def _may_be_summarised(entry: Entry, kinds: Kinds) -> bool:
    """Whether the kind of an entry allows that a summary is sent in its place.

    System text and the library stay. So does what cannot be had back, and what is critical.
    """
    if entry.form is Form.OMITTED or entry.layer in (Layer.SYSTEM, Layer.LIBRARY):
        return False
    if kind_of(kinds, entry.segment).retention is Retention.CRITICAL:
        return False
    return recoverable(kinds, entry.segment)


def _take_steps(envelope: Envelope, free: set[int], *, goal: int | None, last_step: int) -> set[int]:
    """Whole steps, oldest first: those up to `last_step`, then more until `goal` is reached.

    Of steps with 100 tokens each, a quarter of every step is left for the summary.
    """
    taken: set[int] = set()
    tokens_left = envelope.tokens
    for step, group in groupby(sorted(free), key=lambda index: envelope.entries[index].step):
        if goal is not None and step > last_step and tokens_left <= goal:
            break
        indices = list(group)
        taken.update(indices)
        step_tokens = sum(envelope.entries[index].tokens for index in indices)
        tokens_left -= step_tokens * 3 // 4  # the summary takes some of it
    return taken


def _drop_shared_names(entries: Sequence[Entry], taken: set[int]) -> set[int]:
    """Drop entries that share their name with one that stays, since a name covers all that have it."""
    names = {index: name_of(entry) for index, entry in enumerate(entries) if entry.form is not Form.OMITTED}
    while True:
        staying_names = {names[index] for index in names.keys() - taken}
        unshared = {index for index in taken if names[index] not in staying_names}
        # dropping one may split a call from its result; dropping both may leave more names shared, so it is
        # repeated until nothing changes
        remaining = _drop_split_pairs(entries, unshared)
        if remaining == taken:
            return taken
        taken = remaining


def _drop_split_pairs(entries: Sequence[Entry], taken: set[int]) -> set[int]:
    """Drop calls whose results stay, and results whose calls stay."""
    remaining = set(taken)
    for call, result in pair_calls(entries):
        if (call in remaining) != (result in remaining):
            remaining -= {call, result}
    return remaining
