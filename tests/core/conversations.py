"""Conversations for the tests of the core, and how they are built: request by request, under every law."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from lamina import Budget, BuildMemo, Envelope, Ledger, Options, Segment, build
from lamina.core import CHARS4, Counter, audit, text_of
from lamina.core.laws import BuildInputs, Case
from lamina.core.tokens import Framing
from lamina.segments import call, result

DEFAULT = Options()

LETTERS = Counter(name="letters", count=len, framing=Framing(name="none", message=0, tool=0))
"""One token a character, so that a text can be made one token longer."""


def read_file(path: str, text: str, number: int, *, pinned: bool = False) -> list[Segment]:
    """One step of an agent: a call and its result, whose key is `r0`, `r1` and so on."""
    return [
        call("read_file", {"path": path}, id=f"c{number}", joins=False, pinned=pinned),
        result(text, id=f"c{number}", name="read_file", key=f"r{number}", pinned=pinned),
    ]


def sent_text(envelope: Envelope) -> str:
    """All text of a request."""
    return "\n".join(text_of(entry.parts) for entry in envelope.sent)


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
