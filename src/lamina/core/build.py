"""The whole pipeline on one page: a log goes in, a fitted and explained request comes out.

    log ──repair──▶ repaired ──arrange──▶ draft ──admit──▶ draft ──cut──▶ draft ──seal──▶ envelope
        calls and    pieces    layers,          what is new       if one          the laws,
        results pair           words, ledger    and too large     is due          the next ledger

A build is pure and synchronous. The same arguments give the same bytes, whatever the clock, the process or
the machine. A `BuildMemo` makes the next build of a growing log cheaper and never changes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from lamina.core import cut_target
from lamina.core.admit import admit
from lamina.core.arrange import arrange_log
from lamina.core.cut import CutPlan, cut_to_fit, preview_cut
from lamina.core.cut_target import CutLimits
from lamina.core.draft import Draft
from lamina.core.envelope import Envelope, mark_unlowered, seal
from lamina.core.epochs import find_change
from lamina.core.history_window import release_window
from lamina.core.ledger import load_ledger
from lamina.core.memo import BuildMemo, OneRequestMemo, count_standing
from lamina.core.options import DEFAULT_OPTIONS, BuildContext, Options, Phase, not_measured
from lamina.core.remind import remind
from lamina.core.scale import begins_with_assistant, make_scale
from lamina.core.system_text import promote_later_sections
from lamina.core.tokens import ESTIMATE, Counter
from lamina.core.tool_definitions import chain_root
from lamina.core.tool_rules import choose_whole
from lamina.core.values import Budget, Ledger, RequestHead, Segment, SentMark

NO_HEAD = RequestHead()
EMPTY_LEDGER = Ledger()


def build(
    log: Sequence[Segment],
    *,
    head: RequestHead = NO_HEAD,
    budget: Budget | None = None,
    ledger: Ledger | Mapping[str, Any] | None = None,
    counter: Counter = ESTIMATE,
    idle: float = 0,
    options: Options = DEFAULT_OPTIONS,
    memo: BuildMemo | None = None,
    phase: Phase = not_measured,
) -> Envelope:
    """The request for this log: valid, within the budget, continuing the last one, and explained.

    `ledger` is the one that the last build returned, or what its `dump` gave, and `idle` the seconds since
    then. Without a budget the log is repaired and arranged, and nothing is lowered that the ledger does not
    lower already. `phase` measures "library" and "compaction".
    """
    log = tuple(log)
    memo = memo or OneRequestMemo()
    context = _make_context(
        log,
        head=head,
        ledger=load_ledger(ledger),
        counter=counter,
        options=options,
        memo=memo,
        idle=idle,
        phase=phase,
    )

    checkpoint = memo.checkpoint_for(log, context)
    draft = arrange_log(log, context, checkpoint)
    limits = None
    if budget is not None:
        draft = _hold_whole(draft, budget, context)
        draft = msgspec.structs.replace(draft, standing_tokens=count_standing(draft, checkpoint))
        # What rules of tools hold counts as fixed, and a target is chosen above what is fixed.
        limits = _find_limits(budget, draft, context)
        draft = _note_budget(draft, budget, context)
    draft = admit(draft, limits, context)
    change = find_change(draft, context)
    if change:
        draft = promote_later_sections(draft, context)
    if _may_need_cut(draft, limits, context):
        with phase("compaction"):
            draft = _note_working(cut_to_fit(draft, limits, context), limits)
    # After the cut: what it has lowered may be quoted, and a reminder causes no cut of its own request.
    if limits is not None and options.remind:
        draft = remind(draft, limits.room, context)
    envelope = seal(draft, context, limits=limits, change=change)

    memo.keep(draft, envelope, context)
    return envelope


def mark_log(
    log: Sequence[Segment], *, head: RequestHead, counter: Counter, options: Options, memo: BuildMemo
) -> SentMark:
    """The mark that a request with this log would have left, had it been built and sent in full.

    The next request needs it if this one was sent without a build. Of the memo only counts are used.
    """
    log = tuple(log)
    context = _make_context(
        log, head=head, ledger=EMPTY_LEDGER, counter=counter, options=options, memo=memo, idle=0
    )
    return mark_unlowered(arrange_log(log, context), context)


def plan_cut(
    log: Sequence[Segment],
    *,
    budget: Budget,
    head: RequestHead = NO_HEAD,
    ledger: Ledger | Mapping[str, Any] | None = None,
    counter: Counter = ESTIMATE,
    options: Options = DEFAULT_OPTIONS,
) -> CutPlan:
    """What a cut for want of room would do to this log now, whether or not one is due. Nothing is changed.

    The plan does not include what a window over history would take out.
    """
    log = tuple(log)
    context = _make_context(
        log, head=head, ledger=load_ledger(ledger), counter=counter, options=options, memo=BuildMemo(), idle=0
    )
    draft = _hold_whole(arrange_log(log, context), budget, context)
    limits = _find_limits(budget, draft, context)
    draft = admit(draft, limits, context)
    if find_change(draft, context):
        draft = promote_later_sections(draft, context)
    return preview_cut(draft, limits, context)


def _make_context(
    log: tuple[Segment, ...],
    *,
    head: RequestHead,
    ledger: Ledger,
    counter: Counter,
    options: Options,
    memo: BuildMemo,
    idle: float,
    phase: Phase = not_measured,
) -> BuildContext:
    """What all stages share. The opening of the wire format counts only if the assistant speaks first."""
    released = ledger
    if ledger.cuts:
        released = release_window(ledger, options.window)
    opening = ""
    if begins_with_assistant(log):
        opening = options.opening
    return BuildContext(
        options=options,
        head=head,
        scale=make_scale(counter, head, ledger.calibration, memo.counts(counter), opening=opening),
        ledger=released,
        root=chain_root(head, options.salt),
        find_reader=partial(memo.reader_for, options.kinds),
        find_passages=memo.passages_for,
        cold=idle > options.rates.ttl,
        widened=released is not ledger,
        phase=phase,
    )


def _find_limits(budget: Budget, draft: Draft, context: BuildContext) -> CutLimits:
    """The limits of this request."""
    fixed = cut_target.count_fixed(draft.entries, standing_tokens=draft.standing_tokens)
    if draft.held:
        # No cut can free what the rules of tools hold.
        fixed += sum(entry.tokens for entry in draft.entries if entry.ref in draft.held)
    fixed = context.scale.total(fixed)
    options = context.options
    return cut_target.derive_limits(
        budget, context.head, draft.entries, options.rates, fixed=fixed, prefer=options.prefer
    )


def _hold_whole(draft: Draft, budget: Budget, context: BuildContext) -> Draft:
    """The draft with what the rules of tools hold in this room."""
    rules = context.options.tools
    if not rules:
        return draft
    room = cut_target.find_room(budget, context.head)
    return msgspec.structs.replace(draft, held=choose_whole(draft.entries, rules, room))


def _note_budget(draft: Draft, budget: Budget, context: BuildContext) -> Draft:
    """The draft with a note, if the answer takes an unusual part of the window."""
    note = cut_target.describe_reserve(budget, context.head)
    if not note:
        return draft
    return msgspec.structs.replace(draft, notes=(*draft.notes, note))


def _note_working(draft: Draft, limits: CutLimits | None) -> Draft:
    """The draft with a note, if a cut was made before the window was full."""
    if limits is None or draft.cut is None or limits.working >= limits.room:
        return draft
    note = (
        f"cut above {limits.trigger:,} of {limits.room:,} tokens: to send more of the conversation with each "
        "call costs more than it is worth"
    )
    return msgspec.structs.replace(draft, notes=(*draft.notes, note))


def _may_need_cut(draft: Draft, limits: CutLimits | None, context: BuildContext) -> bool:
    """Whether history is limited to its last messages, or the budget asks for a cut.

    Most requests need none, and are done after `admit`.
    """
    if context.options.window is not None:
        return True
    if limits is None:
        return False
    return limits.ask_for_cut(context.scale.total(draft.tokens), cold=context.cold)
