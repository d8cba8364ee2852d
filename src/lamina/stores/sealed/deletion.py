"""Deletes conversations of a sealed store, so that a crash or a second process in between does no harm.

A deletion marks the card, deletes the records, then drops the card. The mark destroys the data keys. If the
rest is interrupted, the mark tells the next reader that nobody tampered with the conversation, and the next
writer that the deletion has to be finished first.
"""

from __future__ import annotations

from lamina.errors import Conflict, Damaged
from lamina.stores.paging import retry_overtaken
from lamina.stores.port import Store, Where
from lamina.stores.sealed.cards import Cards, OpenCard, withdraw
from lamina.stores.sealed.documents import mark_deleting
from lamina.stores.sealed.reader import VerifiedReader
from lamina.stores.sealed.vault import Vault


class Deletion:
    """Deletes conversations of one store. The caller holds the lock of the conversation."""

    def __init__(self, store: Store, vault: Vault, cards: Cards, reader: VerifiedReader) -> None:
        self._store = store
        self._vault = vault
        self._cards = cards
        self._reader = reader

    async def delete(self, where: Where) -> bool:
        """Delete a conversation with its card. False if there is none."""
        open_card = await self._cards.read(where, fresh=True)
        if open_card is None:
            return await self._delete_orphans(where)
        if open_card.is_deleting:
            await self.finish(where, open_card)
            return True
        if not open_card.card.begun and await self._is_empty(where):
            return False  # another writer is making it
        marked_card = await self._cards.change(where, lambda now: mark_deleting(now.card))
        if marked_card is not None:  # else another process was faster
            await self.finish(where, marked_card)
        return True

    async def finish(self, where: Where, marked_card: OpenCard) -> None:
        """Delete the records and the card of a conversation whose card is marked.

        Several processes may do this at once, and one of them may be slow. Each step is made only if nothing
        has changed since the look before it, so nobody deletes what was begun under the same name meanwhile.
        """
        inner = self._vault.inner(where)

        async def finish_once() -> None:
            state = await self._state_within(inner)
            open_card = await self._cards.read(where, fresh=True)
            if open_card is None or open_card.card.id != marked_card.card.id:
                return
            await withdraw(self._store, inner, was=state)
            await self._cards.drop(where, open_card.card)

        await retry_overtaken(finish_once, where.conversation)
        self._reader.forget_end(where)

    async def _delete_orphans(self, where: Where) -> bool:
        """Delete records that have no card, so that the name can be used again. False if there are none."""
        inner = self._vault.inner(where)
        state = await self._state_within(inner)
        try:
            return await withdraw(self._store, inner, was=state)
        except Conflict:
            return False  # another writer is making it

    async def _is_empty(self, where: Where) -> bool:
        page = await self._store.read(self._vault.inner(where), last=0)
        return page.head.is_empty

    async def _state_within(self, inner: Where) -> bytes | None:
        """The state that a conversation has in the store within; None if it cannot be read any more."""
        try:
            return (await self._store.read(inner, last=0)).head.state
        except Damaged:
            return None
