"""Builds the calls of a session: as they were sent if lamina recorded them, or again under some settings.

A build is pure, so a request of a recorded session can be made again at any time from its log and the ledger
before it. One walk through the session (`walk`) keeps the ledger before each call, and what changed at it.
The whole envelope of one call is built again when somebody looks at it. Requests that lamina recorded itself
are shown from that record (`sent_requests`).
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any

from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.core.values import Ledger, Segment
from lamina.dialects import DIALECTS
from lamina.errors import BadInput
from lamina.inspector.built_values import BuildSettings, BuiltCall, BuiltRequest, BuiltSession
from lamina.inspector.last_used import LastUsed
from lamina.inspector.long_sessions import measure_calls
from lamina.inspector.recorded_sessions import RecordedSession
from lamina.inspector.sent_conversations import SentConversation
from lamina.inspector.sent_history import SentHistory
from lamina.inspector.sent_requests import SentRequests
from lamina.inspector.sent_sessions import list_sent_calls
from lamina.inspector.walk import SessionWalk, build_log, price_calls
from lamina.replay.model_calls import CHAT

_MOST_SESSIONS = 8
"""Sessions, under some settings, that stay in memory."""

_MOST_REQUESTS = 6
"""Single requests that stay in memory."""

_MOST_HISTORIES = 2
"""Recorded conversations whose segments are remembered by request."""

KEEP_ALL = 'with keep = "all" in its settings, the gateway stores requests as they were sent'
"""What to do if a store does not have the texts."""

MOST_WORK = 150_000
"""Messages that are built for one session, over all of its calls. A longer session is built at some calls."""


class SessionBuilder:
    """Builds sessions and single requests, and keeps the last few of both.

    One lock guards them. It is held while a session is built: a page asks for several views of one session
    at once, and they wait for one build instead of making it several times.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._sessions: LastUsed[Hashable, BuiltSession] = LastUsed(_MOST_SESSIONS)
        self._requests: LastUsed[Hashable, BuiltRequest] = LastUsed(_MOST_REQUESTS)
        self._histories: LastUsed[Hashable, SentHistory] = LastUsed(_MOST_HISTORIES)

    def build(self, session: RecordedSession, settings: BuildSettings) -> BuiltSession:
        key = (session.summary.id, session.version, settings)
        with self._lock:
            return self._sessions.get_or_make(key, partial(_build_or_list, session, settings))

    def build_call(self, built: BuiltSession, number: int) -> BuiltRequest:
        key = (*_name_session(built), number)
        with self._lock:
            return self._requests.get_or_make(key, partial(build_call, built, number))

    def build_with_body(self, built: BuiltSession, number: int) -> BuiltRequest:
        """One request. Raises BadInput if its body is not kept."""
        built_request = self.build_call(built, number)
        if not built_request.request:
            raise BadInput(f"the body of request {number} is not kept", place="request", hint=KEEP_ALL)
        return built_request

    def build_in_full(self, built: BuiltSession, number: int) -> BuiltRequest:
        """One request with nothing lowered."""
        key = (*_name_session(built), number, "in full")
        with self._lock:
            return self._requests.get_or_make(key, partial(build_in_full, built, number))

    def find_history(self, conversation: SentConversation) -> SentHistory:
        """The history of the segments of a recorded conversation."""
        key = (conversation.name, conversation.version)
        with self._lock:
            return self._histories.get_or_make(key, partial(SentHistory, conversation))


def _name_session(built: BuiltSession) -> tuple[Hashable, ...]:
    return (built.session.summary.id, built.session.version, built.settings)


def _build_or_list(session: RecordedSession, settings: BuildSettings) -> BuiltSession:
    """The session as lamina recorded it, or built under the settings if these ask for anything else."""
    if session.sent is None or settings.changes_requests:
        return build_session(session, settings)
    return list_sent_calls(session, session.sent, settings)


def build_session(
    session: RecordedSession, settings: BuildSettings, *, numbers: Sequence[int] | None = None
) -> BuiltSession:
    """Every call of the session under these settings; with `numbers`, only these calls.

    A session of thousands of calls is measured as a whole if it is shown as it was recorded, and built at
    some of its calls otherwise: building all of them takes a time that grows with the square of its length.
    """
    if not session.conversation.calls:
        raise BadInput(
            "the texts of this session are not kept, so it cannot be built under other settings",
            place="policy",
            hint=KEEP_ALL,
        )
    walk = SessionWalk(session, settings)
    calls = session.conversation.calls
    work = sum(call.end for call in calls)
    if numbers is None and work > MOST_WORK:
        measured_calls = measure_calls(walk)
        if measured_calls is not None:
            return _finish(walk, measured_calls)
        numbers = choose_calls(len(calls), work)
    if numbers is None:
        numbers = range(len(calls))
    for number in numbers:
        walk.send(number, calls[number])
    return _finish(walk, price_calls(walk))


def choose_calls(count: int, work: int) -> list[int]:
    """The calls of a long session that are built: evenly spread, with the first and the last one."""
    most = max(count * MOST_WORK // work, 2)
    step = (count - 1) / (most - 1)
    return sorted({round(at * step) for at in range(most)})


def _finish(walk: SessionWalk, calls: Sequence[BuiltCall]) -> BuiltSession:
    return BuiltSession(
        session=walk.session,
        settings=walk.settings,
        rules=walk.rules,
        budget=walk.budget,
        counter=walk.counter,
        head=walk.head,
        calls=tuple(calls),
        history={ref: tuple(changes) for ref, changes in walk.history.items()},
        arrivals=walk.arrivals,
        unrecorded=walk.unrecorded,
        skipped=len(walk.session.conversation.calls) - len(calls),
    )


def build_call(built: BuiltSession, number: int) -> BuiltRequest:
    """One call: as it was sent, or built again from the ledger before it."""
    call = find_call(built, number)
    if built.sent is not None:
        build = SentRequests(built.sent).read(number)
        return BuiltRequest(
            envelope=build.envelope or _EMPTY,
            has_reasons=build.envelope is not None,
            request=build.request,
            note=build.note,
        )
    envelope = build_log(
        read_log(built, call),
        head=built.head,
        budget=built.budget,
        ledger=call.ledger,
        counter=built.counter,
        rules=built.rules,
        idle=call.idle,
    )
    return BuiltRequest(envelope=envelope, request=_render_chat(built, envelope))


def build_in_full(built: BuiltSession, number: int) -> BuiltRequest:
    """The same call with nothing lowered: it says how large everything was that is left out."""
    envelope = build_log(
        read_log(built, find_call(built, number)),
        head=built.head,
        budget=None,
        ledger=Ledger(),
        counter=built.counter,
        rules=built.rules,
        idle=0,
    )
    return BuiltRequest(envelope=envelope)


_EMPTY = build(())
"""Stands for a request whose body is not kept."""


def find_call(built: BuiltSession, number: int) -> BuiltCall:
    """The call of this number. Of a long session, only some calls may be built.

    Raises BadInput for a number that the session does not have, and for a call that was not built.
    """
    at = bisect_left(built.calls, number, key=lambda call: call.number)
    if at < len(built.calls) and built.calls[at].number == number:
        return built.calls[at]
    last = len(built.calls) + built.skipped - 1
    hint = f"the session has requests 0 to {last}"
    if 0 <= number <= last:
        hint = "the session is long, so that only some of its requests were built: choose one of these"
    raise BadInput(f"there is no request {number}", place="request", hint=hint)


def read_log(built: BuiltSession, call: BuiltCall) -> tuple[Segment, ...]:
    request = built.session.conversation.request(call.call)
    return DIALECTS[CHAT].wire.parse(request).log


def _render_chat(built: BuiltSession, envelope: Envelope) -> dict[str, Any]:
    """The request of an envelope, as OpenAI chat."""
    request: dict[str, Any] = {}
    if built.session.conversation.trace.model:
        request["model"] = built.session.conversation.trace.model
    return {**request, **DIALECTS[CHAT].wire.render(envelope)}
