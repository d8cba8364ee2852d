"""Encryption around any store: `Sealed(store, key)` is a store, and the store within sees no plain byte.

Every group is sealed, chained and written with its state in one append of the store within. Every read is
verified before anything of it is returned. `Sealed` never skips a record, never reads plain ones, and never
mistakes a wrong key for an empty history. It does not know what records hold.

It does not notice that a conversation or the whole store was removed, or put back as it was once: nothing in
the store could tell that from what its owner did.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from weakref import WeakValueDictionary

import anyio
import msgspec
from anyio import to_thread

from lamina.errors import BadInput, Conflict, Damaged, Reused, Tampered, WrongKey
from lamina.stores.checked import CheckedStore, NewGroup, RecordSelection, Replacement
from lamina.stores.paging import attempts, every_conversation
from lamina.stores.port import (
    HEADER,
    ListedConversation,
    Once,
    Record,
    RecordPage,
    Rekeyable,
    Rescuable,
    Store,
    StoredHead,
    Where,
    places_beside,
)
from lamina.stores.sealed.ciphers import (
    GENESIS,
    ID,
    ConversationCipher,
    RootCipher,
    SealedRecord,
    new_header,
    open_header,
)
from lamina.stores.sealed.keys import Key, Passphrase

NEVER = 2**62
"""More records than a conversation can have. Expecting so many finds a repeated group and writes nothing."""

MOST_CIPHERS = 4096
"""Conversations whose ciphers are remembered, so that they need not be derived again."""

RESCUE = "restore it from a backup, or keep what can be read: lamina store export NAME --damaged"


class Sealed(CheckedStore):
    """A store that encrypts what it gets, and writes it to the store within.

    `create` allows a header to be made if there is none: once, for a new store.
    """

    def __init__(self, store: Store, key: Key | Passphrase, *, create: bool = False) -> None:
        if not isinstance(key, Key | Passphrase):
            hint = "give one Key or Passphrase; to change it, copy: lamina store copy --new-key-file"
            raise BadInput(f"a {type(key).__name__}", place="key", hint=hint)
        self.store = store
        self._key = key
        self._create = create
        self._root: RootCipher | None = None
        self._ciphers: dict[Where, ConversationCipher] = {}
        self._unlocking = anyio.Lock()
        # A lock lives as long as a writer holds it or waits for it.
        self._locks: WeakValueDictionary[Where, anyio.Lock] = WeakValueDictionary()

    async def unlock(self) -> RootCipher:
        """Read the header, and prove that the key is the one that wrote it. A new store gets one."""
        async with self._unlocking:
            if self._root is None:
                page = await self.store.read(HEADER, last=0)
                if page.head.is_empty:
                    await self._make_header()
                    page = await self.store.read(HEADER, last=0)
                self._root = await to_thread.run_sync(open_header, page.head.state, self._key)
            return self._root

    async def inner(self, where: Where) -> Where:
        """Where a conversation stands in the store within."""
        return (await self._cipher(where)).inner

    async def _make_header(self) -> None:
        """Write the header of a new store. If another process is first, its header is used."""
        if not self._create:
            hint = (
                "open it without a key if it is a plain store, give create=True if it is a new one; "
                "if it was sealed, restore it from a backup"
            )
            raise WrongKey("this store is not sealed, or its header is gone", hint=hint)
        header = await to_thread.run_sync(new_header, self._key)
        with suppress(Conflict):
            await self.store.append(HEADER, [b""], expect=0, state=header)

    async def _cipher(self, where: Where) -> ConversationCipher:
        if where not in self._ciphers:
            root = self._root or await self.unlock()
            if len(self._ciphers) >= MOST_CIPHERS:
                self._ciphers.clear()
            self._ciphers[where] = root.conversation(where)
        return self._ciphers[where]

    async def _read_page(self, where: Where, selection: RecordSelection) -> RecordPage:
        page = await self._read_sealed(where, selection)
        return RecordPage(records=tuple(sealed.record for sealed in page.records), head=page.head)

    async def _read_sealed(self, where: Where, selection: RecordSelection) -> SealedPage:
        """Read and verify. The store within may hide, repeat, reorder or replace what it was given."""
        cipher = await self._cipher(where)
        with _naming(where):
            page = await self._read_within(cipher.inner, selection)
            head, last_id = cipher.open_state(page.head)
            places = selection.places(head.count)
            if [record.seq for record in page.records] != list(places):
                raise Tampered("records are missing, or the store returned others")
            records = [cipher.open_record(record) for record in page.records]
            _check_chain(records, head.count, last_id)
        return SealedPage(head=head, last_id=last_id, sealed_state=page.head.state, records=records)

    async def _read_within(self, inner: Where, selection: RecordSelection) -> RecordPage:
        if selection.at is not None:
            return await self.store.read(inner, at=selection.at, limit=selection.limit)
        if selection.last is not None:
            return await self.store.read(inner, last=selection.last, limit=selection.limit)
        return await self.store.read(inner, after=selection.after, limit=selection.limit)

    async def _list_page(self, workspace: str, *, after: str, limit: int) -> Sequence[ListedConversation]:
        """As the port says. The counts are those of the store within; `read` verifies them."""
        root = await self.unlock()
        conversations: list[ListedConversation] = []
        async for listed in every_conversation(self.store, root.inner_workspace(workspace)):
            name = root.open_name(workspace, listed.conversation)
            if name > after:
                conversations.append(ListedConversation(conversation=name, count=listed.count))
        conversations.sort(key=lambda listed: listed.conversation)
        return conversations[:limit]

    async def _delete(self, where: Where) -> bool:
        """As the port says. What is beside it goes first, so that nothing deleted can be found."""
        for place in places_beside(where):
            await self.store.delete(await self.inner(place))
        return await self.store.delete(await self.inner(where))

    async def _append_group(self, group: NewGroup) -> StoredHead:
        """Append a group. If another process was first, all is read again."""
        where = group.where
        async with self._lock(where):
            for _ in attempts(where.conversation):
                page = await self._read_sealed(where, RecordSelection(last=0))
                try:
                    head = group.head_after(page.head)
                except Conflict as conflict:
                    # A group that was added before succeeds again, whatever its writer expects.
                    return await self._find_repeated(group, conflict)
                with suppress(Conflict):
                    return await self._write_group(group, page, head)
        raise AssertionError  # the attempts end in an error

    async def _write_group(self, group: NewGroup, page: SealedPage, new_head: StoredHead) -> StoredHead:
        """Seal a group and append it, if the conversation is still as it was read."""
        where = group.where
        cipher = await self._cipher(where)
        bodies: list[bytes] = []
        last_id = page.last_id
        for seq, body in enumerate(group.records, page.head.count):
            own_id = os.urandom(ID)
            bodies.append(cipher.seal_record(seq, last_id, own_id, body))
            last_id = own_id
        state = cipher.seal_state(new_head, last_id)
        with _naming(where):
            stored = await self.store.append(
                cipher.inner,
                bodies,
                expect=page.head.count,
                was=page.sealed_state,
                once=_hide_once(cipher, group.once),
                state=state,
            )
        if stored.state != state:  # the key was used before, and nothing was written
            return await self._repeated_head(where, stored)
        return new_head

    async def _find_repeated(self, group: NewGroup, conflict: Conflict) -> StoredHead:
        """The head of a group that was added before; raises the conflict if it was not."""
        if group.once is None:
            raise conflict
        cipher = await self._cipher(group.where)
        try:
            with _naming(group.where):
                once = _hide_once(cipher, group.once)
                stored = await self.store.append(cipher.inner, [], expect=NEVER, once=once)
        except Conflict:
            raise conflict from None
        return await self._repeated_head(group.where, stored)

    async def _repeated_head(self, where: Where, stored: StoredHead) -> StoredHead:
        """The count of the first time, with the state of now. The store within could have made it up."""
        page = await self._read_sealed(where, RecordSelection(last=0))
        if stored.count > page.head.count:
            problem = f"an idempotency key names {stored.count} records, which are not there"
            raise Tampered(problem, conversation=where.conversation)
        return StoredHead(count=stored.count, state=page.head.state)

    async def _replace_records(self, replacement: Replacement) -> StoredHead:
        """Change bodies in place, for a text that has to go. A record keeps its id, so its neighbours hold.

        Whoever can write to the store within and has an old copy can put that record back: it has the same
        id. Copied into a store with another key, nothing opens the old copy.
        """
        where = replacement.where
        if not isinstance(self.store, Rekeyable):
            raise BadInput("it cannot replace records", place="store", hint="copy into a store that can")
        cipher = await self._cipher(where)
        async with self._lock(where):
            for _ in attempts(where.conversation):
                page = await self._read_sealed(where, RecordSelection(at=tuple(sorted(replacement.bodies))))
                if not page.sealed_state:
                    replacement.raise_missing()
                head = replacement.head_after(page.head)
                bodies = {
                    old.record.seq: cipher.seal_record(
                        old.record.seq, old.before, old.id, replacement.bodies[old.record.seq]
                    )
                    for old in page.records
                }
                with suppress(Conflict), _naming(where):
                    await self.store.replace(
                        cipher.inner,
                        bodies,
                        expect=head.count,
                        was=page.sealed_state,
                        state=cipher.seal_state(head, page.last_id),
                    )
                    return head
        raise AssertionError  # the attempts end in an error

    async def rescue(self, where: Where) -> Sequence[Record]:
        """The records of a damaged conversation that are what was written, in their order.

        Each is verified by itself. What was cut off, or put back to an older copy, nobody can see here.
        """
        cipher = await self._cipher(where)
        if isinstance(self.store, Rescuable):
            sealed_records = await self.store.rescue(cipher.inner)
        else:
            sealed_records = (await self.store.read(cipher.inner)).records
        records: list[Record] = []
        for sealed_record in sealed_records:
            with suppress(Tampered):
                records.append(cipher.open_record(sealed_record).record)
        return records

    def _lock(self, where: Where) -> anyio.Lock:
        """The lock between the writers of this process. Between processes the store within decides."""
        lock = self._locks.get(where)
        if lock is None:
            lock = anyio.Lock()
            self._locks[where] = lock
        return lock


class SealedPage(msgspec.Struct, frozen=True, kw_only=True):
    """Verified records, the head that the caller sees, and the state as the store within has it."""

    head: StoredHead
    last_id: bytes
    sealed_state: bytes
    records: Sequence[SealedRecord]


def _check_chain(records: Sequence[SealedRecord], count: int, last_id: bytes) -> None:
    """Raise Tampered if a record does not continue the one before it, or is not the last.

    Of a run in the middle nobody knows which records stand around it.
    """
    ids = {sealed.record.seq: sealed.id for sealed in records}
    ids[-1] = GENESIS
    for sealed in records:
        seq = sealed.record.seq
        if ids.get(seq - 1, sealed.before) != sealed.before:
            raise Tampered(f"record {seq} does not continue the one before it")
        if seq == count - 1 and sealed.id != last_id:
            raise Tampered(f"record {seq} is not the last that was written")


def _hide_once(cipher: ConversationCipher, once: Once | None) -> Once | None:
    """An idempotency key as the store within sees it."""
    if once is None:
        return None
    return Once(key=cipher.hide(once.key.encode()).hex(), digest=cipher.hide(b"digest", once.digest))


@contextmanager
def _naming(where: Where) -> Iterator[None]:
    """Name the conversation in an error as the caller knows it, and say how to save what is left."""
    try:
        yield
    except Damaged as damage:
        named = Damaged(damage.problem, conversation=where.conversation, hint=damage.hint)
        named.whole = damage.whole
        raise named from None
    except Reused as error:
        raise Reused(error.problem, conversation=where.conversation, hint=error.hint) from None
    except Tampered as error:
        raise Tampered(error.problem, conversation=where.conversation, hint=error.hint or RESCUE) from None
