"""What opens a store: its header, the ring of keys, and the cards of conversations, cached.

Header and cards change by compare-and-swap on their bytes, and each change appends one empty record to their
own reserved conversation: its number stands in them. A card in the cache may be old: who meets bytes that it
does not open asks for it afresh. It reads no record of any conversation.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence

import anyio
from anyio import to_thread
from msgspec.structs import replace

from lamina.errors import BadInput, Conflict, StoreError, Tampered, WrongKey
from lamina.stores.paging import attempts
from lamina.stores.port import HEADER, RESERVED, Store, Where, Within
from lamina.stores.sealed.cipher import Cipher, NotSealedHere, derived, frame_fields, mac
from lamina.stores.sealed.documents import (
    DELETING,
    Card,
    Header,
    as_kept,
    card_holds,
    header_holds,
    key_line,
    new_card,
    new_header,
    parsed,
    rewrapped,
    root_of,
    signed_card,
    signed_header,
    unwrap,
)
from lamina.stores.sealed.keys import Key, Passphrase
from lamina.stores.sealed.passphrase import Cost, Derivation, derivation, derive
from lamina.stores.sealed.records import Generation, SealedPlace

HASHED = "hashed"
PLAIN = "plain"
MOST_CARDS = 4096


class Held:
    """A verified card with its data keys unwrapped."""

    def __init__(self, card: Card, place: SealedPlace, generations: dict[int, Generation]) -> None:
        self.card, self.place, self.generations = card, place, generations

    @property
    def newest(self) -> Generation:
        return self.generations[self.card.data[-1].generation]

    def same_as(self, other: Held | None) -> bool:
        return other is not None and (self.card.id, self.card.change) == (other.card.id, other.card.change)


class Vault:
    """The keys around one store."""

    def __init__(
        self, store: Store, keys: Sequence[Key | Passphrase], *, create: bool, names: str, cost: Cost
    ) -> None:
        if not keys:
            raise BadInput(
                "there is none", place="keys", hint="give a key; conversations are never kept plain"
            )
        if names not in {HASHED, PLAIN}:
            raise BadInput(f"{names!r}", place="names", hint=f"give {HASHED!r} or {PLAIN!r}")
        self.store = store
        self.given: list[Key | Passphrase] = list(keys)
        self._create, self._names_wanted, self._cost = create, names, cost
        self._header: Header | None = None
        self._root = b""
        self._ring: dict[str, Key] = {}
        self._derived: dict[tuple[Passphrase, Derivation], Key] = {}
        self._cards: dict[Where, Held] = {}
        self._inner: dict[Where, Where] = {}
        self._lock = anyio.Lock()

    async def unlock(self, *, fresh: bool = False) -> Header:
        """The header, verified by a key of the ring; made first where that was asked for."""
        if self._header is not None and not fresh:
            return self._header
        async with self._lock:
            if self._header is None or fresh:
                await self._load()
            header = self._header
            if header is None:  # pragma: no cover - loading sets it or raises
                raise StoreError("the header could not be read")
            return header

    async def _load(self) -> None:
        page = await self.store.read(HEADER, last=0)
        if not page.head.count and not page.head.state:
            await self._make_header()
            page = await self.store.read(HEADER, last=0)
        header = parsed(page.head.state, Header, page.head.count)
        root, ring = await self._opened_by(header)
        if not header_holds(header, root):
            raise Tampered("the header is not what was written")
        self._header, self._root, self._ring = header, root, ring
        self._names = derived(root, "lamina/names/1", salt=header.store)
        self._once = derived(root, "lamina/once/1", salt=header.store)

    async def _make_header(self) -> None:
        if not self._create:
            hint = (
                "leave the key away if it is a plain store, give create=True if it is a new one; "
                "if it was sealed, restore it from a backup"
            )
            raise WrongKey("this store is not sealed, or its header is gone", hint=hint)
        key, how = await self._resolved(self.given[0])
        header, root = new_header(key, names=self._names_wanted, how=how)
        try:
            await self.store.append(HEADER, [b""], expect=0, state=signed_header(header, root))
        except Conflict:
            return  # another process was first: its header is read next

    async def _resolved(self, given: Key | Passphrase) -> tuple[Key, Derivation | None]:
        if isinstance(given, Key):
            return given, None
        how = derivation(self._cost)
        return await self._derive(given, how), how

    async def _derive(self, passphrase: Passphrase, how: Derivation) -> Key:
        if (passphrase, how) not in self._derived:
            self._derived[passphrase, how] = await to_thread.run_sync(derive, passphrase, how)
        return self._derived[passphrase, how]

    async def _opened_by(self, header: Header) -> tuple[bytes, dict[str, Key]]:
        root, ring = b"", dict[str, Key]()
        for line in header.keys:
            for given in self.given:
                key = await self._candidate(given, line.derivation)
                found = None if key is None else root_of(line, key, header.store)
                if key is not None and found is not None:
                    root, ring[line.id] = found, key
        if not ring:
            ids = " or ".join(line.id for line in header.keys)
            raise WrongKey("none of the given keys opens this store", hint=f"give the key whose id is {ids}")
        return root, ring

    async def _candidate(self, given: Key | Passphrase, how: Derivation | None) -> Key | None:
        if isinstance(given, Key):
            return given if how is None else None
        return None if how is None else await self._derive(given, how)

    async def change_header(self, change: Callable[[Header], Header | None]) -> Header:
        """Changes the header by compare-and-swap; None leaves it as it is."""
        for _ in attempts():
            header = await self.unlock(fresh=True)
            changed = change(header)
            if changed is None:
                return header
            changed = replace(changed, change=header.change + 1)
            try:
                state, was = signed_header(changed, self._root), as_kept(header)
                await self.store.append(HEADER, [b""], expect=header.change, was=was, state=state)
            except Conflict:
                continue
            return await self.unlock(fresh=True)
        raise AssertionError  # the attempts end in an error

    async def line_for(self, given: Key | Passphrase) -> tuple[str, Callable[[Header], Header | None]]:
        """The id of a key, and the change that adds it to the header; it joins the ring at once."""
        header = await self.unlock()
        key, how = await self._resolved(given)
        self.given.append(given)
        line = key_line(key, header.store, self._root, how)
        return key.id, lambda now: None if now.line(key.id) else replace(now, keys=(*now.keys, line))

    def key(self, named: str, conversation: str = "") -> Key:
        if named not in self._ring:
            hint = "give it too, beside the others"
            raise WrongKey(f"key {named!r} is needed and was not given", conversation=conversation, hint=hint)
        return self._ring[named]

    def has(self, named: str) -> bool:
        return named in self._ring

    async def primary(self) -> Key:
        """The key that wraps what is new, by the header of this moment."""
        return self.key((await self.unlock(fresh=True)).primary)

    # Names. `unlock` came first in every path that leads here.

    def place(self, where: Where) -> SealedPlace:
        return SealedPlace(self._known().store, where.workspace, where.conversation)

    def inner(self, where: Where) -> Where:
        """Where the records of a conversation are kept."""
        if where not in self._inner:
            if len(self._inner) > MOST_CARDS:
                self._inner.clear()
            self._inner[where] = Where(self.inner_workspace(where.workspace), self._inner_conversation(where))
        return self._inner[where]

    def inner_workspace(self, workspace: str) -> Within:
        if self._known().names == PLAIN and "\0" not in workspace:
            if workspace.startswith(RESERVED):
                hint = f"names that begin with {RESERVED!r} are lamina's own"
                raise BadInput(f"{workspace!r}", place="workspace", hint=hint)
            return Within(workspace)
        return Within(_word(mac(self._names, "workspace", workspace)))

    def card_workspace(self, workspace: str) -> str:
        return f"{RESERVED}.{_word(mac(self._names, 'workspace', workspace))}"

    def once(self, where: Where, *fields: str | bytes) -> bytes:
        return mac(self._once, where.workspace, where.conversation, *fields)

    def _inner_conversation(self, where: Where) -> str:
        if self._known().names == PLAIN and "\0" not in where.workspace:
            return where.conversation
        return _word(mac(self._names, "conversation", where.workspace, where.conversation))

    def _known(self) -> Header:
        if self._header is None:
            raise StoreError("the store is not unlocked")
        return self._header

    # Cards.

    async def card(self, where: Where, *, fresh: bool = False) -> Held | None:
        """The card of a conversation, from the cache unless a fresh one is asked for."""
        await self.unlock()
        held = None if fresh else self._cards.get(where)
        if held is None:
            held = await self._read_card(where)
            self._keep(where, held)
        return held

    async def make_card(self, where: Where) -> Held:
        """A card with a new data key, or the one that another writer has just made."""
        key = await self.primary()
        place = self.place(where)
        name = Cipher(self._names).seal(
            where.conversation.encode(), frame_fields(place.store, where.workspace)
        )
        card = new_card(place, key, name)
        try:
            await self._write(where, card, None)
        except Conflict:
            await anyio.lowlevel.checkpoint()
        held = await self.card(where, fresh=True)
        if held is None:
            raise StoreError(
                "it was deleted while it was made", conversation=where.conversation, hint="try again"
            )
        return await self._under_primary(where, held)

    async def _under_primary(self, where: Where, held: Held) -> Held:
        """A new card under the key that is primary now: another process may have changed that meanwhile."""
        try:
            primary = await self.primary()
        except WrongKey:  # it went over to a key that is not here: nobody could read what is kept now
            await self.drop_card(where)
            raise
        changed = await self.change_card(where, lambda now: rewrapped(now.card, now.place, primary, self.key))
        return changed or held

    async def change_card(self, where: Where, change: Callable[[Held], Card | None]) -> Held | None:
        """Changes a card by compare-and-swap; None leaves it as it is. No card, no change."""
        for _ in attempts(where.conversation):
            held = await self.card(where, fresh=True)
            changed = None if held is None else change(held)
            if held is None or changed is None:
                return held
            try:
                await self._write(where, changed, held.card)
            except Conflict:
                continue
            return await self.card(where, fresh=True)
        raise AssertionError  # the attempts end in an error

    async def drop_card(self, where: Where) -> None:
        self._cards.pop(where, None)
        await self.store.delete(self._card_at(where))

    async def name_of(self, workspace: str, kept: str) -> str | None:
        """Whose records are kept under this name: None without a card, "" while it is being deleted."""
        page = await self.store.read(Where(self.card_workspace(workspace), kept), last=0)
        if not page.head.count and not page.head.state:
            return None
        card = parsed(page.head.state, Card, page.head.count)
        try:
            name = Cipher(self._names).open(card.name, frame_fields(self._known().store, workspace)).decode()
        except NotSealedHere:
            raise Tampered("the name on its card is not what was written", conversation=kept) from None
        where = Where(workspace, name)
        if self.inner(where).conversation != kept:
            raise Tampered("its card belongs to another one", conversation=name)
        return "" if card.gone == DELETING else name

    async def _read_card(self, where: Where) -> Held | None:
        page = await self.store.read(self._card_at(where), last=0)
        if not page.head.count and not page.head.state:
            return None
        try:
            card = parsed(page.head.state, Card, page.head.count)
        except Tampered as error:
            raise Tampered(error.problem, conversation=where.conversation) from None
        return await self._opened(where, card)

    async def _opened(self, where: Where, card: Card) -> Held:
        needed = {card.key, *(data.key for data in card.data)}
        if not all(self.has(each) for each in needed):
            await self.unlock(fresh=True)  # a key that came to the ring since
        place = self.place(where)
        if not card_holds(card, place, self.key(card.key, where.conversation)):
            raise Tampered("its card is not what was written", conversation=where.conversation)
        generations = {}
        for data in card.data:
            try:
                secret = unwrap(place, self.key(data.key, where.conversation), data)
            except NotSealedHere:
                problem = f"its data key {data.generation} is not what was written"
                raise Tampered(problem, conversation=where.conversation) from None
            generations[data.generation] = Generation(place, data.generation, secret)
        return Held(card, place, generations)

    async def _write(self, where: Where, card: Card, before: Card | None) -> None:
        """By its bytes, since one of another conversation of this name may have had as many changes."""
        change, was = (before.change, as_kept(before)) if before else (0, b"")
        key = self.key(card.key, where.conversation)
        state = signed_card(replace(card, change=change + 1), self.place(where), key)
        await self.store.append(self._card_at(where), [b""], expect=change, was=was, state=state)

    def _card_at(self, where: Where) -> Where:
        return Where(self.card_workspace(where.workspace), self._inner_conversation(where))

    def _keep(self, where: Where, held: Held | None) -> None:
        self._cards.pop(where, None)
        if held is not None and held.card.gone != DELETING:
            self._cards[where] = held
        while len(self._cards) > MOST_CARDS:
            del self._cards[next(iter(self._cards))]


SWEEP = Where(RESERVED, "sweep")


def _word(data: bytes) -> str:
    """Bytes as a name that every store can keep, whatever it does to letters."""
    return base64.b32encode(data[:25]).decode().lower()
