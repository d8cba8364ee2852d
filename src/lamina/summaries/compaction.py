"""Summaries for a conversation that is kept: when a cut would fold, and when the user asks for one.

A session is known here only by the few things that it must offer. What is recorded is one segment; the
request with it is the session's to build.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from lamina.core.values import Ledger, Segment
from lamina.summaries.summary import USUAL, digested, summarized
from lamina.summaries.values import Bounds, Summarizer, SummaryOutcome, Terms


class SummarizedSession(Protocol):
    """What a summary needs of a session. `terms` are what it builds with; `add` records a segment."""

    @property
    def log(self) -> tuple[Segment, ...]: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def terms(self) -> Terms: ...
    async def add(self, *segments: Segment, key: str = "") -> Any: ...


async def compact(
    session: SummarizedSession,
    write: Summarizer | None = None,
    *,
    instructions: str = "",
    bounds: Bounds = USUAL,
) -> SummaryOutcome:
    """Summarises all that is old, now, and records it: what a user means by /compact.

    `instructions` are the user's, for the model. Without a model, or where its words cannot be used, the
    deterministic digest stands in, and `notes` say why. The steps that a cut spares are spared here too.
    """
    outcome = SummaryOutcome(notes=("there is no model to ask",))
    if write is not None:
        outcome = await summarized(
            session.log,
            write,
            terms=session.terms,
            ledger=session.ledger,
            instructions=instructions,
            everything=True,
            bounds=bounds,
        )
    if outcome.segment is None:
        plain = digested(session.log, terms=session.terms, ledger=session.ledger)
        notes = tuple(dict.fromkeys(outcome.notes + plain.notes))
        outcome = msgspec.structs.replace(plain, asked=outcome.asked, notes=notes)
    return await _recorded(session, outcome)


async def cover_if_due(
    session: SummarizedSession, write: Summarizer, *, coming: Sequence[Segment] = (), bounds: Bounds = USUAL
) -> SummaryOutcome:
    """Before `coming` is added: if a cut would then fold, a model's summary is recorded instead.

    Where it cannot be used nothing is recorded: the cut folds under its digest, and `notes` say why.
    """
    outcome = await summarized(
        session.log, write, terms=session.terms, ledger=session.ledger, coming=coming, bounds=bounds
    )
    return await _recorded(session, outcome)


async def _recorded(session: SummarizedSession, outcome: SummaryOutcome) -> SummaryOutcome:
    if outcome.segment is None:
        return outcome
    notes = {"notes": list(outcome.notes)} if outcome.notes else {}
    said = outcome.segment.meta["summary"] | {"before": outcome.before, "after": outcome.after} | notes
    made = msgspec.structs.replace(outcome.segment, meta={"summary": said})
    await session.add(made)
    return msgspec.structs.replace(outcome, segment=made)
