"""The store in memory: what every other store must do, without a disk.

It forgets everything when the process ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from anyio.lowlevel import checkpoint

from lamina.stores.checked import CheckedStore, NewGroup, RecordSelection, Replacement
from lamina.stores.checks import (
    check_digest,
    check_key,
    check_no_plain,
    is_sealed_name,
)
from lamina.stores.port import (
    HEADER,
    ListedConversation,
    Once,
    Record,
    RecordPage,
    StoredHead,
    Where,
    places_beside,
)


class MemoryStore(CheckedStore):
    """Conversations in a dict. Nothing is awaited during a change, so it is whole or not there."""

    def __init__(self) -> None:
        self._conversations: dict[Where, _Conversation] = {}

    async def _append_group(self, group: NewGroup) -> StoredHead:
        where = group.where
        once = group.once
        await checkpoint()
        self._check_key(where.workspace)
        if where == HEADER and HEADER not in self._conversations:
            check_no_plain(plain=any(not is_sealed_name(place.workspace) for place in self._conversations))
        conversation = self._conversations.get(where, _Conversation())
        if once is not None and once.key in conversation.once:
            return conversation.repeated_head(where, once)
        head = group.head_after(conversation.head())
        conversation.bodies += group.records
        conversation.state = head.state
        if once is not None:
            conversation.once[once.key] = (once.digest, head.count)
        self._conversations[where] = conversation
        return head

    async def _read_page(self, where: Where, selection: RecordSelection) -> RecordPage:
        await checkpoint()
        self._check_key(where.workspace)
        conversation = self._conversations.get(where, _Conversation())
        places = selection.places(len(conversation.bodies))
        records = tuple(Record(seq=seq, body=conversation.bodies[seq]) for seq in places)
        return RecordPage(records=records, head=conversation.head())

    async def _list_page(self, workspace: str, *, after: str, limit: int) -> Sequence[ListedConversation]:
        await checkpoint()
        self._check_key(workspace)
        counts: dict[str, int] = {}
        for where, conversation in self._conversations.items():
            if where.workspace == workspace and where.conversation > after:
                counts[where.conversation] = len(conversation.bodies)
        return [ListedConversation(conversation=name, count=counts[name]) for name in sorted(counts)[:limit]]

    async def _delete(self, where: Where) -> bool:
        await checkpoint()
        self._check_key(where.workspace)
        if self._conversations.pop(where, None) is None:
            return False
        for place in places_beside(where):
            self._conversations.pop(place, None)
        return True

    async def _replace_records(self, replacement: Replacement) -> StoredHead:
        await checkpoint()
        self._check_key(replacement.where.workspace)
        conversation = self._conversations.get(replacement.where)
        if conversation is None:
            replacement.raise_missing()
        head = replacement.head_after(conversation.head())
        for seq, body in replacement.bodies.items():
            conversation.bodies[seq] = body
        conversation.state = head.state
        return head

    def _check_key(self, workspace: str) -> None:
        check_key(workspace, sealed=HEADER in self._conversations)


class _Conversation:
    """One conversation. For each idempotency key it has the digest and the count of the first time."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.state = b""
        self.once: dict[str, tuple[bytes, int]] = {}

    def head(self) -> StoredHead:
        return StoredHead(count=len(self.bodies), state=self.state)

    def repeated_head(self, where: Where, once: Once) -> StoredHead:
        """The answer to a repeated idempotency key: the count of the first time, the state of now."""
        digest, count = self.once[once.key]
        check_digest(where, once, digest)
        return StoredHead(count=count, state=self.state)
