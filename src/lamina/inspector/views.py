"""Shows sessions as plain JSON values: the list of them, and one with all its requests.

Every figure comes from the record, or from the functions behind `explain` and `diff`, so that the page, the
command line and a program agree. The other views are in `request_views`, `segment_views`, `comparisons`,
`alternatives` and `answers`.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any

import msgspec

from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.costs.report import describe_without, find_cost_without
from lamina.costs.savings import compare_settings
from lamina.costs.table import RequestTable
from lamina.errors import BadInput
from lamina.inspector.last_used import LastUsed
from lamina.inspector.recorded_sessions import ListedSession, SessionSummary, read_known
from lamina.inspector.sent_conversations import SentConversation
from lamina.inspector.sent_history import SentHistory
from lamina.inspector.sent_requests import SentRequestBuild, SentRequests
from lamina.inspector.sent_sessions import SentCall, SentSession, list_calls
from lamina.inspector.sessions import Sessions
from lamina.models.facts import AS_OF

Json = dict[str, Any]

MOST_LANES = 40
"""Sub-agents that are drawn under their parent."""

LEAST_SAVED = 0.05
"""The share of a session's cost from which on the picture says what `lamina run` would have saved."""

_MOST_SESSIONS = 8
_MOST_REQUESTS = 6
_MOST_HISTORIES = 2

_NOTHING = build(())
"""Stands for a request whose body is not kept."""


class Inspector:
    """Answers what the page asks. It holds the sessions, and the last few things that were read of them.

    One lock guards what was read. It is held while something is read: a page asks for several views of one
    session at once, and they wait for one reading instead of making it several times.
    """

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self._lock = threading.RLock()
        self._built: LastUsed[Hashable, SentSession] = LastUsed(_MOST_SESSIONS)
        self._requests: LastUsed[Hashable, SentRequestBuild] = LastUsed(_MOST_REQUESTS)
        self._histories: LastUsed[Hashable, SentHistory] = LastUsed(_MOST_HISTORIES)

    def open(self, session_id: str) -> SentSession:
        """A session with its requests."""
        session = self.sessions.get(session_id)
        with self._lock:
            return self._built.get_or_make(
                (session_id, session.sent.version, session.summary), partial(list_calls, session)
            )

    def read(self, opened: SentSession, number: int) -> SentRequestBuild:
        """One request as it was sent."""
        find_call(opened, number)
        key = (opened.session.summary.id, opened.sent.version, number)
        with self._lock:
            return self._requests.get_or_make(key, partial(SentRequests(opened.sent).read, number))

    def find_history(self, conversation: SentConversation) -> SentHistory:
        """The history of the segments of a recorded conversation."""
        with self._lock:
            return self._histories.get_or_make(
                (conversation.name, conversation.version), partial(SentHistory, conversation)
            )


def read_envelope(request: SentRequestBuild) -> Envelope:
    return request.envelope or _NOTHING


def find_call(opened: SentSession, number: int) -> SentCall:
    """The request of this number. Raises BadInput for a number that the session does not have."""
    if not 0 <= number < len(opened.calls):
        hint = f"the session has requests 0 to {len(opened.calls) - 1}"
        raise BadInput(f"there is no request {number}", place="request", hint=hint)
    return opened.calls[number]


def show_sessions(inspector: Inspector, *, rows: int | None = None) -> Json:
    """The newest sessions, or all of them."""
    summaries = inspector.sessions.summaries()
    listed = inspector.sessions.complete(summaries[:rows])
    return {
        "sessions": [msgspec.to_builtins(summary) for summary in listed],
        "more": len(summaries) - len(listed),
        "problems": [msgspec.to_builtins(problem) for problem in inspector.sessions.problems()],
        "prices_as_of": AS_OF,
    }


def show_session(inspector: Inspector, session_id: str) -> Json:
    """One session: every request with its size, its cache and its cost, and what it saved."""
    opened = inspector.open(session_id)
    sent = opened.sent
    relatives = inspector.sessions.list_relatives(opened.session)
    [summary] = inspector.sessions.complete([opened.session.summary])
    return {
        "session": msgspec.to_builtins(summary),
        "rules": opened.rules.name,
        "window": sent.window,
        "calls": [msgspec.to_builtins(call) for call in opened.calls],
        "totals": sum_calls(opened),
        "unrecorded": sent.unrecorded,
        "as_sent": not sent.is_log,
        "relatives": [
            *(_show_relative(each, is_parent=True) for each in relatives.parents[:1]),
            *(_show_relative(each, is_parent=False) for each in relatives.forks),
        ],
        "lanes": [_show_lane(agent) for agent in relatives.agents[:MOST_LANES]],
    }


def _show_relative(summary: SessionSummary, *, is_parent: bool) -> Json:
    return {
        "id": summary.id,
        "name": summary.name,
        "first_words": summary.first_words,
        "is_parent": is_parent,
    }


def _show_lane(session: ListedSession) -> Json:
    """The requests of a sub-agent: when each was sent, and how large it was where that is recorded."""
    calls: list[Json] = []
    for number, (moment, tokens) in enumerate(session.sizes):
        calls.append({"number": number, "at": moment, "tokens": tokens})
    return {
        "id": session.summary.id,
        "name": session.summary.name,
        "first_words": session.summary.first_words,
        "calls": calls,
    }


def sum_calls(opened: SentSession) -> Json:
    """The sums of a session. Money is None if no request has a price, and "at least" if some have none.

    A request whose answer was not recorded is not part of the money: nobody knows what it took. `without` is
    what the same would have cost without lamina, and `without_words` says so, or why it is not known. `could`
    is what the log of a client would have cost with `lamina run`. `largest` is without what is not recorded.
    """
    calls = opened.calls
    table = opened.sent.table
    cost = table.sum_money()
    without = None
    words = ""
    could = None
    if opened.sent.is_log:
        could = _find_cheaper(table)
    else:
        without = find_cost_without(table)
        words = describe_without(table)
    return {
        "calls": len(calls),
        "sent": sum(call.tokens for call in calls),
        "read": sum(call.read for call in calls),
        "written": sum(call.written for call in calls),
        "uncached": sum(call.uncached for call in calls),
        "output": sum(call.output for call in calls),
        "dollars": read_known(cost),
        "is_at_least": bool(cost.reason and cost.least),
        "without": without,
        "without_words": words,
        "could": could,
        "cuts": table.sum("sum(is_cut)"),
        "lost": sum(call.loss is not None and not call.loss.is_cut for call in calls),
        "refused": sum(call.is_refused for call in calls),
        "open": sum(call.is_open for call in calls),
        "largest": max(call.tokens for call in calls) - opened.sent.unrecorded,
        "opens_at": find_dearest(calls),
    }


def _find_cheaper(table: RequestTable) -> float | None:
    """What the log of a client would have cost with `lamina run`, simulated; None if that is hardly less."""
    saving = compare_settings(table)
    if saving is None:
        return None
    [row] = [row for row in saving.rows if row.is_recommended]
    if row.saved < LEAST_SAVED:
        return None
    return row.dollars


def show_alternatives(inspector: Inspector, session_id: str) -> Json:
    """What a session would have cost with each working window of `lamina run`, and what it did cost with it.

    The rows are those that `lamina cost` prints. Only sizes and pauses are simulated, so it takes no time.
    """
    opened = inspector.open(session_id)
    totals = sum_calls(opened)
    paid = None
    if not opened.sent.is_log:
        paid = {name: totals[name] for name in ("dollars", "is_at_least", "cuts")}
    return {"saving": msgspec.to_builtins(compare_settings(opened.sent.table)), "paid": paid}


def find_dearest(calls: Sequence[SentCall]) -> int:
    """The number of the request at which a session opens: where a cache was lost for most, or the dearest.

    A cut is meant, and yet a reader wants to know what it left out: so it comes before any other request.
    """

    def weigh(call: SentCall) -> tuple[float, bool, float]:
        lost = 0.0
        if call.loss is not None:
            lost = call.loss.dollars or 0.0
        return lost, bool(call.cut), call.dollars or 0.0

    return max(calls, key=weigh).number
