"""What opens a store: its header, the ring of keys, and the cards of conversations, cached.

Header and cards change by compare-and-swap on their bytes. Each change appends one empty record to the
reserved conversation that they are stored in, and they hold the number of changes. A card in the cache may be
old: code that meets bytes which it does not open asks for a fresh one. The vault reads no records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import anyio
from anyio import to_thread
from msgspec.structs import replace

from lamina.errors import BadInput, Conflict, StoreError, Tampered, WrongKey
from lamina.stores.paging import attempts
from lamina.stores.port import HEADER, RESERVED, OwnName, Store, Where, Withdrawable, Within
from lamina.stores.sealed.cipher import NotSealedHere, derive_key, mac
from lamina.stores.sealed.documents import (
    DELETING,
    Card,
    Header,
    encode_document,
    is_card_authentic,
    is_header_authentic,
    key_line,
    new_card,
    new_header,
    parse_document,
    rewrap_card,
    root_of,
    sign_card,
    sign_header,
    unwrap,
)
from lamina.stores.sealed.keys import Key, Passphrase
from lamina.stores.sealed.names import HASHED, PLAIN, SealedNames
from lamina.stores.sealed.passphrase import Cost, Derivation, derivation, derive
from lamina.stores.sealed.records import Generation, SealedPlace

MOST_CARDS = 4096
"""Cards in the cache."""

SWEEP = Where(OwnName(RESERVED), "sweep")
"""A conversation that is made only to be deleted: stores overwrite old bytes when they delete."""

Credential = Key | Passphrase
"""What a caller opens a store with."""


class OpenCard:
    """A verified card with its data keys unwrapped."""

    def __init__(self, card: Card, place: SealedPlace, generations: dict[int, Generation]) -> None:
        self.card = card
        self.place = place
        self.generations = generations

    @property
    def newest(self) -> Generation:
        return self.generations[self.card.data[-1].generation]

    def same_as(self, other: OpenCard | None) -> bool:
        """Whether this is the same card of the same conversation, without a change between."""
        if other is None:
            return False
        return self.card.id == other.card.id and self.card.change == other.card.change


class NamedCard(NamedTuple):
    """The name on a card, and whether the card is marked because its conversation is being deleted."""

    name: str
    is_deleting: bool


async def withdraw(store: Store, where: Where, *, was: bytes | None) -> bool:
    """Delete a conversation of the store within, if its state is still `was`. None deletes it in any case.

    A store of somebody else may not be able to look first: then it deletes.
    """
    if was is not None and isinstance(store, Withdrawable):
        return await store.withdraw(where, was=was)
    return await store.delete(where)


class Vault:
    """The keys around one store."""

    def __init__(
        self, store: Store, keys: Sequence[Credential], *, create: bool, names: str, cost: Cost
    ) -> None:
        if not keys:
            hint = "give a key; conversations are never stored plain"
            raise BadInput("there is none", place="keys", hint=hint)
        if names not in {HASHED, PLAIN}:
            raise BadInput(f"{names!r}", place="names", hint=f"give {HASHED!r} or {PLAIN!r}")
        self.store = store
        self._credentials = list(keys)
        self._create = create
        self._names_mode = names
        self._cost = cost
        self._header: Header | None = None
        self._sealed_names: SealedNames | None = None
        self._root = b""
        self._once_key = b""
        self._ring: dict[str, Key] = {}
        self._derived_keys: dict[tuple[Passphrase, Derivation], Key] = {}
        self._cards: dict[Where, OpenCard] = {}
        self._lock = anyio.Lock()

    # The header and the ring of keys.

    async def unlock(self, *, fresh: bool = False) -> Header:
        """The header, verified by a key of the ring. A new store gets one, if `create` allows that."""
        if self._header is not None and not fresh:
            return self._header
        async with self._lock:
            if self._header is not None and not fresh:
                return self._header
            self._header = await self._load_header()
            return self._header

    async def _load_header(self) -> Header:
        """Read the header, prove that its keys wrote it, and derive the keys of names from it.

        A new store gets its header here. Nothing is read from a store before that.
        """
        page = await self.store.read(HEADER, last=0)
        if not page.head.count and not page.head.state:
            await self._make_header()
            page = await self.store.read(HEADER, last=0)
        header = parse_document(page.head.state, Header, page.head.count)
        root, ring = await self._open_header(header)
        if not is_header_authentic(header, root):
            raise Tampered("the header is not what was written")
        self._root = root
        self._ring = ring
        names_key = derive_key(root, "lamina/names/1", salt=header.store)
        self._sealed_names = SealedNames(names_key, header.store, header.names)
        self._once_key = derive_key(root, "lamina/once/1", salt=header.store)
        return header

    async def _make_header(self) -> None:
        """Write the header of a new store. If another process is first, its header is used."""
        if not self._create:
            hint = (
                "open it without a key if it is a plain store, give create=True if it is a new one; "
                "if it was sealed, restore it from a backup"
            )
            raise WrongKey("this store is not sealed, or its header is gone", hint=hint)
        key, how = await self._resolve_new(self._credentials[0])
        header, root = new_header(key, names=self._names_mode, how=how)
        try:
            await self.store.append(HEADER, [b""], expect=0, state=sign_header(header, root))
        except Conflict:
            return  # another process was first: its header is read next

    async def _resolve_new(self, credential: Credential) -> tuple[Key, Derivation | None]:
        """The key that a new credential gives; for a passphrase, also how the key is derived from it."""
        if isinstance(credential, Key):
            return credential, None
        how = derivation(self._cost)
        return await self._derive(credential, how), how

    async def _derive(self, passphrase: Passphrase, how: Derivation) -> Key:
        """The key of a passphrase. Deriving it is slow on purpose, so it is remembered."""
        if (passphrase, how) not in self._derived_keys:
            self._derived_keys[passphrase, how] = await to_thread.run_sync(derive, passphrase, how)
        return self._derived_keys[passphrase, how]

    async def _open_header(self, header: Header) -> tuple[bytes, dict[str, Key]]:
        """The root secret, and those keys of the header that the credentials give, by their ids."""
        root = b""
        ring: dict[str, Key] = {}
        for line in header.keys:
            for credential in self._credentials:
                key = await self._candidate_key(credential, line.derivation)
                if key is None:
                    continue
                root_of_line = root_of(line, key, header.store)
                if root_of_line is not None:
                    root = root_of_line
                    ring[line.id] = key
        if not ring:
            ids = " or ".join(line.id for line in header.keys)
            raise WrongKey("none of the given keys opens this store", hint=f"give the key whose id is {ids}")
        return root, ring

    async def _candidate_key(self, credential: Credential, how: Derivation | None) -> Key | None:
        """The key to try on a line of the header; None if the line is of the other kind of credential."""
        if isinstance(credential, Key):
            return credential if how is None else None
        if how is None:
            return None
        return await self._derive(credential, how)

    async def change_header(self, change: Callable[[Header], Header | None]) -> Header:
        """Change the header by compare-and-swap; None leaves it as it is."""
        for _ in attempts():
            header = await self.unlock(fresh=True)
            new = change(header)
            if new is None:
                return header
            new = replace(new, change=header.change + 1)
            state = sign_header(new, self._root)
            was = encode_document(header)
            try:
                await self.store.append(HEADER, [b""], expect=header.change, was=was, state=state)
            except Conflict:
                continue
            return await self.unlock(fresh=True)
        raise AssertionError  # the attempts end in an error

    async def add_credential(self, credential: Credential) -> tuple[str, Callable[[Header], Header | None]]:
        """The id of a key, and the change that adds it to the header. It joins the ring at once."""
        header = await self.unlock()
        key, how = await self._resolve_new(credential)
        self._credentials.append(credential)
        line = key_line(key, header.store, self._root, how)

        def add_line(now: Header) -> Header | None:
            if now.line(key.id) is not None:
                return None
            return replace(now, keys=(*now.keys, line))

        return key.id, add_line

    def key(self, key_id: str, conversation: str = "") -> Key:
        """A key by its id, or WrongKey that names it."""
        if key_id not in self._ring:
            hint = "give it too, with the others"
            raise WrongKey(
                f"key {key_id!r} is needed and was not given", conversation=conversation, hint=hint
            )
        return self._ring[key_id]

    async def primary(self) -> Key:
        """The key that wraps new data keys, by the header of this moment."""
        header = await self.unlock(fresh=True)
        return self.key(header.primary)

    # Names. Every path that leads here has called `unlock`.

    @property
    def _names(self) -> SealedNames:
        """The names in the inner store, which only the root key can tell."""
        if self._sealed_names is None:
            raise StoreError("the store is not unlocked")
        return self._sealed_names

    def place(self, where: Where) -> SealedPlace:
        """Where a conversation is, as everything in it is bound to: this store, workspace and name."""
        if self._header is None:
            raise StoreError("the store is not unlocked")
        return SealedPlace(self._header.store, where.workspace, where.conversation)

    def inner(self, where: Where) -> Where:
        """Where the records of a conversation are stored."""
        return self._names.inner(where)

    def inner_workspace(self, workspace: str) -> Within:
        return self._names.inner_workspace(workspace)

    def card_workspace(self, workspace: str) -> OwnName:
        return self._names.card_workspace(workspace)

    def hash_once(self, where: Where, *fields: str | bytes) -> bytes:
        """A hash of an idempotency key, or of its digest, that says nothing without the key of the store."""
        return mac(self._once_key, where.workspace, where.conversation, *fields)

    # Cards.

    async def card(self, where: Where, *, fresh: bool = False) -> OpenCard | None:
        """The card of a conversation; from the cache, unless `fresh`."""
        await self.unlock()
        if not fresh and where in self._cards:
            return self._cards[where]
        open_card = await self._read_card(where)
        self._cache(where, open_card)
        return open_card

    async def make_card(self, where: Where) -> OpenCard:
        """A card with a new data key, or the one that another writer has just made."""
        key = await self.primary()
        card = new_card(self.place(where), key, self._names.seal(where))
        try:
            await self._write_card(where, card, None)
        except Conflict:
            await anyio.lowlevel.checkpoint()
        open_card = await self.card(where, fresh=True)
        if open_card is None:
            raise StoreError(
                "it was deleted while it was made", conversation=where.conversation, hint="try again"
            )
        return await self._rewrap_new_card(where, open_card)

    async def _rewrap_new_card(self, where: Where, open_card: OpenCard) -> OpenCard:
        """Wrap a new card by the key that is primary now: another process may have changed that meanwhile."""
        try:
            primary = await self.primary()
        except WrongKey:  # the new primary key is not here, so nobody could read what is written now
            with suppress(Conflict):  # another process has begun to use it
                await self.drop_card(where, open_card.card)
            raise
        new = await self.change_card(where, lambda now: rewrap_card(now.card, now.place, primary, self.key))
        return new or open_card

    async def change_card(self, where: Where, change: Callable[[OpenCard], Card | None]) -> OpenCard | None:
        """Change a card by compare-and-swap; None leaves it as it is. Without a card nothing happens."""
        for _ in attempts(where.conversation):
            open_card = await self.card(where, fresh=True)
            if open_card is None:
                return None
            new = change(open_card)
            if new is None:
                return open_card
            try:
                await self._write_card(where, new, open_card.card)
            except Conflict:
                continue
            return await self.card(where, fresh=True)
        raise AssertionError  # the attempts end in an error

    async def drop_card(self, where: Where, card: Card) -> None:
        """Delete the card of a conversation. Its data keys are gone with it.

        Raises Conflict if it is not this card any more.
        """
        self._cards.pop(where, None)
        await withdraw(self.store, self._names.card_place(where), was=encode_document(card))

    async def name_of(self, workspace: str, inner_name: str) -> str | None:
        """The name of the conversation that is stored under this name.

        None if it has no card, "" while it is being deleted.
        """
        named_card = await self.named_card(workspace, inner_name)
        if named_card is None:
            return None
        if named_card.is_deleting:
            return ""
        return named_card.name

    async def named_card(self, workspace: str, inner_name: str) -> NamedCard | None:
        """What the card under this name says without a data key; None if there is no card."""
        page = await self.store.read(Where(self.card_workspace(workspace), inner_name), last=0)
        if not page.head.count and not page.head.state:
            return None
        card = parse_document(page.head.state, Card, page.head.count)
        try:
            name = self._names.open(workspace, card.name)
        except NotSealedHere:
            problem = "the name on its card is not what was written"
            raise Tampered(problem, conversation=inner_name) from None
        if self.inner(Where(workspace, name)).conversation != inner_name:
            raise Tampered("its card belongs to another one", conversation=name)
        return NamedCard(name, is_deleting=card.gone == DELETING)

    async def _read_card(self, where: Where) -> OpenCard | None:
        """Read the card of a conversation from the store; None if there is none."""
        page = await self.store.read(self._names.card_place(where), last=0)
        if not page.head.count and not page.head.state:
            return None
        try:
            card = parse_document(page.head.state, Card, page.head.count)
        except Tampered as error:
            raise Tampered(error.problem, conversation=where.conversation) from None
        return await self._open_card(where, card)

    async def _open_card(self, where: Where, card: Card) -> OpenCard:
        """Prove that a card was written for this place, and unwrap its data keys."""
        key_ids = {card.key, *(data.key for data in card.data)}
        if not key_ids <= self._ring.keys():
            await self.unlock(fresh=True)  # a key may have come to the ring since
        place = self.place(where)
        if not is_card_authentic(card, place, self.key(card.key, where.conversation)):
            raise Tampered("its card is not what was written", conversation=where.conversation)
        generations: dict[int, Generation] = {}
        for data in card.data:
            try:
                secret = unwrap(place, self.key(data.key, where.conversation), data)
            except NotSealedHere:
                problem = f"its data key {data.generation} is not what was written"
                raise Tampered(problem, conversation=where.conversation) from None
            generations[data.generation] = Generation(place, data.generation, secret)
        return OpenCard(card, place, generations)

    async def _write_card(self, where: Where, card: Card, previous: Card | None) -> None:
        """Write a card in place of `previous`, which is compared by its bytes.

        The number of changes is not enough: a later conversation of this name may have had as many.
        """
        change = 0
        was = b""
        if previous is not None:
            change = previous.change
            was = encode_document(previous)
        key = self.key(card.key, where.conversation)
        state = sign_card(replace(card, change=change + 1), self.place(where), key)
        await self.store.append(self._names.card_place(where), [b""], expect=change, was=was, state=state)

    def _cache(self, where: Where, open_card: OpenCard | None) -> None:
        """Remember a card. The oldest is forgotten first, and one that is being deleted at once."""
        self._cards.pop(where, None)
        if open_card is not None and open_card.card.gone != DELETING:
            self._cards[where] = open_card
        while len(self._cards) > MOST_CARDS:
            oldest = next(iter(self._cards))
            del self._cards[oldest]
