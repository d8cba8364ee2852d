"""Summaries by a model: written once, judged, and recorded as a segment that is sent in place of older ones.

    outcome = await summarized(log, write, terms=terms, ledger=ledger)   # when a cut would fold
    outcome = await compact(session, write, instructions="keep the numbers")   # when the user says so
    await session.ask(prompt, attach=files, condense=Condense(write=write))    # when a turn brings too much

Read `summary` first. If no text is good enough, the deterministic digest takes its place, and a note says
why. Nothing here knows a provider: a summarizer is any async function from `Question` to text.
"""

from __future__ import annotations

from lamina.summaries.choice import CoveredEntries, choose
from lamina.summaries.judge import RequiredFacts, collect_facts, find_problems
from lamina.summaries.summary import SummarizedSession, compact, cover_if_due, summarize, summarize_by_digest
from lamina.summaries.turn_attachments import Condense, condense_attachments, with_summary
from lamina.summaries.values import Bounds, Question, Summarizer, SummaryOutcome, Terms

__all__ = [
    "Bounds",
    "Condense",
    "CoveredEntries",
    "Question",
    "RequiredFacts",
    "SummarizedSession",
    "Summarizer",
    "SummaryOutcome",
    "Terms",
    "choose",
    "collect_facts",
    "compact",
    "condense_attachments",
    "cover_if_due",
    "find_problems",
    "summarize",
    "summarize_by_digest",
    "with_summary",
]
