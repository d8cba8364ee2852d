"""What is remembered of one conversation between two calls, and how it is written into a store."""

from __future__ import annotations

from threading import Lock
from time import time
from typing import Any
from uuid import uuid4

import msgspec

from lamina.conversations.recall_loop import RecallExchange
from lamina.conversations.record_writer import RecordWriter
from lamina.conversations.request_digests import NO_DIGESTS, RequestDigests
from lamina.conversations.store import ConversationState
from lamina.core.values import Ledger
from lamina.dialects.usage import NOTHING_REPORTED, Usage
from lamina.fitting.request import RequestMemo


def _now() -> int:
    return int(time())


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

    `digests` are those of the last request, which was in `dialect` and had these `turns`. `usage` is what
    the API counted for it, and `fitted` what was sent. `windows` has the window of each model whose API
    refused a request as too long. `last_request` is what the next one is compared with; a fork has that of
    the conversation that it was forked from. `exchanges` are the recalls that the client did not see; a
    request with them in it has a memo of its own (`spliced_memo`). Who uses a memo holds `memo_lock`.

    `door` is the part of lamina that began it. In a store it is known by its `uid`, and `revision` counts its
    calls. `group` is "name:…" for a conversation that its caller named. `family` is what it begins with, ""
    before it is stored. `left` are the uids of conversations that the client left for this one: they lose
    what this one has lost. `parent` is the one that it was forked from, whose cuts are its `inherited_cuts`.
    `record` is what happened in it, for the store.
    """

    ledger: Ledger = Ledger()
    memo: Any = msgspec.field(default_factory=RequestMemo)
    spliced_memo: Any = msgspec.field(default_factory=RequestMemo)
    memo_lock: Any = msgspec.field(default_factory=Lock)
    exchanges: tuple[RecallExchange, ...] = ()
    door: str = ""
    uid: str = ""
    revision: int = 0
    dialect: str = ""
    turns: tuple[Any, ...] = ()
    digests: RequestDigests = NO_DIGESTS
    usage: Usage = NOTHING_REPORTED
    windows: dict[str, int] = {}
    fitted: Any = None
    last_request: LastRequest | None = None
    group: str = ""
    family: str = ""
    model: str = ""
    began: int = msgspec.field(default_factory=_now)
    left: tuple[str, ...] = ()
    parent: str = ""
    inherited_cuts: int = 0
    record: RecordWriter = msgspec.field(default_factory=RecordWriter)


def begin_conversation(door: str, **fields: Any) -> Conversation:
    """A conversation that begins at this door."""
    return Conversation(door=door, uid=f"{door}-{uuid4().hex[:20]}", **fields)


def to_state(conversation: Conversation) -> ConversationState:
    """What is stored of a conversation: everything but memos, which only save time."""
    digests = conversation.digests
    return ConversationState(
        door=conversation.door,
        dialect=conversation.dialect,
        group=conversation.group,
        family=conversation.family,
        parent=conversation.parent,
        model=conversation.model,
        system=digests.system,
        chain=b"".join(digests.chain),
        first_answer=digests.first_answer,
        ledger=conversation.ledger,
        inherited_cuts=conversation.inherited_cuts,
        usage=conversation.usage,
        windows=conversation.windows,
        exchanges=conversation.exchanges,
        requests=conversation.revision,
        began=conversation.began,
    )


def from_state(name: str, state: ConversationState) -> Conversation:
    """The conversation that was stored. It knows its digests, but not its segments."""
    return Conversation(
        door=state.door,
        uid=name,
        revision=state.requests,
        dialect=state.dialect,
        group=state.group,
        family=state.family,
        parent=state.parent,
        model=state.model,
        ledger=state.ledger,
        inherited_cuts=state.inherited_cuts,
        digests=state.digests(),
        usage=state.usage or NOTHING_REPORTED,
        windows=state.windows,
        exchanges=state.exchanges,
        began=state.began,
    )
