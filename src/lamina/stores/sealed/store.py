"""Encryption around any store: `Sealed(store, key)` is a store, and the store within sees no plain byte.

Every group is sealed, chained and written with its head in one append of the store within. Every read is
verified before anything of it is returned. `Sealed` never skips a record, never reads plain ones, and never
mistakes a wrong key for an empty history. It does not know what records hold.

A deletion marks the card, deletes the records, then drops the card. The mark destroys the data keys. If the
rest is interrupted, the mark tells the next reader that nobody tampered with the conversation, and the next
writer that the deletion has to be finished first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from weakref import WeakValueDictionary

import anyio
import msgspec
from msgspec.structs import replace

from lamina.errors import BadInput, Conflict, Damaged, Reused, StoreError, Tampered
from lamina.stores.checked import CheckedStore, NewGroup, RecordSelection, Replacement
from lamina.stores.checks import check_workspace
from lamina.stores.paging import attempts, every_conversation, retry_overtaken
from lamina.stores.port import (
    OWN_PREFIXES,
    ListedConversation,
    Once,
    OwnName,
    Record,
    RecordPage,
    Rekeyable,
    Rescuable,
    Store,
    StoredHead,
    Where,
    places_beside,
)
from lamina.stores.sealed.cards import Cards, OpenCard, withdraw
from lamina.stores.sealed.documents import Card, mark_deleting
from lamina.stores.sealed.keys import Cost, Key, Passphrase
from lamina.stores.sealed.reader import (
    EVERYTHING,
    NO_CARD,
    NOTHING,
    VerifiedPage,
    VerifiedReader,
    name_conversation,
    read_whole_records,
    run_by_size,
)
from lamina.stores.sealed.records import MOST_RECORDS, SealedState, seal_record, seal_state
from lamina.stores.sealed.vault import HASHED, Vault

INDEX = Where("\0index", "workspaces")
"""A sealed conversation of lamina's own, which names every workspace. No caller can name it."""

_LAST_RECORD = RecordSelection(last=1)

NEVER = 2**62
"""More records than a conversation can have. Expecting so many finds a repeated group and writes nothing."""


class Sealed(CheckedStore):
    """A store that encrypts what it gets, and writes it to the store within.

    `keys` are the ring: any of them may be needed to read, and the header says which one wraps new data keys.
    `create` allows a header to be made if there is none: once, for a new store. `names` is "hashed" or
    "plain": the names of workspaces and conversations in the store within. `bucket` pads bodies to a multiple
    of so many bytes.
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
        if isinstance(keys, Key | Passphrase):
            keys = [keys]
        self.store = store
        self.vault = Vault(store, keys, create=create, names=names, cost=cost or Cost())
        self.cards = Cards(store, self.vault)
        self.reader = VerifiedReader(store, self.vault, self.cards)
        self._deletion = Deletion(store, self.vault, self.cards, self.reader)
        self.bucket = bucket
        self._noted_workspaces: set[str] = set()
        self._names: dict[tuple[str, str, int], str] = {}
        # A lock lives as long as a writer holds it or waits for it.
        self._locks: WeakValueDictionary[Where, anyio.Lock] = WeakValueDictionary()

    async def _read_page(self, where: Where, selection: RecordSelection) -> RecordPage:
        page = await self.reader.read(where, selection)
        records = tuple(Record(seq=record.seq, body=record.body) for record in page.records)
        return RecordPage(records=records, head=page.state.head)

    async def _list_page(self, workspace: str, *, after: str, limit: int) -> Sequence[ListedConversation]:
        """As the port says. The counts are those of the store within; `read` verifies them."""
        await self.vault.unlock()
        counts = await self.count_within(self.vault.names.inner_workspace(workspace))
        changes = await self.count_within(self.vault.names.card_workspace(workspace))
        conversations: list[ListedConversation] = []
        for inner_name, count in counts.items():
            name = await self._name_of(workspace, inner_name, changes.get(inner_name))
            if name and name > after:
                conversations.append(ListedConversation(conversation=name, count=count))
        await self._check_none_missing(workspace, changes.keys() - counts.keys())
        conversations.sort(key=lambda listed: listed.conversation)
        return conversations[:limit]

    async def _delete(self, where: Where) -> bool:
        """As the port says. What is beside it goes first, so that nothing deleted can be found."""
        await self.delete_beside(where)
        return await self._delete_one(where)

    async def delete_beside(self, where: Where) -> None:
        """Delete what is beside a conversation: its search index, and its record, which has its title."""
        for place in places_beside(where):
            if await self.cards.read(place, fresh=True) is not None:
                await self._delete_one(place)

    async def _delete_one(self, where: Where) -> bool:
        async with self.lock(where):
            return await self._deletion.delete(where)

    async def unfinished_deletions(self, workspace: str) -> Sequence[str]:
        """The conversations of a workspace whose deletion was interrupted: their keys are gone already.

        Whoever deletes such a conversation again, or begins a new one under its name, finishes that.
        """
        check_workspace(workspace)
        await self.vault.unlock()
        names: list[str] = []
        for inner_name in await self.count_within(self.vault.names.card_workspace(workspace)):
            named_card = await self.cards.named_card(workspace, inner_name)
            if named_card is not None and named_card.is_deleting:
                names.append(named_card.name)
        return sorted(names)

    async def rescue(self, where: Where) -> Sequence[Record]:
        """The records of a damaged conversation that are what was written, in their order.

        Each is verified by itself. What was cut off, or put back to an older copy, nobody can see here.
        """
        open_card = await self.cards.read(where)
        if open_card is None:
            return ()
        inner = self.vault.inner(where)
        if isinstance(self.store, Rescuable):
            sealed_records = await self.store.rescue(inner)
        else:
            sealed_records = (await self.store.read(inner)).records
        return read_whole_records(open_card, sealed_records)

    def lock(self, where: Where) -> anyio.Lock:
        """The lock between the writers of this process. Between processes the store within decides."""
        lock = self._locks.get(where)
        if lock is None:
            lock = anyio.Lock()
            self._locks[where] = lock
        return lock

    async def workspaces(self) -> Sequence[str]:
        """Every workspace that ever had a conversation, lamina's own among them."""
        page = await self.reader.read(INDEX, EVERYTHING)
        workspaces: list[str] = []
        for record in page.records:
            name = record.body.decode()
            if name.startswith(OWN_PREFIXES):
                name = OwnName(name)
            workspaces.append(name)
        return workspaces

    async def count_within(self, workspace: str) -> dict[str, int]:
        """The names in a workspace of the store within, and how many records each has."""
        conversations = every_conversation(self.store, workspace)
        return {listed.conversation: listed.count async for listed in conversations}

    async def _name_of(self, workspace: str, inner_name: str, changes: int | None) -> str:
        """The name of a conversation; "" if it was deleted meanwhile, or is being deleted.

        `changes` is how often its card was changed. A card that is marked for deletion was changed once more,
        maybe by a process that was killed right after.
        """
        if changes is not None and (workspace, inner_name, changes) in self._names:
            return self._names[workspace, inner_name, changes]
        named_card = await self.cards.named_card(workspace, inner_name)
        if named_card is None:
            # Its card may have been dropped since the list was made. Then its records are gone too.
            inner = Where(self.vault.names.inner_workspace(workspace), inner_name)
            page = await self.store.read(inner, last=0)
            if page.head.is_empty:
                return ""
            named_card = await self.cards.named_card(workspace, inner_name)
        if named_card is None:
            raise Tampered(NO_CARD, conversation=inner_name)
        if named_card.is_deleting:
            return ""
        if changes is not None:
            self._names[workspace, inner_name, changes] = named_card.name
        return named_card.name

    async def _check_none_missing(self, workspace: str, inner_names: Iterable[str]) -> None:
        """Look at cards without records: the reader raises if the records were there once."""
        for inner_name in inner_names:
            named_card = await self.cards.named_card(workspace, inner_name)
            if named_card is not None and not named_card.is_deleting:
                await self.reader.read(Where(workspace, named_card.name), NOTHING)

    async def _append_group(self, group: NewGroup) -> StoredHead:
        """Append a group. If the bytes of the store within have changed meanwhile, all is read again."""
        where = group.where
        previous_state = b""
        async with self.lock(where):
            for _ in attempts(where.conversation):
                page = await self._read_end(where)
                if previous_state and page.sealed_state == previous_state:
                    raise Tampered(
                        "the store refuses the state that it has just returned",
                        conversation=where.conversation,
                    )
                previous_state = page.sealed_state
                hidden_once = self._hide_once(where, group.once)
                try:
                    head = group.head_after(page.state.head)
                except Conflict as conflict:
                    # A group that was added before succeeds again, whatever its writer expects.
                    return await self._find_repeated(where, hidden_once, conflict)
                with suppress(Conflict):  # another process was first
                    return await self._write_group(group, page, head, once=hidden_once)
        raise AssertionError  # the attempts end in an error

    async def _replace_records(self, replacement: Replacement) -> StoredHead:
        """Change bodies in place, for a text that has to go. A record keeps its id, so the links hold.

        Whoever can write to the store within and has an old copy can put that record back: it has the same
        id. After `rekey` and `finish` no key opens that copy.
        """
        where = replacement.where
        bodies = replacement.bodies
        store = require_rekeyable(self.store)
        async with self.lock(where):
            for _ in attempts(where.conversation):
                page = await self.reader.read(where, RecordSelection(at=tuple(sorted(bodies))))
                if page.card_in_use is None:
                    replacement.raise_missing()
                head = replacement.head_after(page.state.head)
                newest = page.card_in_use.newest
                sealed_bodies: dict[int, bytes] = {}
                for record in page.records:
                    body = bodies[record.seq]
                    sealed_bodies[record.seq], _ = seal_record(
                        newest, record.seq, record.before, body, bucket=self.bucket, own=record.id
                    )
                state = replace(page.state, body=head.state, generation=newest.number)
                with suppress(Conflict):  # another process was first
                    await store.replace(
                        self.vault.inner(where),
                        sealed_bodies,
                        expect=page.state.count,
                        was=page.sealed_state,
                        state=seal_state(newest, state, bucket=self.bucket),
                    )
                    return head
        raise AssertionError  # the attempts end in an error

    async def _read_end(self, where: Where) -> VerifiedPage:
        """The end of a conversation. If it has no card, one is made first.

        A deletion that another process began is finished first: that process may have been killed.
        The last record is read too: it may need a newer data key, before the state does.
        """
        page = await self.reader.read(where, _LAST_RECORD)
        for _ in attempts(where.conversation):
            if page.open_card is None or not page.open_card.is_deleting:
                break
            await self._deletion.finish(where, page.open_card)
            page = await self.reader.read(where, _LAST_RECORD)
        if page.open_card is None:
            # The workspace first: a rotation of keys finds cards by their workspaces, and must not miss one.
            await self._note_workspace(where.workspace)
            await self.cards.make(where)
            page = await self.reader.read(where, _LAST_RECORD)
        return page

    async def _write_group(
        self, group: NewGroup, page: VerifiedPage, new_head: StoredHead, *, once: Once | None
    ) -> StoredHead:
        """Seal a group and append it, if the conversation is still as it was read."""
        where = group.where
        open_card = page.open_card
        if open_card is None:
            raise _deleted_error(where)
        sealed_group = await self._seal_group(open_card, page.state, group.records, new_head.state)
        try:
            head = await self.store.append(
                self.vault.inner(where),
                sealed_group.records,
                expect=page.state.count,
                was=page.sealed_state,
                once=once,
                state=sealed_group.sealed_state,
            )
        except Reused as error:
            raise name_conversation(error, where) from None
        if head.state != sealed_group.sealed_state:  # the key was used before, and nothing was written
            return await self._repeated_head(where, head)
        self.reader.remember_end(where, open_card, sealed_group.state)
        # Not before the append: a card that says `begun` beside no records means that they were cut off.
        if not open_card.card.begun:
            await self.cards.change(where, _mark_begun)
        return new_head

    async def _seal_group(
        self, open_card: OpenCard, previous: SealedState, records: Sequence[bytes], state: bytes
    ) -> SealedGroup:
        """Seal a group, in a thread if it is large, so that other tasks go on."""
        size = sum(map(len, records)) + len(state)
        seal = partial(seal_group, open_card, previous, records, state, bucket=self.bucket)
        return await run_by_size(size, seal)

    async def _find_repeated(self, where: Where, once: Once | None, conflict: Conflict) -> StoredHead:
        """The answer to an idempotency key that the store within knows; raises `conflict` without one."""
        if once is None:
            raise conflict
        try:
            head = await self.store.append(self.vault.inner(where), [], expect=NEVER, once=once)
        except Conflict:
            raise conflict from None
        except Reused as error:
            raise name_conversation(error, where) from None
        return await self._repeated_head(where, head)

    async def _repeated_head(self, where: Where, head: StoredHead) -> StoredHead:
        """The count of the first time, with the state of now."""
        page = await self.reader.read(where, NOTHING)
        if not page.exists:
            raise _deleted_error(where)
        if head.count > page.state.count:
            problem = "an idempotency key answers with records that are not there"
            raise Tampered(problem, conversation=where.conversation)
        return StoredHead(count=head.count, state=page.state.body)

    def _hide_once(self, where: Where, once: Once | None) -> Once | None:
        """The idempotency key for the store within: hashes that say nothing about key and digest."""
        if once is None:
            return None
        key = self.vault.hash_once(where, "key", once.key).hex()
        digest = self.vault.hash_once(where, "digest", once.key, once.digest)
        return Once(key=key, digest=digest)

    async def _note_workspace(self, workspace: str) -> None:
        """Add a workspace to the index, once."""
        if workspace == INDEX.workspace or workspace in self._noted_workspaces:
            return
        name = workspace.encode()
        await self._append_group(
            NewGroup(where=INDEX, records=(name,), once=Once(key=workspace, digest=name))
        )
        self._noted_workspaces.add(workspace)


class SealedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group as the store within gets it, and the state that it sets."""

    records: list[bytes]
    sealed_state: bytes
    state: SealedState


def seal_group(
    open_card: OpenCard, previous: SealedState, records: Sequence[bytes], body: bytes, *, bucket: int
) -> SealedGroup:
    """Seal records that follow `previous`, and the state after them, whose content is `body`."""
    newest = open_card.newest
    count = previous.count + len(records)
    if count - open_card.card.data[-1].since > MOST_RECORDS:
        raise StoreError(
            f"its data key has sealed {MOST_RECORDS:,} records", hint="give it a new one: rekey()"
        )
    sealed_records: list[bytes] = []
    link = previous.link
    for seq, record in enumerate(records, previous.count):
        sealed_record, link = seal_record(newest, seq, link, record, bucket=bucket)
        sealed_records.append(sealed_record)
    state = SealedState(count=count, link=link, body=body, generation=newest.number)
    sealed_state = seal_state(newest, state, bucket=bucket)
    return SealedGroup(records=sealed_records, sealed_state=sealed_state, state=state)


def require_rekeyable(store: Store) -> Rekeyable:
    """The store within, whose records can be replaced; StoreError if they cannot."""
    if not isinstance(store, Rekeyable):
        hint = "copy the conversations into a store that can"
        raise StoreError(f"{type(store).__name__} cannot replace records", hint=hint)
    return store


def _mark_begun(open_card: OpenCard) -> Card | None:
    """The card, with the mark that records were written; None if it has it."""
    if open_card.card.begun:
        return None
    return replace(open_card.card, begun=True)


def _deleted_error(where: Where) -> StoreError:
    return StoreError("it was deleted meanwhile", conversation=where.conversation, hint="try again")


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
