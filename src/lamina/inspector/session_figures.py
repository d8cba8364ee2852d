"""Measures what each session cost, for the page across all sessions.

A session that has not changed is not measured again.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import msgspec

from lamina.errors import LaminaError
from lamina.inspector.progress import report_steps
from lamina.inspector.recorded_sessions import RecordedSession, SessionSummary
from lamina.inspector.sent_conversations import SentConversation
from lamina.inspector.sessions import Sessions
from lamina.replay.across import SessionFigures
from lamina.replay.model_calls import read_conversation
from lamina.replay.recorded_usage import sum_recorded_usage
from lamina.replay.traces.own_answers import SeenAnswers, digest_answers, select_own
from lamina.replay.traces.recorded_conversations import name_client
from lamina.replay.values import Reported, Trace


class _MeasuredSession(NamedTuple):
    """The figures of a session, what it looked like then, and which of its answers were copies."""

    summary: SessionSummary
    answers: dict[int, bytes]
    copied: frozenset[int]
    figures: SessionFigures | None


class FiguresOfSessions:
    """State: the figures of each session as it was when it was last looked at."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._measured: dict[str, _MeasuredSession] = {}

    def collect(self, sessions: Sessions) -> list[SessionFigures]:
        """The figures of all sessions, the oldest first: a copied answer counts where it came first."""
        summaries = sorted(sessions.summaries(), key=lambda summary: (summary.began or 0.0, summary.id))
        collected: list[SessionFigures] = []
        seen = SeenAnswers()
        for summary in report_steps(summaries, "reading sessions"):
            figures = self._measure(sessions, summary, seen)
            if figures is not None:
                collected.append(figures)
        return collected

    def _measure(
        self, sessions: Sessions, summary: SessionSummary, seen: SeenAnswers
    ) -> SessionFigures | None:
        """The figures of one session; None if it cannot be read, or has nothing of its own."""
        with self._lock:
            measured = self._measured.get(summary.id)
        if measured is not None and measured.summary != summary:
            measured = None  # the session has grown
        if measured is not None:
            copied = seen.add(measured.answers)
            # Which answers are copies depends on the sessions before this one, and these may have changed.
            if copied == measured.copied:
                return measured.figures
        try:
            session = sessions.get(summary.id)
        except LaminaError:
            return None
        answers: dict[int, bytes] = {}
        if session.sent is None:  # a record has no ids of answers, and its history takes time to read
            answers = digest_answers(session.conversation.trace)
        if measured is None:
            copied = seen.add(answers)
        figures = measure_session(session, copied)
        with self._lock:
            self._measured[summary.id] = _MeasuredSession(summary, answers, copied, figures)
        return figures


def measure_session(session: RecordedSession, copied: frozenset[int] = frozenset()) -> SessionFigures | None:
    """The figures of one session, without answers that are copies; None if it has no others."""
    summary = session.summary
    if session.sent is not None:
        return SessionFigures(
            id=summary.id,
            reported=_report_sent(session, session.sent),
            cuts=summary.cuts,
        )
    conversation = session.conversation
    if copied:
        own_part = select_own(conversation.trace, copied)
        if not isinstance(own_part, Trace):
            return None
        conversation = read_conversation(own_part)
    reported = sum_recorded_usage(conversation.trace)
    if not reported.calls:  # nothing was reported: only the number of requests is known
        reported = msgspec.structs.replace(reported, calls=len(conversation.calls))
    return SessionFigures(
        id=summary.id,
        reported=_name(reported, summary),
        cuts=summary.cuts,
        has_requests=not copied,
    )


def _report_sent(session: RecordedSession, sent: SentConversation) -> Reported:
    """What was reported of a conversation that lamina recorded, request by request."""
    summary = session.summary
    reported = sum_recorded_usage(
        Trace(
            id=summary.name,
            place=summary.place,
            dialect=summary.dialect,
            items=[],
            source=summary.source,
            model=summary.model,
            used=sent.read_usages(),
            under_lamina=True,
            client=name_client(sent.name, sent.state),
            user=sent.read_user(),
        )
    )
    lost = [msgspec.structs.replace(loss, call=number + 1) for number, loss in sent.find_losses().items()]
    dollars = summary.dollars
    if summary.is_at_least:
        dollars = None
    reported = msgspec.structs.replace(reported, dollars=dollars, lost=tuple(lost))
    return _name(reported, summary)


def _name(reported: Reported, summary: SessionSummary) -> Reported:
    """With the words by which the list of sessions names it."""
    began = reported.began
    if began is None:
        began = summary.began
    return msgspec.structs.replace(
        reported,
        title=summary.first_words or summary.name,
        began=began,
    )
