"""A conversation that a relay has seen, with its last request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from lamina.conversations.addresses import Group
from lamina.conversations.record_writer import RecordWriter
from lamina.conversations.request_digests import NO_DIGESTS, RequestDigests, count_shared_links
from lamina.conversations.store import ConversationState, KeptConversation
from lamina.dialects.memos import CheckMemo, StreamMemo
from lamina.dialects.usage import NOTHING_REPORTED
from lamina.fitting.request import RequestMemo
from lamina.relay.sizes import CountedRequest, KnownTrigger
from lamina.relay.turn_memory import MOVING

Opening = tuple[Group, bytes]
"""What was said before the first answer: requests that begin alike are fitted one after the other."""


class LiveConversation:
    """A conversation that this process has seen, with its last request.

    Everything here but the name can be recovered: from the store, or by decoding and counting once more.
    """

    def __init__(self, workspace: str, name: str, opening: Opening, state: ConversationState) -> None:
        self.workspace = workspace
        self.name = name
        self.opening = opening
        self.address: Opening | None = None
        """What requests find it by in memory."""

        self.last_use = 0
        self.key = (workspace, name)
        """What a process knows it by: two workspaces may have the same name."""

        self.lock: asyncio.Lock | None = None
        """That of its opening, held here so that it lives as long as one of the conversations does."""

        self.state = state
        self.source = b""
        """The bytes of the state in the store, b"" before it is saved."""

        self.is_guess = False
        """Whether it was begun while the store could not be asked, so that it may continue an older one.

        Until that is known, no request finds it in the store.
        """

        self.living: RequestDigests | None = None
        """The request that its client has left it for (`find_left`): what that has lost may not stay stored.

        None while it is in use.
        """

        self.record = RecordWriter()
        """What happened in it, on its way to the store."""

        self.late_write: asyncio.Future[Any] | None = None
        """A write of it that took too long, and may still be made."""

        self.digests = NO_DIGESTS
        self.tools: tuple[dict[str, Any], ...] | None = None
        """Those of the last request, None if this process has not seen it."""

        self.memo = make_memo()
        self.spliced_memo: RequestMemo | None = None
        """The memo of requests that have recalls put back into them; None before there was one."""

        # The last request as it came.
        self.turns: tuple[Any, ...] = ()
        self.text_size = 0
        self.head_bytes = 0
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

        # The last request that was answered, as it was sent, and what came back. Refused ones warm no cache.
        self.request: Any = None
        self.sent_at = 0.0
        self.reported = NOTHING_REPORTED
        """What the upstream reported."""

        self.answered_links = 0
        """How many segments of the client's it had."""

        self.answered_cuts = 0
        """How many cuts its ledger had."""

    @property
    def group(self) -> Group:
        return Group(self.workspace, self.state.group, self.state.dialect)

    def compare_with(self, parent: LiveConversation) -> None:
        """Take the last request of the conversation that this one was forked from as the one before it.

        An edit makes a fork, and its cache is lost: the two requests tell why.
        """
        self.request = parent.request
        self.sent_at = parent.sent_at
        self.reported = parent.reported

    def note_answered(self, request: Any, *, sent_at: float, cuts: int) -> None:
        """The last request was answered: from now on caches hold it."""
        self.request = request
        self.sent_at = sent_at
        self.answered_links = len(self.digests.chain)
        self.answered_cuts = cuts

    def count_answered(self, shared: int) -> int:
        """How many of the segments that a request shares with the last one were in one that was answered."""
        return min(shared, self.answered_links)

    def accept(self, stored: KeptConversation) -> None:
        """Take over what another process has saved, unless this one has seen a later request."""
        is_news = stored.source != self.source
        self.source = stored.source
        if stored.state.began != self.state.began:  # it was deleted, and somebody has begun it again
            self.record.begin_anew()
        self.record.listed |= stored.state.listed
        saved_digests = stored.state.digests()
        if self._is_ahead(stored.state, saved_digests):
            return
        if is_news:  # the last request was another process's, and what it sent is not known here
            self.request = None
            self.reported = NOTHING_REPORTED
            self.answered_links = len(saved_digests.chain)
            self.answered_cuts = len(stored.state.ledger.cuts)
        self.state = stored.state
        self.digests = saved_digests
        self.tools = None

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
        self.spliced_memo = None
        self.turns = ()
        self.counted = None
        self.measured = None
        self.request = None
        self.record.forget_bodies()

    def take_memo(self, *, is_spliced: bool) -> RequestMemo:
        """The memo for one fit. Another request that comes meanwhile begins with a new one.

        A request with recalls has messages that are not the client's, so it has a memo of its own.
        """
        if is_spliced:
            memo = self.spliced_memo or make_memo()
            self.spliced_memo = None
        else:
            memo = self.memo
            self.memo = make_memo()
        return memo

    def give_memo_back(self, memo: RequestMemo, *, is_spliced: bool) -> None:
        if is_spliced:
            self.spliced_memo = memo
        else:
            self.memo = memo

    def add_records(self, records: Iterable[bytes]) -> None:
        """Keep records until the next time that the conversation is saved."""
        for record in records:
            self.record.add_record(record)


def make_memo() -> RequestMemo:
    """What is remembered of a conversation's last request.

    Messages that came as the same bytes are the same objects here, and nobody changes them in place.
    """
    memo = RequestMemo(frozen=True)
    memo.stream = StreamMemo(is_frozen=True)
    memo.incoming = CheckMemo(tail=MOVING)
    return memo
