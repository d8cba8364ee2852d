"""The cards of conversations: each has the sealed name of one conversation and its wrapped data keys.

A card changes by compare-and-swap on its bytes. Each change appends one empty record to the reserved
conversation that it is stored in, and the card holds the number of changes. A card in the cache may be old:
code that meets bytes which it does not open asks for a fresh one. This module reads no records.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from lamina.errors import Conflict, StoreError, Tampered, WrongKey
from lamina.stores.paging import retry_overtaken
from lamina.stores.port import Store, Where, Withdrawable
from lamina.stores.sealed.cipher import NotSealedHere
from lamina.stores.sealed.documents import (
    DELETING,
    Card,
    encode_document,
    is_card_authentic,
    new_card,
    parse_document,
    rewrap_card,
    sign_card,
    unwrap,
)
from lamina.stores.sealed.records import Generation, SealedPlace
from lamina.stores.sealed.vault import Vault

MOST_CARDS = 4096
"""Cards in the cache."""


class OpenCard:
    """A verified card with its data keys unwrapped."""

    def __init__(self, card: Card, place: SealedPlace, generations: dict[int, Generation]) -> None:
        self.card = card
        self.place = place
        self.generations = generations

    @property
    def newest(self) -> Generation:
        return self.generations[self.card.data[-1].generation]

    @property
    def is_deleting(self) -> bool:
        """Whether the conversation is being deleted: its data keys are gone, its records may not be."""
        return self.card.gone == DELETING


def is_same_card(one: OpenCard | None, other: OpenCard | None) -> bool:
    """Whether nothing has changed between two looks at the card of a conversation."""
    if one is None or other is None:
        return one is other
    return (one.card.id, one.card.change) == (other.card.id, other.card.change)


class NamedCard(NamedTuple):
    """The name on a card, and whether the card is marked because its conversation is being deleted."""

    name: str
    is_deleting: bool


class Cards:
    """The cards in one store, which the keys of its vault open."""

    def __init__(self, store: Store, vault: Vault) -> None:
        self._store = store
        self._vault = vault
        self._cards: dict[Where, OpenCard] = {}

    async def read(self, where: Where, *, fresh: bool = False) -> OpenCard | None:
        """The card of a conversation; from the cache, unless `fresh`."""
        await self._vault.unlock()
        if not fresh and where in self._cards:
            return self._cards[where]
        open_card = await self._read_card(where)
        self._cache(where, open_card)
        return open_card

    async def make(self, where: Where) -> OpenCard:
        """A card with a new data key, or the one that another writer has just made."""
        key = await self._vault.primary()
        card = new_card(self._vault.place(where), key, self._vault.names.seal(where))
        with suppress(Conflict):  # another writer has just made it
            await self._write(where, card, None)
        open_card = await self.read(where, fresh=True)
        if open_card is None:
            raise StoreError(
                "it was deleted while it was made", conversation=where.conversation, hint="try again"
            )
        return await self._rewrap_new_card(where, open_card)

    async def _rewrap_new_card(self, where: Where, open_card: OpenCard) -> OpenCard:
        """Wrap a new card by the key that is primary now: another process may have changed that meanwhile."""
        try:
            primary = await self._vault.primary()
        except WrongKey:  # the new primary key is not here, so nobody could read what is written now
            with suppress(Conflict):  # another process has begun to use it
                await self.drop(where, open_card.card)
            raise
        new = await self.change(where, lambda now: rewrap_card(now.card, now.place, primary, self._vault.key))
        return new or open_card

    async def change(self, where: Where, change: Callable[[OpenCard], Card | None]) -> OpenCard | None:
        """Change a card by compare-and-swap; None leaves it as it is. Without a card nothing happens."""

        async def change_once() -> OpenCard | None:
            open_card = await self.read(where, fresh=True)
            if open_card is None:
                return None
            new = change(open_card)
            if new is None:
                return open_card
            await self._write(where, new, open_card.card)
            return await self.read(where, fresh=True)

        return await retry_overtaken(change_once, where.conversation)

    async def drop(self, where: Where, card: Card) -> None:
        """Delete the card of a conversation. Its data keys are gone with it.

        Raises Conflict if it is not this card any more.
        """
        self._cards.pop(where, None)
        await withdraw(self._store, self._vault.names.card_place(where), was=encode_document(card))

    async def named_card(self, workspace: str, inner_name: str) -> NamedCard | None:
        """What the card under this name says without a data key; None if there is no card."""
        page = await self._store.read(Where(self._vault.names.card_workspace(workspace), inner_name), last=0)
        if page.head.is_empty:
            return None
        card = parse_document(page.head.state, Card, page.head.count)
        try:
            name = self._vault.names.open(workspace, card.name)
        except NotSealedHere:
            problem = "the name on its card is not what was written"
            raise Tampered(problem, conversation=inner_name) from None
        if self._vault.inner(Where(workspace, name)).conversation != inner_name:
            raise Tampered("its card belongs to another one", conversation=name)
        return NamedCard(name, is_deleting=card.gone == DELETING)

    async def _read_card(self, where: Where) -> OpenCard | None:
        page = await self._store.read(self._vault.names.card_place(where), last=0)
        if page.head.is_empty:
            return None
        try:
            card = parse_document(page.head.state, Card, page.head.count)
        except Tampered as error:
            raise Tampered(error.problem, conversation=where.conversation) from None
        return await self._open(where, card)

    async def _open(self, where: Where, card: Card) -> OpenCard:
        """Prove that a card was written for this place, and unwrap its data keys."""
        if not card.key_ids <= self._vault.ring.keys():
            await self._vault.unlock(fresh=True)  # a key may have come to the ring since
        place = self._vault.place(where)
        if not is_card_authentic(card, place, self._vault.key(card.key, where.conversation)):
            raise Tampered("its card is not what was written", conversation=where.conversation)
        generations: dict[int, Generation] = {}
        for data in card.data:
            try:
                secret = unwrap(place, self._vault.key(data.key, where.conversation), data)
            except NotSealedHere:
                problem = f"its data key {data.generation} is not what was written"
                raise Tampered(problem, conversation=where.conversation) from None
            generations[data.generation] = Generation(place, data.generation, secret)
        return OpenCard(card, place, generations)

    async def _write(self, where: Where, card: Card, previous: Card | None) -> None:
        """Write a card in place of `previous`, which is compared by its bytes.

        The number of changes is not enough: a later conversation of this name may have had as many.
        """
        change = 0
        was = b""
        if previous is not None:
            change = previous.change
            was = encode_document(previous)
        key = self._vault.key(card.key, where.conversation)
        state = sign_card(replace(card, change=change + 1), self._vault.place(where), key)
        await self._store.append(
            self._vault.names.card_place(where), [b""], expect=change, was=was, state=state
        )

    def _cache(self, where: Where, open_card: OpenCard | None) -> None:
        """Remember a card. The oldest is forgotten first, and one that is being deleted at once."""
        self._cards.pop(where, None)
        if open_card is not None and not open_card.is_deleting:
            self._cards[where] = open_card
        while len(self._cards) > MOST_CARDS:
            oldest = next(iter(self._cards))
            del self._cards[oldest]


async def withdraw(store: Store, where: Where, *, was: bytes | None) -> bool:
    """Delete a conversation of the store within, if its state is still `was`. None deletes it in any case.

    A store of somebody else may not be able to look first: then it deletes.
    """
    if was is not None and isinstance(store, Withdrawable):
        return await store.withdraw(where, was=was)
    return await store.delete(where)
