"""The whole pipeline on one page: a log goes in, a fitted and explained request comes out.

    log ──repair──▶ repaired ──arrange──▶ draft ──admit──▶ draft ──cut──▶ draft ──seal──▶ envelope
        calls and    pieces    layers,          what is new       if one          the laws,
        results pair           words, ledger    and too large     is due          the next ledger

A build is pure and synchronous. The same arguments give the same bytes, whatever the clock, the process or
the machine. A memo makes the next build of a growing log cheaper and never changes it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.core import cut_target
from lamina.core.admit import admit
from lamina.core.arrange import arrange_log, draft_log, repair_log
from lamina.core.cut import CutPlan, cut_to_fit, preview_cut
from lamina.core.cut_target import CutLimits
from lamina.core.draft import Draft
from lamina.core.envelope import Envelope, find_change, seal
from lamina.core.hashing import chain_root
from lamina.core.ledger import upgrade_ledger
from lamina.core.memo import Memo
from lamina.core.options import DEFAULT_OPTIONS, BuildContext, Options
from lamina.core.tokens import ESTIMATE, Counter, begins_with_assistant, make_scale
from lamina.core.values import LEDGER_VERSION, Budget, Head, Ledger, Segment

NO_HEAD = Head()
EMPTY_LEDGER = Ledger()


def build(
    log: Sequence[Segment],
    *,
    head: Head = NO_HEAD,
    budget: Budget | None = None,
    ledger: Ledger = EMPTY_LEDGER,
    counter: Counter = ESTIMATE,
    idle: float = 0,
    options: Options = DEFAULT_OPTIONS,
    memo: Memo | None = None,
) -> Envelope:
    """The request for this log: valid, within the budget, continuing the last one, and explained.

    `ledger` is the one that the last build returned, and `idle` the seconds since then. Without a budget the
    log is repaired and arranged, and nothing is lowered that the ledger does not lower already.
    """
    log = tuple(log)
    memo = memo or Memo()
    context = _make_context(
        log, head=head, ledger=ledger, counter=counter, options=options, memo=memo, idle=idle
    )

    repaired = repair_log(log, context, memo.checkpoint_for(log, context))
    draft = arrange_log(repaired, context)
    limits = None
    if budget is not None:
        limits = _find_limits(budget, draft, context)
        draft = _note_reserve(draft, budget, context)
    draft = admit(draft, limits, context)
    change = find_change(draft, context)
    if _may_need_cut(draft, limits, context):
        draft = cut_to_fit(draft, limits, context)
    envelope = seal(draft, context, limits=limits, change=change)

    memo.keep(draft, envelope, context)
    return envelope


def plan_cut(
    log: Sequence[Segment],
    *,
    budget: Budget,
    head: Head = NO_HEAD,
    ledger: Ledger = EMPTY_LEDGER,
    counter: Counter = ESTIMATE,
    options: Options = DEFAULT_OPTIONS,
) -> CutPlan:
    """What a cut for want of room would do to this log now, whether or not one is due. Nothing is changed.

    The plan does not include what a window over history would take out.
    """
    log = tuple(log)
    context = _make_context(
        log, head=head, ledger=ledger, counter=counter, options=options, memo=Memo(), idle=0
    )
    draft = draft_log(log, context)
    limits = _find_limits(budget, draft, context)
    draft = admit(draft, limits, context)
    return preview_cut(draft, limits, context)


def _make_context(
    log: tuple[Segment, ...],
    *,
    head: Head,
    ledger: Ledger,
    counter: Counter,
    options: Options,
    memo: Memo,
    idle: float,
) -> BuildContext:
    """What all stages share. The opening of the wire format counts only if the assistant speaks first."""
    if ledger.version != LEDGER_VERSION:
        ledger = upgrade_ledger(ledger, log)
    opening = ""
    if begins_with_assistant(log):
        opening = options.opening
    return BuildContext(
        options=options,
        head=head,
        scale=make_scale(counter, head, ledger.calibration, memo.counts(counter), opening=opening),
        ledger=ledger,
        root=chain_root(head, options.salt),
        cold=idle > options.rates.ttl,
    )


def _find_limits(budget: Budget, draft: Draft, context: BuildContext) -> CutLimits:
    """The budget in tokens, for this request."""
    fixed = context.scale.total(cut_target.count_fixed(draft.entries))
    return cut_target.derive_limits(budget, context.head, draft.entries, context.options.rates, fixed=fixed)


def _note_reserve(draft: Draft, budget: Budget, context: BuildContext) -> Draft:
    """The draft with a note if the answer takes an unusual part of the window."""
    note = cut_target.describe_reserve(budget, context.head)
    if not note:
        return draft
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
