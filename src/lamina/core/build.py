"""The whole pipeline: a log goes in, a fitted, explained envelope comes out.

    log ─ draft ─▶ entries ─ admit ─▶ ─ fit ─▶ ─ seal ─▶ envelope
          repair, order, place,  what is new   a cut,     the laws,
          ledger, words          and too large  if due    the next ledger

Pure and synchronous: the same arguments give the same bytes, whatever the clock, process or machine.
A memo makes the next build of a growing log cheaper and never changes it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.core.admit import admit, unsent
from lamina.core.arrange import system_first
from lamina.core.bench import DEFAULT, Bench, Options
from lamina.core.bind import rebound
from lamina.core.envelope import Envelope, Facts, prefix_at, seal
from lamina.core.fit import Fitted, fit, unfitted
from lamina.core.hashing import root
from lamina.core.kinds import row
from lamina.core.memo import Drafted, Memo
from lamina.core.target import limits
from lamina.core.tokens import ESTIMATE, Counter
from lamina.core.values import Budget, Form, Head, Layer, Ledger, Ref, Segment
from lamina.core.weigh import scale_for, settled

NO_HEAD = Head()
EMPTY = Ledger()
SHELVED = "attachments moved into the library"


def build(
    log: Sequence[Segment], *, head: Head = NO_HEAD, budget: Budget | None = None, ledger: Ledger = EMPTY,
    counter: Counter = ESTIMATE, idle: float = 0, options: Options = DEFAULT, memo: Memo | None = None,
) -> Envelope:  # fmt: skip
    """The request for this log: valid, within the budget, continuing the last one, and explained.

    `ledger` is what the last build returned; `idle` the seconds since then. Without a budget the log is
    repaired and arranged, and nothing is lowered that the ledger does not have.
    """
    log, memo = tuple(log), memo or Memo()
    scale = scale_for(counter, head, ledger.calibration, memo.counts(counter))
    bench = Bench(options=options, scale=scale, ledger=ledger, root=root(head, options.salt))

    drafted = _bound(memo.drafted(log, bench), bench)
    start = unsent(drafted.entries, ledger.mark, start=drafted.known, sent=drafted.known_sent)
    tight = limits(budget, head, drafted.entries) if budget else None
    admitted = admit(drafted.entries, drafted.tokens, tight, start, bench)
    fitted = unfitted(admitted, bench)
    if budget and tight:
        cold = idle > options.rates.ttl
        fitted = fit(admitted, tight, bench, keep_last=budget.keep_last, cold=cold)

    fitted, promoted = _promoted(fitted, bench)
    known = 0 if fitted.lines or fitted.cut else drafted.known
    envelope = seal(
        Envelope(
            entries=tuple(fitted.entries), head=head, ledger=ledger, account=scale.account(fitted.tokens),
            root=bench.root, room=tight.room if tight else None, notes=admitted.notes,
        ),
        Facts(
            lines=drafted.lines | fitted.lines, folds=fitted.folds, repairs=drafted.repairs, promoted=promoted,
            cut=fitted.cut, binds=options.binding != "none", reason=SHELVED if options.layout.library == "hoisted" else "",
        ),
        known=known, known_sent=drafted.known_sent if known else 0,
    )  # fmt: skip
    memo.keep(drafted, log, envelope.entries, envelope.ledger, bench)
    return envelope


def _bound(drafted: Drafted, bench: Bench) -> Drafted:
    """Without thinking whose past has changed since it was sent."""
    if bench.options.binding == "none":
        return drafted
    last, entries = bench.ledger.mark, drafted.entries
    continues = last is None or prefix_at(entries, last.sent, bench.root) == last.prefix
    entries, lines = rebound(entries, bench.ledger, root=bench.root, continues=continues)
    if not lines:
        return drafted
    entries = settled(entries, bench.scale, prefix=bench.root)
    tokens = sum(e.tokens for e in entries)
    return msgspec.structs.replace(
        drafted, entries=entries, tokens=tokens, lines=drafted.lines | lines, known=0
    )


def _promoted(fitted: Fitted, bench: Bench) -> tuple[Fitted, tuple[Ref, ...]]:
    """At a cut, sections that came later take their place in the system text."""
    if fitted.cut is None:
        return fitted, ()
    later = tuple(
        e.ref for e in fitted.entries
        if e.form is Form.FULL and e.layer is not Layer.SYSTEM and row(bench.kinds, e.segment).section
    )  # fmt: skip
    if not later:
        return fitted, ()
    ledger = msgspec.structs.replace(bench.ledger, promoted=bench.ledger.promoted + later)
    entries = settled(system_first(fitted.entries, ledger, bench.kinds), bench.scale, prefix=bench.root)
    tokens = sum(e.tokens for e in entries)
    cut = msgspec.structs.replace(fitted.cut, after=bench.scale.total(tokens))
    return msgspec.structs.replace(fitted, entries=entries, tokens=tokens, cut=cut), later
