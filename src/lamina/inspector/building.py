"""Builds sessions and single requests, as they were sent, and keeps the last few of both.

Requests that lamina recorded itself are shown from that record (`sent_sessions`, `sent_requests`). Those of
other logs are built from the messages before them (`logged_sessions`).
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from functools import partial

from lamina.core.build import build
from lamina.dialects import DIALECTS
from lamina.errors import BadInput
from lamina.inspector.built_values import BuiltCall, BuiltRequest, BuiltSession, scale_envelope
from lamina.inspector.last_used import LastUsed
from lamina.inspector.logged_sessions import build_in_full, list_logged_calls
from lamina.inspector.recorded_sessions import RecordedSession
from lamina.inspector.sent_conversations import SentConversation
from lamina.inspector.sent_history import SentHistory
from lamina.inspector.sent_requests import SentRequests
from lamina.inspector.sent_sessions import list_sent_calls
from lamina.replay.model_calls import CHAT

_MOST_SESSIONS = 8
"""Sessions, under some rules, that stay in memory."""

_MOST_REQUESTS = 6
"""Single requests that stay in memory."""

_MOST_HISTORIES = 2
"""Recorded conversations whose segments are remembered by request."""

KEEP_ALL = 'with policy.keep = "all", requests and answers are stored as they went'
"""What to do if a store does not have the texts."""


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

    def build(self, session: RecordedSession, rules: str) -> BuiltSession:
        key = (session.summary.id, session.version, rules)
        with self._lock:
            return self._sessions.get_or_make(key, partial(_list_calls, session, rules))

    def build_call(self, built: BuiltSession, number: int) -> BuiltRequest:
        key = (built.session.summary.id, built.session.version, number)
        with self._lock:
            return self._requests.get_or_make(key, partial(build_call, built, number))

    def build_with_body(self, built: BuiltSession, number: int) -> BuiltRequest:
        """One request. Raises BadInput if its body is not kept."""
        built_request = self.build_call(built, number)
        if not built_request.request:
            raise BadInput(f"the body of request {number + 1} is not kept", place="request", hint=KEEP_ALL)
        return built_request

    def find_history(self, conversation: SentConversation) -> SentHistory:
        """The history of the segments of a recorded conversation."""
        key = (conversation.name, conversation.version)
        with self._lock:
            return self._histories.get_or_make(key, partial(SentHistory, conversation))


def _list_calls(session: RecordedSession, rules: str) -> BuiltSession:
    if session.sent is None:
        return list_logged_calls(session, rules)
    return list_sent_calls(session, session.sent, rules)


def build_call(built: BuiltSession, number: int) -> BuiltRequest:
    """One call as it was sent."""
    call = find_call(built, number)
    if built.sent is not None:
        build = SentRequests(built.sent).read(number)
        return BuiltRequest(
            envelope=build.envelope or _EMPTY,
            has_reasons=build.envelope is not None,
            request=build.request,
            note=build.note,
        )
    conversation = built.session.conversation
    chat = DIALECTS[CHAT].wire
    envelope = build_in_full(chat.parse(conversation.request(conversation.calls[number])), built.counter)
    model = {"model": conversation.trace.model} if conversation.trace.model else {}
    scaled = scale_envelope(envelope, call.tokens)
    return BuiltRequest(envelope=scaled, request={**model, **chat.render(envelope)})


_EMPTY = build(())
"""Stands for a request whose body is not kept."""


def find_call(built: BuiltSession, number: int) -> BuiltCall:
    """The call of this number. Raises BadInput for a number that the session does not have."""
    if not 0 <= number < len(built.calls):
        hint = f"the session has requests 0 to {len(built.calls) - 1}"
        raise BadInput(f"there is no request {number}", place="request", hint=hint)
    return built.calls[number]
