"""Every call of a session: as it was sent if lamina recorded it, or built again under some settings.

A build is pure, so a request of a recorded session can be made again at any time from its log and the ledger
before it. A session is walked through once, which keeps the ledger before each call and what changed. The
whole envelope of one call is built again when somebody looks at it. Requests that lamina recorded itself are
shown from that record (`sent_requests`).
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from lamina.core.build import build
from lamina.core.envelope import Envelope
from lamina.core.values import Ledger, Segment
from lamina.dialects import DIALECTS
from lamina.errors import BadInput
from lamina.inspector.built_values import BuiltCall, BuiltRequest, BuiltSession
from lamina.inspector.long_sessions import measure_calls
from lamina.inspector.pricing import price_calls
from lamina.inspector.sent_history import SentHistory
from lamina.inspector.sent_requests import SentConversation, SentRequests
from lamina.inspector.sent_sessions import list_sent_calls
from lamina.inspector.sessions import RecordedSession
from lamina.inspector.settings import AS_RECORDED, BuildSettings
from lamina.inspector.walk import SessionWalk, build_log, choose_segments
from lamina.replay.model_calls import CHAT

_KEPT_SESSIONS = 8
"""Sessions, under some settings, that are kept in memory."""

_KEPT_REQUESTS = 6
"""Single requests that are kept in memory."""

_KEPT_HISTORIES = 2
"""Recorded conversations whose segments are remembered by request."""

KEEP_ALL = 'with keep = "all" in its settings, the gateway stores requests as they were sent'
"""What to do if a store does not have the texts."""

MOST_WORK = 150_000
"""Messages that are built for one session, over all of its calls. A longer session is built at some calls."""


class SessionBuilder:
    """Builds sessions and single requests, and keeps the last few of both. One lock guards them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._sessions: OrderedDict[Hashable, BuiltSession] = OrderedDict()
        self._requests: OrderedDict[Hashable, BuiltRequest] = OrderedDict()
        self._histories: OrderedDict[Hashable, SentHistory] = OrderedDict()

    def build(self, session: RecordedSession, settings: BuildSettings) -> BuiltSession:
        key = (session.summary.id, session.version, settings)
        with self._lock:
            built = self._sessions.get(key)
            if built is None:
                built = _build_or_list(session, settings)
            _keep_last(self._sessions, key, built, _KEPT_SESSIONS)
        return built

    def build_call(self, built: BuiltSession, number: int) -> BuiltRequest:
        """One request."""
        return self._keep(built, number, build_call, in_full=False)

    def build_in_full(self, built: BuiltSession, number: int) -> BuiltRequest:
        """One request with nothing lowered."""
        return self._keep(built, number, build_in_full, in_full=True)

    def find_history(self, conversation: SentConversation) -> SentHistory:
        """What is known of the segments of a recorded conversation over time."""
        key = (conversation.name, conversation.record.count)
        with self._lock:
            history = self._histories.get(key)
            if history is None:
                history = SentHistory(conversation)
            _keep_last(self._histories, key, history, _KEPT_HISTORIES)
        return history

    def _keep(
        self,
        built: BuiltSession,
        number: int,
        build_one: Callable[[BuiltSession, int], BuiltRequest],
        *,
        in_full: bool,
    ) -> BuiltRequest:
        key = (built.session.summary.id, built.session.version, built.settings, number, in_full)
        with self._lock:
            request = self._requests.get(key)
            if request is None:
                request = build_one(built, number)
            _keep_last(self._requests, key, request, _KEPT_REQUESTS)
        return request


def _build_or_list(session: RecordedSession, settings: BuildSettings) -> BuiltSession:
    """The session as lamina recorded it, or built under the settings if these ask for anything else."""
    is_as_sent = settings.policy == AS_RECORDED and not settings.pinned and not settings.left_out
    if session.sent is not None and is_as_sent:
        return list_sent_calls(session, session.sent, settings)
    return build_session(session, settings)


def _keep_last(values: OrderedDict[Hashable, Any], key: Hashable, value: object, most: int) -> None:
    values[key] = value
    values.move_to_end(key)
    while len(values) > most:
        values.popitem(last=False)


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
    run = SessionWalk(session, settings)
    conversation = session.conversation
    work = sum(call.end for call in conversation.calls)
    if numbers is None and work > MOST_WORK:
        measured_calls = measure_calls(run)
        if measured_calls is not None:
            return _finish(run, measured_calls)
        numbers = choose_calls(len(conversation.calls), work)
    if numbers is None:
        numbers = range(len(conversation.calls))
    for number in numbers:
        run.send(number, conversation.calls[number])
    return _finish(run, price_calls(run))


def choose_calls(count: int, work: int) -> list[int]:
    """The calls of a long session that are built: evenly spread, with the first and the last one."""
    most = max(count * MOST_WORK // work, 2)
    step = (count - 1) / (most - 1)
    return sorted({round(at * step) for at in range(most)})


def _finish(run: SessionWalk, calls: Sequence[BuiltCall]) -> BuiltSession:
    return BuiltSession(
        session=run.session,
        settings=run.settings,
        rules=run.rules,
        budget=run.budget,
        counter=run.counter,
        head=run.head,
        calls=tuple(calls),
        history={ref: tuple(changes) for ref, changes in run.history.items()},
        arrivals=run.arrivals,
        unrecorded=run.unrecorded,
        skipped=len(run.session.conversation.calls) - len(calls),
    )


def build_call(built: BuiltSession, number: int) -> BuiltRequest:
    """One call: as it was sent, or built again from the ledger before it."""
    call = find_call(built, number)
    sent = _find_sent(built)
    if sent is not None:
        build = SentRequests(sent).read(number)
        return BuiltRequest(envelope=build.envelope or _EMPTY, request=build.request, note=build.note)
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
    call = find_call(built, number)
    sent = _find_sent(built)
    if sent is not None:
        return BuiltRequest(envelope=SentRequests(sent).build_in_full(number) or _EMPTY)
    envelope = build_log(
        read_log(built, call),
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


def _find_sent(built: BuiltSession) -> SentConversation | None:
    """Lamina's record of a session, if the session is shown from it."""
    if built.is_sent:
        return built.session.sent
    return None


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
    """The log before one call."""
    request = built.session.conversation.request(call.call)
    log = DIALECTS[CHAT].wire.parse(request).log
    return choose_segments(log, built.settings)


def _render_chat(built: BuiltSession, envelope: Envelope) -> dict[str, Any]:
    """The request of an envelope, as OpenAI chat."""
    request: dict[str, Any] = {}
    if built.session.conversation.trace.model:
        request["model"] = built.session.conversation.trace.model
    return {**request, **DIALECTS[CHAT].wire.render(envelope)}
