"""What a client remembers of one conversation between two calls."""

from __future__ import annotations

from threading import Lock
from typing import Any
from uuid import uuid4

import msgspec

from lamina.conversations.record_writer import RecordWriter
from lamina.conversations.request_digests import NO_DIGESTS, RequestDigests
from lamina.conversations.store import ConversationState
from lamina.dialects.usage import NOTHING_REPORTED, Usage
from lamina.fitting.request import RequestMemo


class LastRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A request that was answered: what was sent, what the API counted for it, and when it was sent.

    The next request is compared with it, to say why a cache missed. `sent_at` is of a clock that only runs
    forward. `is_uncached`: a listener was told already that the API caches nothing of this conversation.
    """

    fitted: Any
    usage: Usage
    sent_at: float
    is_uncached: bool = False


class Conversation(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What is remembered of one conversation between two calls.

    In a store it is known by its `uid`, and `state` is what is stored of it. `digests` are those of the last
    request, which had these `turns`, and `fitted` is what was sent. `last_request` is what the next one is
    compared with; a fork has that of the conversation that it was forked from.

    A request with recalls in it that the client did not see has a memo of its own (`spliced_memo`). Who uses
    a memo holds `memo_lock`. `left` are the uids of conversations that the client left for this one: they
    lose what this one has lost. `record` is what happened in it, for the store.
    """

    uid: str = ""
    state: ConversationState = ConversationState()
    digests: RequestDigests = NO_DIGESTS
    turns: tuple[Any, ...] = ()
    fitted: Any = None
    last_request: LastRequest | None = None
    memo: Any = msgspec.field(default_factory=RequestMemo)
    spliced_memo: Any = msgspec.field(default_factory=RequestMemo)
    memo_lock: Any = msgspec.field(default_factory=Lock)
    left: tuple[str, ...] = ()
    record: RecordWriter = msgspec.field(default_factory=RecordWriter)

    @property
    def usage(self) -> Usage:
        """What the API counted for the last request."""
        return self.state.usage or NOTHING_REPORTED

    def with_state(self, **changes: Any) -> Conversation:
        """The conversation with other values in its state."""
        return msgspec.structs.replace(self, state=msgspec.structs.replace(self.state, **changes))


def make_uid(door: str) -> str:
    """The name of a conversation that begins at this door."""
    return f"{door}-{uuid4().hex[:20]}"
