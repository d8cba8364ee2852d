"""Records summaries for a session: when a cut would fold, and when the user asks for one (`/compact`).

This module knows only the few things of a session that `SummarizedSession` lists. It records one segment, and
the session builds the next request with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from lamina.core.values import Ledger, Segment
from lamina.summaries.summary import USUAL, summarize, summarize_by_digest
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
    """Summarise everything that is old, now, and record the summary: what a user means by /compact.

    `instructions` are the user's, for the model. Without a model, or if its text cannot be used, the
    deterministic digest is recorded instead, and `notes` say why. The steps that a cut spares stay in full.
    """
    outcome = SummaryOutcome(notes=("there is no model to ask",))
    if write is not None:
        outcome = await summarize(
            session.log,
            write,
            terms=session.terms,
            ledger=session.ledger,
            instructions=instructions,
            everything=True,
            bounds=bounds,
        )
    if outcome.segment is None:
        digest = summarize_by_digest(session.log, terms=session.terms, ledger=session.ledger)
        notes = tuple(dict.fromkeys(outcome.notes + digest.notes))
        outcome = msgspec.structs.replace(digest, asked=outcome.asked, notes=notes)
    return await _record_summary(session, outcome)


async def cover_if_due(
    session: SummarizedSession, write: Summarizer, *, coming: Sequence[Segment] = (), bounds: Bounds = USUAL
) -> SummaryOutcome:
    """Record a model's summary if a cut would fold once `coming` is added. Call it before that.

    If the summary cannot be used, nothing is recorded: the cut folds under its digest, and `notes` say why.
    """
    outcome = await summarize(
        session.log, write, terms=session.terms, ledger=session.ledger, coming=coming, bounds=bounds
    )
    return await _record_summary(session, outcome)


async def _record_summary(session: SummarizedSession, outcome: SummaryOutcome) -> SummaryOutcome:
    """Add the summary to the session, with its sizes and notes in its `meta`."""
    if outcome.segment is None:
        return outcome
    description = outcome.segment.meta["summary"] | {"before": outcome.before, "after": outcome.after}
    if outcome.notes:
        description["notes"] = list(outcome.notes)
    summary = msgspec.structs.replace(outcome.segment, meta={"summary": description})
    await session.add(summary)
    return msgspec.structs.replace(outcome, segment=summary)
