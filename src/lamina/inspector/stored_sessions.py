"""Lists the recorded conversations of a store for the inspector, and reads each in full when it is opened.

A store may hold gigabytes. So each conversation is read once for its line in the list, and again when
somebody opens it. The last few stay in memory, for a minute: an erased message leaves as many records as
there were, so nothing else tells that one is gone.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

import msgspec

from lamina.conversations.record import ConversationRecord
from lamina.conversations.store import (
    ConversationState,
    conversation_place,
    conversation_workspace,
    decode_state,
)
from lamina.costs.logs.values import UnreadableLine
from lamina.errors import BadInput, LaminaError
from lamina.inspector.last_used import LastUsed
from lamina.inspector.recorded_sessions import ListedSession, make_line, summarise_state
from lamina.inspector.sent_conversations import SentConversation
from lamina.stores.paging import every_conversation
from lamina.stores.port import BodiesReadable, StatesReadable, Store

_MOST_SESSIONS = 4
"""Conversations that stay in memory."""

MOST_READ = 100
"""Conversations that are read in full for the list. If more are new, their lines are made of their states."""

REMEMBERED_SECONDS = 60.0
"""How long anything that was read is shown before it is read again."""

_Value = TypeVar("_Value")


class AskStore(Protocol):
    """Does something with a store, from a thread that has no event loop, and waits for it."""

    def __call__(self, operation: Callable[[Store], Awaitable[_Value]], /) -> _Value: ...


class StoredSessions:
    """State: the recorded conversations of one workspace. It is a source of sessions for the inspector.

    With `only`, no other conversation is shown. A live page asks often, so the store is asked again only
    after `pause` seconds.
    """

    def __init__(self, ask: AskStore, workspace: str, *, only: str = "", pause: float = 1.0) -> None:
        self._ask = ask
        self._workspace = workspace
        self._only = only
        self._pause = pause
        self._looked_at = -math.inf
        self._remembers_since = time.monotonic()
        self._times_forgotten = 0
        self._counts: dict[str, int] = {}
        self._lines: dict[tuple[str, int], ListedSession | UnreadableLine | None] = {}
        self._loaded: LastUsed[str, SentConversation] = LastUsed(_MOST_SESSIONS)

    def state(self) -> tuple[int, dict[str, int]]:
        """The number of records of each conversation, and how often all of them were forgotten."""
        now = time.monotonic()
        if now - self._looked_at > self._pause:
            self._counts = self._ask(self._count_records)
            self._looked_at = now
        if now - self._remembers_since > REMEMBERED_SECONDS:
            self._remembers_since = now
            self._times_forgotten += 1
            self._lines = {}
            self._loaded = LastUsed(_MOST_SESSIONS)
        return self._times_forgotten, self._counts

    def read(self) -> list[ListedSession | UnreadableLine]:
        """A line for each conversation. Those that have not grown since the last time are not read again."""
        _, counts = self.state()
        new_names = [name for name, count in counts.items() if (name, count) not in self._lines]
        states: dict[str, ConversationState] = {}
        if len(new_names) > MOST_READ:
            states = self._ask(partial(self._read_states, names=new_names))
        lines: dict[tuple[str, int], ListedSession | UnreadableLine | None] = {}
        for name, count in counts.items():
            if (name, count) in self._lines:
                lines[name, count] = self._lines[name, count]
            elif name in states:
                lines[name, count] = self._make_short_line(name, count, states[name])
            else:
                lines[name, count] = self._read_line(name)
        self._lines = lines
        return [line for line in lines.values() if line is not None]

    def _make_short_line(self, name: str, count: int, state: ConversationState) -> ListedSession | None:
        """The line of a conversation as its state tells it. Somebody who looks at it completes it."""
        if state.door == "session":
            return None  # as in `_read_line`: a session has its texts in its log
        return ListedSession(
            summary=summarise_state(name, state),
            load=partial(self.load, name),
            complete=partial(self._complete_line, name, count),
            read_bodies=self.read_bodies,
        )

    def _complete_line(self, name: str, count: int) -> ListedSession:
        line = self._read_line(name)
        if not isinstance(line, ListedSession):
            raise BadInput(f"{name!r} cannot be read", place="session", hint="see lamina store verify")
        self._lines[name, count] = line
        return line

    async def _read_states(self, store: Store, *, names: Sequence[str]) -> dict[str, ConversationState]:
        """The states of conversations that have one. Of a process that was killed there is only a record."""
        stored_states: Mapping[str, bytes] = {}
        if isinstance(store, StatesReadable):
            stored_states = await store.states(conversation_workspace(self._workspace))
        states: dict[str, ConversationState] = {}
        for name in names:
            source = stored_states.get(name)
            with suppress(LaminaError):
                if source is None:
                    source = (await store.read(conversation_place(self._workspace, name), last=0)).head.state
                state = ConversationState()
                if source:
                    state = decode_state(source)
                if state.requests:
                    states[name] = state
        return states

    def read_bodies(self, names: Sequence[str]) -> Mapping[str, Sequence[bytes]]:
        """The records of these conversations, of those that can be read."""
        return self._ask(partial(self._read_bodies, names=names))

    async def _read_bodies(self, store: Store, *, names: Sequence[str]) -> Mapping[str, Sequence[bytes]]:
        if isinstance(store, BodiesReadable):
            return await store.bodies(conversation_workspace(self._workspace), names)
        bodies: dict[str, Sequence[bytes]] = {}
        for name in names:
            with suppress(LaminaError):
                page = await store.read(conversation_place(self._workspace, name))
                bodies[name] = [record.body for record in page.records]
        return bodies

    def load(self, name: str) -> SentConversation:
        """One conversation in full. Raises BadInput if it was deleted meanwhile."""
        _, counts = self.state()
        loaded = self._loaded.get(name)
        if loaded is not None and loaded.record.count == counts.get(name):
            return loaded
        conversation = self._read_conversation(name)
        if conversation is None:
            raise BadInput(
                f"there is no conversation {name!r}", place="session", hint="it was deleted just now"
            )
        self._loaded.add(name, conversation)
        return conversation

    def _read_line(self, name: str) -> ListedSession | UnreadableLine | None:
        """The line of a conversation; None if it has nothing to show here."""
        try:
            conversation = self._read_conversation(name)
        except LaminaError as error:
            return UnreadableLine(place=name, reason=str(error))
        if conversation is None:
            return None
        if conversation.state.door == "session" and not conversation.has_bodies:
            return None  # a session keeps its texts in its log, which is shown as a session of its own
        line = make_line(conversation, partial(self.load, name))
        return msgspec.structs.replace(line, read_bodies=self.read_bodies)

    def _read_conversation(self, name: str) -> SentConversation | None:
        """A conversation as it is now; None if nothing of it is recorded."""
        state, record, digest = self._ask(partial(self._read_stored, name=name))
        if not record.calls:
            return None
        return SentConversation(name, state, record, version=digest)

    async def _read_stored(
        self, store: Store, *, name: str
    ) -> tuple[ConversationState, ConversationRecord, int]:
        """The state and the record of a conversation, both of the same moment, and a checksum of them."""
        page = await store.read(conversation_place(self._workspace, name))
        state = ConversationState()
        if page.head.state:
            state = decode_state(page.head.state)
        record = ConversationRecord()
        record.read(item.body for item in page.records)
        checksum = zlib.crc32(page.head.state)
        for item in page.records:
            checksum = zlib.crc32(item.body, checksum)
        return state, record, checksum

    async def _count_records(self, store: Store) -> dict[str, int]:
        counts: dict[str, int] = {}
        async for head in every_conversation(store, conversation_workspace(self._workspace)):
            if not self._only or head.conversation == self._only:
                counts[head.conversation] = head.count
        return counts
