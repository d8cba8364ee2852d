"""The whole pipeline: a log goes in, a fitted, explained envelope comes out.

    log ──draft──▶ entries ──admit──▶ entries ──fit──▶ entries ──seal──▶ envelope
          repair, arrange,    what is new      a cut,            the laws,
          ledger, words       and too large    if one is due     the next ledger

Pure and synchronous: the same arguments give the same bytes, whatever the clock, process or machine.
A memo makes the next build of a growing log cheaper and never changes it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.core.admit import admit
from lamina.core.arrange import leaving_tail
from lamina.core.cut import CutPlan, fit, fit_history, fit_rest, preview, unfitted
from lamina.core.cut_target import limits
from lamina.core.envelope import BuildFacts, Envelope, seal
from lamina.core.epochs import HISTORY_CHANGED, SUMMARISED, moved_by, only_summarised
from lamina.core.hashing import root
from lamina.core.ledger_upgrade import upgraded
from lamina.core.memo import Memo
from lamina.core.options import DEFAULT, BuildContext, Options
from lamina.core.scale import begins_with_assistant, scale_for
from lamina.core.tokens import ESTIMATE, Counter
from lamina.core.values import Budget, Cut, Head, Ledger, Segment

NO_HEAD = Head()
EMPTY = Ledger()


def build(
    log: Sequence[Segment],
    *,
    head: Head = NO_HEAD,
    budget: Budget | None = None,
    ledger: Ledger = EMPTY,
    counter: Counter = ESTIMATE,
    idle: float = 0,
    options: Options = DEFAULT,
    memo: Memo | None = None,
) -> Envelope:
    """The request for this log: valid, within the budget, continuing the last one, and explained.

    `ledger` is what the last build returned; `idle` the seconds since then. Without a budget the log is
    repaired and arranged, and nothing is lowered that the ledger does not have.
    """
    log = tuple(log)
    memo = memo or Memo()
    bench = _bench(log, head=head, ledger=ledger, counter=counter, options=options, memo=memo)

    drafted = memo.drafted(log, bench)
    with_whole_ledger = bench
    bench = msgspec.structs.replace(bench, ledger=drafted.ledger)
    tight = limits(budget, head, drafted.entries, options.rates) if budget else None
    admitted = admit(drafted, tight, bench)
    moved = moved_by(admitted, head, bench, reworded=drafted.reworded)
    if moved == HISTORY_CHANGED and only_summarised(log, with_whole_ledger):
        moved = SUMMARISED
    slid = fit_history(admitted, bench)
    fitted = slid or unfitted(admitted, bench)
    if budget and tight:
        keep_last = budget.keep_last
        cold = idle > options.rates.ttl
        if slid:
            fitted = fit_rest(slid, admitted, tight, bench, keep_last=keep_last, cold=cold)
        else:
            fitted = fit(admitted, tight, bench, keep_last=keep_last, cold=cold)

    envelope = Envelope(
        entries=tuple(fitted.entries),
        head=head,
        ledger=bench.ledger,
        account=bench.scale.account(fitted.tokens),
        root=bench.root,
        room=tight.room if tight else None,
        notes=admitted.notes,
        tail=leaving_tail(fitted.entries, options.kinds, options.layout),
    )
    facts = BuildFacts(
        lines=fitted.lines,
        folds=fitted.folds,
        repairs=drafted.repairs,
        promoted=fitted.promoted,
        cut=_named(fitted.cut, moved) if fitted.cut else None,
        moved=moved,
        binds=options.binding != "none",
    )
    known = (0, 0) if fitted.cut else (admitted.known, admitted.known_sent)
    envelope = seal(envelope, facts, known=known)
    memo.keep(drafted, log, envelope.entries, envelope.ledger, bench)
    return envelope


def _named(cut: Cut, moved: str) -> Cut:
    """The cut with its first cause: what the client changed, if it changed something, else the room."""
    return msgspec.structs.replace(cut, reason=moved) if moved else cut


def plan_cut(
    log: Sequence[Segment],
    *,
    budget: Budget,
    head: Head = NO_HEAD,
    ledger: Ledger = EMPTY,
    counter: Counter = ESTIMATE,
    options: Options = DEFAULT,
) -> CutPlan:
    """What a cut for want of room would do to this log now, whether or not one is due; nothing is changed.

    What a window over history would take out besides is not part of it.
    """
    log = tuple(log)
    memo = Memo()
    bench = _bench(log, head=head, ledger=ledger, counter=counter, options=options, memo=memo)
    drafted = memo.drafted(log, bench)
    bench = msgspec.structs.replace(bench, ledger=drafted.ledger)
    tight = limits(budget, head, drafted.entries, options.rates)
    return preview(admit(drafted, tight, bench), tight, bench, keep_last=budget.keep_last)


def _bench(
    log: tuple[Segment, ...],
    *,
    head: Head,
    ledger: Ledger,
    counter: Counter,
    options: Options,
    memo: Memo,
) -> BuildContext:
    opening = options.opening if begins_with_assistant(log) else ""
    scale = scale_for(counter, head, ledger.calibration, memo.counts(counter), opening=opening)
    return BuildContext(
        options=options, scale=scale, ledger=upgraded(ledger, log), root=root(head, options.salt)
    )
