"""A conversation in the memory of one gateway process: what the last request left for the next one.

Everything here but the name can be recovered: from the store, or by decoding and counting once more.
`conversation_index` finds the conversation of a request, and forgets those that were not used for longest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from time import monotonic
from typing import Any, NamedTuple

from lamina.conversations.record_writer import RecordWriter
from lamina.conversations.request_digests import NO_DIGESTS, RequestDigests, count_shared_links
from lamina.conversations.store import ConversationState
from lamina.dialects.memos import CheckMemo, ParseMemo
from lamina.dialects.usage import NOTHING_REPORTED
from lamina.fitting.request import RequestMemo
from lamina.gateway.sizes import CountedRequest, KnownTrigger
from lamina.gateway.store_access import GatewayConversation
from lamina.gateway.turn_memory import MOVING

DOOR = "gateway"
"""What the record calls this part of lamina."""

Group = tuple[str, str, str]
"""A workspace, a client's id and a dialect: what conversations must have in common to be one."""


class Landmark(NamedTuple):
    """A message near the end of a request that the next one repeats: the same object at the same place.

    `identity` is that of the object. The conversation holds it, so no other object has it meanwhile.
    """

    group: Group
    place: int
    identity: int


class LeftBranch(NamedTuple):
    """What may stay stored of a conversation that its client has left for another one: see `find_left`.

    `living` are the digests of the request that it was left for. A segment that is not among them is lost.
    """

    state: ConversationState
    living: RequestDigests


class LiveConversation:
    """A conversation that this process has seen, with its last request."""

    def __init__(self, workspace: str, name: str, family: str, state: ConversationState) -> None:
        self.workspace = workspace
        self.name = name
        self.family = family
        self.lock: asyncio.Lock | None = None
        """That of its family, held here so that it lives as long as one of the conversations does."""

        self.state = state
        self.source = b""
        """The bytes of the state in the store, b"" before it is saved."""

        self.left: LeftBranch | None = None
        """What may stay stored of it since its client has left it; None while it is in use."""

        self.record = RecordWriter()
        """What happened in it, on its way to the store."""

        self.digests = NO_DIGESTS
        self.memo = make_memo()
        self.spliced_memo = make_memo()
        """The memo of requests that have recalls put back into them."""

        # The last request as it came.
        self.turns: tuple[Any, ...] = ()
        self.text_size = 0
        self.head_bytes = 0
        self.landmark: Landmark | None = None
        self.memory_size = 0
        """What all of it takes in memory, as it was counted last."""

        # How large the last request was, and how near to a cut.
        self.tokens = 0
        self.counted: CountedRequest | None = None
        """The last request that the gateway counted, if it was sent as it came."""

        self.measured: CountedRequest | None = None
        """The last request with the tokens that the upstream reported, if it was sent as it came."""

        self.trigger: KnownTrigger | None = None
        self.is_near = False
        """Whether the next request may be over the trigger."""

        # The last request as it was sent, and what came back.
        self.request: Any = None
        self.sent_at = 0.0
        self.sent_id = ""
        """The id under which the gateway logged it."""

        self.reported = NOTHING_REPORTED
        """What the upstream reported."""

    @property
    def key(self) -> tuple[str, str]:
        """What a process knows it by: two workspaces may have the same name."""
        return self.workspace, self.name

    @property
    def group(self) -> Group:
        return self.workspace, self.state.group, self.state.dialect

    def compare_with(self, parent: LiveConversation) -> None:
        """Take the last request of the conversation that this one was forked from as the one before it.

        An edit makes a fork, and its cache is lost: the two requests tell why.
        """
        self.request = parent.request
        self.sent_at = parent.sent_at
        self.reported = parent.reported
        self.sent_id = parent.sent_id

    def note_sent(self, request: Any) -> None:
        """A request of this conversation leaves now."""
        self.request = request
        self.sent_at = monotonic()

    def accept(self, stored: GatewayConversation) -> None:
        """Take over what another process has saved, unless this one has seen a later request."""
        is_news = stored.source != self.source
        self.source = stored.source
        if stored.state.began != self.state.began:  # it was deleted, and somebody has begun it again
            self.record.begin_anew()
        saved_digests = stored.state.digests()
        if self._is_ahead(stored.state, saved_digests):
            return
        if is_news:  # the last request was another process's, and what it sent is not known here
            self.request = None
            self.reported = NOTHING_REPORTED
        self.state = stored.state
        self.digests = saved_digests
        self.counted = None
        self.measured = None

    def _is_ahead(self, saved: ConversationState, saved_digests: RequestDigests) -> bool:
        """Whether the last request here continues the one in the store, under the same ledger.

        That is so after most requests: one that needs no cut is saved some seconds later.
        """
        if saved.ledger != self.state.ledger:
            return False
        chain = self.digests.chain
        saved_length = len(saved_digests.chain)
        if count_shared_links(chain, saved_digests.chain) < saved_length:
            return False
        return len(chain) > saved_length or self.state.requests > saved.requests

    def drop_content(self) -> None:
        """Forget the messages of a request that is too large to stay in memory, as a restart would."""
        self.digests = self.state.digests()
        self.memo = make_memo()
        self.spliced_memo = make_memo()
        self.turns = ()
        self.counted = None
        self.measured = None
        self.request = None
        self.record.forget_bodies()

    def add_records(self, records: Iterable[bytes]) -> None:
        """Keep records until the next time that the conversation is saved."""
        for record in records:
            self.record.add_record(record)


def make_memo() -> RequestMemo:
    """What is remembered of a conversation's last request.

    Messages that came as the same bytes are the same objects here, and nobody changes them in place.
    """
    memo = RequestMemo()
    memo.parse = ParseMemo(copies=False)
    memo.incoming = CheckMemo(tail=MOVING)
    return memo
