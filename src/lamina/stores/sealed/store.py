"""Encryption around any store: `Sealed(store, key)` is a store, and what it wraps sees no plain byte.

Every group is sealed, chained and kept with its head in one append of the store within; every read is
verified before anything of it is given. It never skips a record, never reads plain ones, and never takes a
wrong key for an empty history. It knows nothing of what records hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import anyio
from anyio import to_thread
from msgspec.structs import replace

from lamina.errors import BadInput, Conflict, Damaged, Reused, StoreError, Tampered, WrongKey
from lamina.stores.checks import (
    check_append_arguments,
    check_head,
    check_read_arguments,
    check_where,
    check_workspace,
    select_places,
)
from lamina.stores.paging import attempts, every_conversation
from lamina.stores.port import (
    Closes,
    Listed,
    Once,
    Record,
    RecordPage,
    Store,
    StoredHead,
    Where,
    search_place,
)
from lamina.stores.sealed.cipher import same
from lamina.stores.sealed.documents import DELETING, Card
from lamina.stores.sealed.keys import Key, Passphrase
from lamina.stores.sealed.pages import NO_CARD, SeenEnd, VerifiedPage, read_page, seal_group
from lamina.stores.sealed.passphrase import Cost
from lamina.stores.sealed.records import SealedState
from lamina.stores.sealed.vault import HASHED, Held, Vault

INDEX = Where("\0index", "workspaces")
"""A sealed conversation of lamina's own, which names every workspace. No caller can name it."""

NEVER = 2**62
"""More records than a conversation can have: asks the store within for a repeated group, and writes none."""

PATIENCE = 100
"""How often a writer looks again, 20 ms apart, while another process deletes the conversation."""

LARGE = 262_144
"""Bytes above which sealing and opening go to a worker thread."""

MOST_SEEN = 65_536
Answer = TypeVar("Answer")


class Sealed:
    """A store that seals what it is given, around one that keeps it.

    `keys` are the ring: any of them may be needed to read, and the header says which one wraps new data keys.
    `create` allows a header to be made where there is none: once, for a new store. `names` is "hashed" or
    "plain": how workspaces and conversations are called within. `bucket` fills bodies up to a multiple of so
    many bytes.
    """

    def __init__(
        self,
        store: Store,
        keys: Key | Passphrase | Sequence[Key | Passphrase],
        *,
        create: bool = False,
        names: str = HASHED,
        bucket: int = 1,
        cost: Cost | None = None,
    ) -> None:
        if bucket < 1:
            raise BadInput(f"{bucket!r}", place="bucket", hint="give a number of bytes, 1 for no padding")
        ring = [keys] if isinstance(keys, Key | Passphrase) else list(keys)
        self.store = store
        self.vault = Vault(store, ring, create=create, names=names, cost=cost or Cost())
        self.bucket = bucket
        self._seen: dict[Where, SeenEnd] = {}
        self._listed: set[str] = set()
        self._names: dict[tuple[str, str], str] = {}
        self._locks: WeakValueDictionary[Where, anyio.Lock] = WeakValueDictionary()

    async def append(
        self,
        where: Where,
        records: Sequence[bytes],
        *,
        expect: int | None = None,
        was: bytes | None = None,
        once: Once | None = None,
        state: bytes | None = None,
    ) -> StoredHead:
        check_append_arguments(where, records, expect=expect, was=was, once=once, state=state)
        return await self._append(where, list(records), expect=expect, was=was, once=once, body=state)

    async def read(
        self,
        where: Where,
        *,
        after: int = 0,
        last: int | None = None,
        at: Sequence[int] | None = None,
        limit: int | None = None,
    ) -> RecordPage:
        check_where(where)
        check_read_arguments(after=after, last=last, at=at, limit=limit)
        reading = await self.reading(where, after=after, last=last, at=at, limit=limit)
        opened = zip(reading.seqs, reading.records, strict=True)
        records = tuple(Record(seq=seq, body=record.body) for seq, record in opened)
        return RecordPage(
            records=records, head=StoredHead(count=reading.state.count, state=reading.state.body)
        )

    async def list(self, workspace: str, *, after: str = "", limit: int = 1000) -> Sequence[Listed]:
        """As the port says. The counts are those of the store within; `read` verifies them."""
        check_workspace(workspace)
        check_read_arguments(limit=limit)
        await self.vault.unlock()
        counts = await self.every(self.vault.inner_workspace(workspace))
        found = [
            (name, count) for kept, count in counts.items() if (name := await self._name(workspace, kept))
        ]
        await self._check_none_missing(workspace, counts)
        listed = sorted((name, count) for name, count in found if name > after)[:limit]
        return [Listed(conversation=name, count=count) for name, count in listed]

    async def delete(self, where: Where) -> bool:
        """As the port says; the search index goes first, so that nothing of what is gone can be found."""
        check_where(where)
        await self.delete_index(where)
        return await self._delete(where)

    async def delete_index(self, where: Where) -> None:
        """Removes what the search index knows of a conversation."""
        index = search_place(where)
        if index is not None and await self.vault.card(index, fresh=True) is not None:
            await self._delete(index)

    async def _delete(self, where: Where) -> bool:
        async with self.lock(where):
            held = await self.vault.card(where, fresh=True)
            if held is None:
                return await self.store.delete(self.vault.inner(where))
            head = (await self.store.read(self.vault.inner(where), last=0)).head
            if held.card.gone != DELETING:
                if not head.count and not head.state and not held.card.begun:
                    return False  # another writer is making it
                await self.vault.change_card(where, lambda now: replace(now.card, gone=DELETING))
            await self.store.delete(self.vault.inner(where))
            await self.vault.drop_card(where)
            self._seen.pop(where, None)
            return True

    async def close(self) -> None:
        if isinstance(self.store, Closes):
            await self.store.close()

    def lock(self, where: Where) -> anyio.Lock:
        """Lets the writers of one process wait for each other; the store within decides the rest."""
        lock = self._locks.get(where)
        if lock is None:
            lock = self._locks[where] = anyio.Lock()
        return lock

    async def reading(
        self,
        where: Where,
        *,
        after: int = 0,
        last: int | None = None,
        at: Sequence[int] | None = None,
        limit: int | None = None,
    ) -> VerifiedPage:
        """A verified page. What the card in the cache does not open is tried again with a fresh one."""
        seen, tried = self._seen.get(where), False
        held = await self.vault.card(where)
        for _ in attempts(where.conversation):
            page = await self._read_within(where, after=after, last=last, at=at, limit=limit)
            meant = select_places(page.head.count, after=after, last=last, at=at, limit=limit)
            try:
                reading = await self._open(held, page, meant, seen)
            except (Tampered, WrongKey) as error:
                again = await self.vault.card(where, fresh=True)
                if tried and (held is again if held is None or again is None else held.same_as(again)):
                    raise _named(error, where) from None
                held, tried = again, True
                continue
            self._remember(where, reading)
            return reading
        raise AssertionError  # the attempts end in an error

    async def _read_within(self, where: Where, **asked: Any) -> RecordPage:
        """What the store within gives; what it finds damaged is told with the name that the caller knows."""
        try:
            return await self.store.read(self.vault.inner(where), **asked)
        except Damaged as error:
            raise _named(error, where) from error

    async def workspaces(self) -> Sequence[str]:
        """Every workspace in which something was ever kept."""
        reading = await self.reading(INDEX)
        return [record.body.decode() for record in reading.records]

    # Writing.

    async def _append(
        self,
        where: Where,
        records: Sequence[bytes],
        *,
        expect: int | None = None,
        was: bytes | None = None,
        once: Once | None = None,
        body: bytes | None = None,
    ) -> StoredHead:
        """The store within compares its own bytes; if they changed, it is all looked at again."""
        before = b""
        async with self.lock(where):
            for _ in attempts(where.conversation):
                reading = await self._ready(where)
                if before and reading.kept == before:
                    raise Tampered("the store refuses what it gives", conversation=where.conversation)
                key, before = self._hidden(where, once), reading.kept
                conflict = _conflict(where, reading.state, expect=expect, was=was)
                try:
                    if conflict is not None:
                        return await self._earlier(where, key, conflict)
                    return await self._group(where, reading, records, once=key, body=body)
                except Conflict:
                    if conflict is not None:
                        raise conflict from None
                except Reused as error:
                    raise _named(error, where) from None
        raise AssertionError  # the attempts end in an error

    async def _ready(self, where: Where) -> VerifiedPage:
        """Where the conversation ends; its card is made first if it has none.

        The last record comes along since it tells, before the state does, that there is a newer data key.
        """
        reading = await self.reading(where, last=1)
        for _ in range(PATIENCE):
            if reading.held is None or reading.held.card.gone != DELETING:
                break
            await anyio.sleep(0.02)
            reading = await self.reading(where, last=1)
        else:
            hint = "delete it again"
            raise StoreError("its deletion was not finished", conversation=where.conversation, hint=hint)
        if reading.held is None:
            await self._note_workspace(where.workspace)
            await self.vault.make_card(where)
            reading = await self.reading(where, last=1)
        return reading

    async def _group(
        self,
        where: Where,
        reading: VerifiedPage,
        records: Sequence[bytes],
        *,
        once: Once | None,
        body: bytes | None,
    ) -> StoredHead:
        held = _there(reading, where)
        size = sum(map(len, records)) + len(reading.state.body if body is None else body)
        seal = partial(seal_group, held, reading.state, records, body, bucket=self.bucket)
        sealed, kept, new = await _work(size, seal)
        inner, count = self.vault.inner(where), reading.state.count
        head = await self.store.append(inner, sealed, expect=count, was=reading.kept, once=once, state=kept)
        if head.state != kept:
            return await self._repeated(where, head)
        self._saw(where, held, new)
        if not held.card.begun:
            await self.vault.change_card(where, _begun)
        return StoredHead(count=new.count, state=new.body)

    async def _earlier(self, where: Where, once: Once | None, conflict: Conflict) -> StoredHead:
        """What the store within answers to a key that it knows; without one, nothing but the conflict."""
        if once is None:
            raise conflict
        head = await self.store.append(self.vault.inner(where), [], expect=NEVER, once=once)
        return await self._repeated(where, head)

    async def _repeated(self, where: Where, head: StoredHead) -> StoredHead:
        """The count of the first time, with the state of now."""
        reading = await self.reading(where, last=0)
        if not reading.exists:
            raise _deleted(where)
        if head.count > reading.state.count:
            problem = "an idempotency key answers with records that are not there"
            raise Tampered(problem, conversation=where.conversation)
        return StoredHead(count=head.count, state=reading.state.body)

    def _hidden(self, where: Where, once: Once | None) -> Once | None:
        """An idempotency key that says nothing: neither key nor digest of anything plain goes within."""
        if once is None:
            return None
        key = self.vault.once(where, "key", once.key).hex()
        return Once(key=key, digest=self.vault.once(where, "digest", once.key, once.digest))

    async def _note_workspace(self, workspace: str) -> None:
        if workspace == INDEX.workspace or workspace in self._listed:
            return
        name = workspace.encode()
        await self._append(INDEX, [name], once=Once(key=workspace, digest=name))
        self._listed.add(workspace)

    # Reading.

    async def _open(
        self, held: Held | None, page: RecordPage, meant: Sequence[int], seen: SeenEnd | None
    ) -> VerifiedPage:
        size = sum(len(record.body) for record in page.records) + len(page.head.state)
        return await _work(size, partial(read_page, held, page, meant, seen))

    async def every(self, workspace: str) -> dict[str, int]:
        """What the store within keeps in one of its own workspaces: names, and how many records each has."""
        listed = every_conversation(self.store, workspace)
        return {each.conversation: each.count async for each in listed}

    async def _name(self, workspace: str, kept: str) -> str:
        """The name of a conversation; "" if it was deleted meanwhile, or is being deleted."""
        name = self._names.get((workspace, kept)) or await self.vault.name_of(workspace, kept)
        if name is None:
            head = (await self.store.read(Where(self.vault.inner_workspace(workspace), kept), last=0)).head
            if not head.count and not head.state:
                return ""
            name = await self.vault.name_of(workspace, kept)
        if name is None:
            raise Tampered(NO_CARD, conversation=kept)
        if name:
            self._names[workspace, kept] = name
        return name

    async def _check_none_missing(self, workspace: str, counts: dict[str, int]) -> None:
        """A card without records: still being made, or its records are gone, which `reading` tells apart."""
        for kept in await self.every(self.vault.card_workspace(workspace)):
            name = None if kept in counts else await self.vault.name_of(workspace, kept)
            if name:
                await self.reading(Where(workspace, name), last=0)

    def _remember(self, where: Where, reading: VerifiedPage) -> None:
        if reading.held is not None and reading.exists:
            self._saw(where, reading.held, reading.state)
        elif reading.held is None:
            self._seen.pop(where, None)

    def _saw(self, where: Where, held: Held, state: SealedState) -> None:
        seen = self._seen.pop(where, None)
        if seen is None or not same(seen.card, held.card.id) or seen.count <= state.count:
            seen = SeenEnd(held.card.id, state.count, state.link)
        self._seen[where] = seen
        if len(self._seen) > MOST_SEEN:
            del self._seen[next(iter(self._seen))]


def _begun(held: Held) -> Card | None:
    return None if held.card.begun else replace(held.card, begun=True)


def _there(reading: VerifiedPage, where: Where) -> Held:
    if reading.held is None:
        raise _deleted(where)
    return reading.held


def _deleted(where: Where) -> StoreError:
    return StoreError("it was deleted meanwhile", conversation=where.conversation, hint="try again")


def _conflict(where: Where, found: SealedState, *, expect: int | None, was: bytes | None) -> Conflict | None:
    try:
        check_head(where, StoredHead(count=found.count, state=found.body), expect=expect, was=was)
    except Conflict as conflict:
        return conflict
    return None


def _named(error: StoreError, where: Where) -> StoreError:
    """The same error with the name that the caller knows."""
    named = type(error)(error.problem, conversation=where.conversation, hint=error.hint)
    if isinstance(error, Damaged) and isinstance(named, Damaged):
        named.whole = error.whole
    return named


async def _work(size: int, work: Callable[[], Answer]) -> Answer:
    return await to_thread.run_sync(work) if size > LARGE else work()
