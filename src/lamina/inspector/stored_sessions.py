"""The recorded conversations of a store, for the inspector: a list of all, and each in full if it is opened.

A store may hold gigabytes. So each conversation is read once for its line in the list, and again when
somebody opens it; the last few stay in memory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from functools import cache, partial
from typing import Any, Protocol, TypeVar

from lamina.conversations.costs import sum_calls_cost
from lamina.conversations.record import ConversationRecord, RecordedCall
from lamina.conversations.store import (
    ConversationState,
    conversation_place,
    conversation_workspace,
    decode_state,
)
from lamina.errors import BadInput, LaminaError
from lamina.fitting.recalls import read_turns
from lamina.inspector.first_words import find_first_words
from lamina.inspector.losses import find_losses
from lamina.inspector.recent_values import RecentValues
from lamina.inspector.recorded_sessions import RecordedSession, SessionSummary, StoredSession, make_id
from lamina.inspector.sent_conversations import SentConversation
from lamina.replay.model_calls import RecordedConversation, read_conversation
from lamina.replay.traces.recorded_conversations import (
    SOURCE,
    find_last_request,
    make_trace,
    read_came,
)
from lamina.replay.values import Trace, UnreadableLine
from lamina.stores.paging import every_conversation
from lamina.stores.port import Store

_MOST_SESSIONS = 4
"""Conversations that stay in memory."""

_Value = TypeVar("_Value")


class AskStore(Protocol):
    """Does something with a store, from a thread that has no event loop, and waits for it."""

    def __call__(self, operation: Callable[[Store], Awaitable[_Value]], /) -> _Value: ...


class StoredSessions:
    """The recorded conversations of one workspace. It is a source of sessions for the inspector.

    With `only`, no other conversation is shown. A live page asks often, so the store is not looked at again
    within `pause` seconds.
    """

    def __init__(self, ask: AskStore, workspace: str, *, only: str = "", pause: float = 1.0) -> None:
        self._ask = ask
        self._workspace = workspace
        self._only = only
        self._pause = pause
        self._looked_at = -math.inf
        self._counts: dict[str, int] = {}
        self._lines: dict[str, tuple[int, StoredSession | UnreadableLine]] = {}
        self._loaded: RecentValues[str, RecordedSession] = RecentValues(_MOST_SESSIONS)

    def state(self) -> dict[str, int]:
        """The number of records of each conversation."""
        if time.monotonic() - self._looked_at > self._pause:
            self._counts = self._ask(self._count_records)
            self._looked_at = time.monotonic()
        return self._counts

    def read(self) -> list[StoredSession | UnreadableLine]:
        """A line for each conversation. Those that have not grown since the last time are not read again."""
        counts = self.state()
        lines: dict[str, tuple[int, StoredSession | UnreadableLine]] = {}
        for name, count in counts.items():
            line = self._lines.get(name)
            if line is None or line[0] != count:
                line = (count, self._read_line(name))
            lines[name] = line
        self._lines = lines
        return [
            line for _, line in lines.values() if not isinstance(line, UnreadableLine) or not line.foreign
        ]

    def load(self, name: str) -> RecordedSession:
        """One conversation in full. Raises BadInput if it was deleted meanwhile."""
        session = self._loaded.get(name)
        if session is not None and session.version == self.state().get(name):
            return session
        conversation = self._read_conversation(name)
        if conversation is None:
            raise BadInput(
                f"there is no conversation {name!r}", place="session", hint="it was deleted just now"
            )
        session = make_session(conversation)
        self._loaded.add(name, session)
        return session

    def _read_line(self, name: str) -> StoredSession | UnreadableLine:
        try:
            conversation = self._read_conversation(name)
        except LaminaError as error:
            return UnreadableLine(place=name, reason=str(error))
        if conversation is None:
            return UnreadableLine(place=name, reason="no request of it is recorded", foreign=True)
        if conversation.state.door == "session" and not conversation.has_bodies:
            # A session keeps its texts in its log, which is shown as a session of its own.
            return UnreadableLine(place=name, reason="its log is shown instead", foreign=True)
        return make_line(conversation, partial(self.load, name))

    def _read_conversation(self, name: str) -> SentConversation | None:
        """A conversation as it is now; None if nothing of it is recorded."""
        state, record = self._ask(partial(self._read_stored, name=name))
        if not record.calls:
            return None
        return SentConversation(name, state, record)

    async def _read_stored(self, store: Store, *, name: str) -> tuple[ConversationState, ConversationRecord]:
        """The state and the record of a conversation, both of the same moment."""
        page = await store.read(conversation_place(self._workspace, name))
        state = ConversationState()
        if page.head.state:
            state = decode_state(page.head.state)
        record = ConversationRecord()
        record.read(item.body for item in page.records)
        return state, record

    async def _count_records(self, store: Store) -> dict[str, int]:
        counts: dict[str, int] = {}
        async for head in every_conversation(store, conversation_workspace(self._workspace)):
            if not self._only or head.conversation == self._only:
                counts[head.conversation] = head.count
        return counts


def make_line(conversation: SentConversation, load: Callable[[], RecordedSession]) -> StoredSession:
    """A recorded conversation as a line of the list, which reads the rest when somebody opens it."""
    sizes = [(call.request.at or None, _size_of_call(call) or None) for call in conversation.calls]
    return StoredSession(summary=summarise_sent(conversation), load=load, sizes=tuple(sizes))


def make_session(conversation: SentConversation) -> RecordedSession:
    """A recorded conversation, ready to be shown as it was sent, and to be built under other settings."""
    return RecordedSession(
        summary=summarise_sent(conversation),
        history=cache(partial(_read_history, conversation)),
        sent=conversation,
    )


def _read_history(conversation: SentConversation) -> RecordedConversation:
    """The client's own history, in OpenAI chat. It is empty if the texts are not kept."""
    trace = make_trace(conversation.name, conversation.state, conversation.record)
    empty_trace = Trace(
        id=conversation.name,
        place=conversation.name,
        dialect=conversation.dialect,
        items=[],
        source=SOURCE,
        model=conversation.model,
    )
    if isinstance(trace, UnreadableLine):
        return RecordedConversation(trace=empty_trace, messages=[], tools=[], calls=())
    try:
        return read_conversation(trace)
    except (LaminaError, RecursionError):
        return RecordedConversation(trace=empty_trace, messages=[], tools=[], calls=())


def summarise_sent(conversation: SentConversation) -> SessionSummary:
    """The line of a recorded conversation in the list of sessions."""
    state = conversation.state
    calls = conversation.calls
    request = _read_last_request(conversation)
    sizes = [size for size in map(_size_of_call, calls) if size]
    moments = [call.request.at for call in calls if call.request.at]
    place = f"{calls[-1].request.upstream or state.upstream or state.door or SOURCE}/{conversation.name}"
    return SessionSummary(
        id=make_id(SOURCE, conversation.name),
        name=conversation.name,
        source=state.door or calls[-1].request.door or SOURCE,
        place=place,
        first_words=state.title or _find_title(conversation),
        model=conversation.model,
        dialect=conversation.dialect,
        calls=len(calls),
        messages=len(read_turns(request)),
        tokens=max(sizes, default=None),
        dollars=sum_calls_cost(calls).amount,
        lost_caches=len(find_losses(conversation)),
        began=min(moments, default=None),
        ended=max(moments, default=None),
        cuts=sum(call.request.is_cut for call in calls),
        parent=state.parent,
        answered=any(call.answer is not None for call in calls),
    )


def _read_last_request(conversation: SentConversation) -> dict[str, Any]:
    last = find_last_request(conversation.record)
    if last is None:
        return {}
    return read_came(conversation.record, last) or {}


def _find_title(conversation: SentConversation) -> str:
    """The first words of the user, for a conversation whose state does not have them."""
    return find_first_words(_read_history(conversation))


def _size_of_call(call: RecordedCall) -> int:
    """The tokens of a request: as reported, or else as lamina counted them; 0 if it did not."""
    if call.answer is not None and call.answer.usage is not None:
        return call.answer.usage.input
    return call.request.tokens
