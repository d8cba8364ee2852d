"""Saving conversations: what waits for a store that is gone is saved when it is back."""

from __future__ import annotations

import asyncio
from typing import Any

from lamina.conversations.store import ConversationState
from lamina.gateway.conversation_store import StoreGone
from lamina.gateway.conversations import ConversationIndex, LiveConversation
from lamina.gateway.metrics import GatewayMetrics
from lamina.gateway.saving import SAVED_TOGETHER, ConversationSaver


class FailingStore:
    """A store that is gone for its first calls. `saved` are the records that it got."""

    def __init__(self, failures: int) -> None:
        self._failures = failures
        self.saved: list[bytes] = []

    async def save(self, *_: Any, records: list[bytes], **__: Any) -> bytes:
        if self._failures:
            self._failures -= 1
            raise StoreGone("gone")
        self.saved += records
        return b"state"


def test_records_that_wait_are_saved_once_when_the_store_is_back() -> None:
    async def main() -> None:
        store: Any = FailingStore(2)
        saver = ConversationSaver(store, ConversationIndex(store, shared=False), GatewayMetrics())
        conversation = LiveConversation("default", "name", "family", ConversationState())
        conversation.add_records([b"first"])
        saver.save_later(conversation)
        assert not await saver.flush()
        conversation.add_records([b"second"])
        assert not await saver.flush()
        assert await saver.flush()
        assert await saver.flush()
        assert store.saved == [b"first", b"second"]

    asyncio.run(main())


def test_conversations_that_wait_are_saved_together() -> None:
    """One by one, a busy gateway would begin conversations faster than it saves them."""
    running: list[int] = [0]
    most: list[int] = [0]

    class SlowStore:
        async def save(self, *_: Any, **__: Any) -> bytes:
            running[0] += 1
            most[0] = max(most[0], running[0])
            await asyncio.sleep(0)
            running[0] -= 1
            return b"state"

    async def main() -> None:
        store: Any = SlowStore()
        saver = ConversationSaver(store, ConversationIndex(store, shared=False), GatewayMetrics())
        for number in range(40):
            saver.save_later(
                LiveConversation("default", f"{number}", f"family {number}", ConversationState())
            )
        assert await saver.flush()

    asyncio.run(main())
    assert most[0] == SAVED_TOGETHER
