"""Conversations that are built request by request under every law, each with the ledger of the one before."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from lamina import Budget, BuildMemo, Envelope, Ledger, Options, Segment, build
from lamina.core import CHARS4, audit
from lamina.core.laws import BuildInputs, Case

DEFAULT = Options()


def build_next(
    log: Sequence[Segment],
    before: Envelope | None = None,
    *,
    budget: Budget | None = None,
    options: Options = DEFAULT,
    memo: BuildMemo | None = None,
) -> Envelope:
    """The request for this log after the one `before`, whose ledger went through JSON. Every law holds."""
    ledger = Ledger()
    if before is not None:
        ledger = Ledger.load(json.loads(json.dumps(before.ledger.dump())))
    envelope = build(log, budget=budget, ledger=ledger, counter=CHARS4, options=options, memo=memo)
    inputs = BuildInputs(budget=budget, ledger=ledger)
    case = Case(
        log=tuple(log), envelope=envelope, before=before, counter=CHARS4, options=options, inputs=inputs
    )
    audit(case)
    return envelope


def build_each(
    logs: Iterable[Sequence[Segment]],
    *,
    budget: Budget | None = None,
    options: Options = DEFAULT,
    memo: BuildMemo | None = None,
) -> list[Envelope]:
    """The requests for these logs, one after the other."""
    envelopes: list[Envelope] = []
    before: Envelope | None = None
    for log in logs:
        before = build_next(log, before, budget=budget, options=options, memo=memo)
        envelopes.append(before)
    return envelopes
