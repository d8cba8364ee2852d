"""Changes keys while the store is in use: of the ring, and of single conversations; and destroys them.

    new = await add_key(sealed, key)      the ring: every process gets the new key before the next step
    await make_primary(sealed, new)       new conversations are wrapped by it from now on
    await rewrap(sealed)                  so are the data keys of all others; records stay as they are
    await retire(sealed, old)             refused while anything needs it

    await rekey(sealed, where)            a new data key: seals every record anew, beside readers and writers
    await finish(sealed, where)           forgets the data keys before it
    await shred(sealed, where)            destroys the data keys: what was written can never be read again

Each step can be repeated after a crash, and readers and writers go on meanwhile. A writer of another process
that still holds an older key finds another state than it read, and seals its group again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import msgspec
from msgspec.structs import replace

from lamina.errors import BadInput, Conflict, StoreError
from lamina.stores.paging import attempts, check_page
from lamina.stores.port import Rekeyable, Where
from lamina.stores.sealed.documents import SHREDDED, Card, Header, new_data_key, rewrapped
from lamina.stores.sealed.keys import Key, Passphrase
from lamina.stores.sealed.pages import VerifiedPage
from lamina.stores.sealed.records import SHREDDED as SHREDDED_STATE
from lamina.stores.sealed.records import seal_record, seal_state
from lamina.stores.sealed.store import INDEX, Sealed
from lamina.stores.sealed.vault import SWEEP, Held

BATCH = 256


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far sealing one conversation anew has come."""

    where: Where
    done: int
    total: int


async def add_key(sealed: Sealed, key: Key | Passphrase) -> str:
    """Lets another key open the store; its id."""
    named, change = await sealed.vault.line_for(key)
    await sealed.vault.change_header(change)
    return named


async def make_primary(sealed: Sealed, key: str) -> None:
    """From now on new data keys are wrapped by this key."""

    def change(header: Header) -> Header | None:
        if header.line(key) is None:
            raise BadInput(f"{key!r} is not a key of this store", place="key", hint="add it first: add_key()")
        return None if header.primary == key else replace(header, primary=key)

    await sealed.vault.unlock()
    sealed.vault.key(key)
    await sealed.vault.change_header(change)


async def rewrap(sealed: Sealed) -> int:
    """Wraps every data key by the primary key; how many conversations that changed."""
    primary, changed = await sealed.vault.primary(), 0
    async for where in conversations(sealed):
        before = await sealed.vault.card(where, fresh=True)
        after = await sealed.vault.change_card(
            where, lambda held: rewrapped(held.card, held.place, primary, sealed.vault.key)
        )
        changed += before is not None and not before.same_as(after)
    return changed


async def retire(sealed: Sealed, key: str) -> None:
    """Takes a key out of the header. StoreError while it is primary, or anything is wrapped by it."""
    header = await sealed.vault.unlock(fresh=True)
    if header.primary == key:
        raise StoreError(f"key {key!r} is the primary key", hint="make another one primary first")
    using = [where async for where in conversations(sealed) if await _uses(sealed, where, key)]
    if using:
        problem = f"key {key!r} is in use by {len(using)} conversations"
        raise StoreError(problem, conversation=using[0].conversation, hint="rewrap() them first")
    await sealed.vault.change_header(lambda now: _without(now, key))


async def rekey(
    sealed: Sealed, where: Where, *, batch: int = BATCH, progress: Callable[[Progress], None] | None = None
) -> int:
    """Gives a conversation a new data key and seals every record anew under it; how many that were.

    A run that was interrupted is continued. The state stays as it is: the next append, or `finish`, seals it
    under the new key.
    """
    primary = await sealed.vault.primary()
    count = (await sealed.reading(where, last=0)).state.count
    await sealed.vault.change_card(where, lambda held: _with_new_key(held, primary, count))
    return await _seal_anew(sealed, where, batch, progress)


async def finish(sealed: Sealed, where: Where, *, batch: int = BATCH, alone: bool = False) -> bool:
    """Forgets the data keys before the newest; True if they are gone.

    Once the state is sealed under the newest key, nothing can come under an older one any more. Where there
    is no state yet, because nothing was ever kept there, that is so only if no other process writes to the
    store: `alone` says that.
    """
    held = await sealed.vault.card(where, fresh=True)
    if held is None or len(held.card.data) < 2:
        return held is not None
    if not await _state_under_newest(sealed, where) and not alone:
        return False
    await _seal_anew(sealed, where, batch, None)
    return await sealed.vault.change_card(where, lambda now: _without_older(now, held)) is not None


async def shred(sealed: Sealed, where: Where) -> bool:
    """Destroys the data keys of a conversation, and its search index first; True if there was one.

    Its name, its number of records and its ciphertext stay, and it can be deleted. A backup of the store
    still holds the wrapped keys: there, only the end of the key that wraps them destroys them.
    """
    await sealed.delete_index(where)
    async with sealed.lock(where):
        gone = await sealed.vault.change_card(where, _shredded)
        if gone is None:
            return False
        await sealed.store.append(sealed.vault.inner(where), [], state=SHREDDED_STATE)
        await sealed.store.append(SWEEP, [b""])
        await sealed.store.delete(SWEEP)  # stores sweep what was overwritten when they delete
        return True


async def conversations(sealed: Sealed) -> AsyncIterator[Where]:
    """Every conversation that has a card, lamina's own index among them."""
    if await sealed.vault.card(INDEX) is None:
        return
    yield INDEX
    for workspace in await sealed.workspaces():
        for kept in await sealed.every(sealed.vault.card_workspace(workspace)):
            name = await sealed.vault.name_of(workspace, kept)
            if name:
                yield Where(workspace, name)


def _rekeyable(sealed: Sealed) -> Rekeyable:
    if not isinstance(sealed.store, Rekeyable):
        hint = "copy the conversations into a store that can"
        raise StoreError(f"{type(sealed.store).__name__} cannot replace records", hint=hint)
    return sealed.store


def _without(header: Header, key: str) -> Header | None:
    kept = tuple(line for line in header.keys if line.id != key)
    return None if len(kept) == len(header.keys) else replace(header, keys=kept)


def _with_new_key(held: Held, primary: Key, count: int) -> Card | None:
    """One more generation, unless an earlier run has not finished with the last one."""
    if len(held.card.data) != 1:
        return None
    generation = held.card.data[-1].generation + 1
    data = new_data_key(held.place, primary, generation=generation, since=count)
    return replace(held.card, data=(*held.card.data, data))


def _without_older(now: Held, held: Held) -> Card | None:
    """Unless it is the card of a later conversation by now; and keys that are newer still stay, too."""
    kept = tuple(data for data in now.card.data if data.generation >= held.newest.number)
    same = now.card.id == held.card.id and len(kept) < len(now.card.data)
    return replace(now.card, data=kept) if same else None


def _shredded(held: Held) -> Card | None:
    return None if held.card.gone else replace(held.card, gone=SHREDDED, data=())


async def _uses(sealed: Sealed, where: Where, key: str) -> bool:
    held = await sealed.vault.card(where, fresh=True)
    return held is not None and key in {held.card.key, *(each.key for each in held.card.data)}


async def _seal_anew(
    sealed: Sealed, where: Where, batch: int, progress: Callable[[Progress], None] | None
) -> int:
    check_page(batch)
    store = _rekeyable(sealed)
    done = at = 0
    while True:
        sealed_anew, reading = await _seal_batch_anew(sealed, store, where, at, batch)
        done += sealed_anew
        at += len(reading.records)
        if progress is not None:
            progress(Progress(where=where, done=at, total=reading.state.count))
        if at >= reading.state.count:  # a verified page is never short, so each turn gets on
            return done


async def _seal_batch_anew(
    sealed: Sealed, store: Rekeyable, where: Where, at: int, batch: int
) -> tuple[int, VerifiedPage]:
    """Seals the records from `at` on anew, at most `batch`; how many that changed, and the page."""
    for _ in attempts(where.conversation):
        async with sealed.lock(where):
            reading = await sealed.reading(where, after=at, limit=batch)
            bodies = _anew(reading, bucket=sealed.bucket)
            if not bodies:
                return 0, reading
            inner, count = sealed.vault.inner(where), reading.state.count
            try:
                await store.replace(inner, bodies, expect=count, was=reading.kept)
            except Conflict:
                continue
            return len(bodies), reading
    raise AssertionError  # the attempts end in an error


async def _state_under_newest(sealed: Sealed, where: Where) -> bool:
    """Seals the state under the newest key, if it is under an older one. False if there is no state."""
    for _ in attempts(where.conversation):
        async with sealed.lock(where):
            reading = await sealed.reading(where, last=0)
            if reading.held is None or not reading.exists:
                return False
            if reading.state.generation == reading.held.newest.number:
                return True
            inner, count = sealed.vault.inner(where), reading.state.count
            state = seal_state(reading.held.newest, reading.state, bucket=sealed.bucket)
            try:
                await sealed.store.append(inner, [], expect=count, was=reading.kept, state=state)
            except Conflict:
                continue
    raise AssertionError  # the attempts end in an error


def _anew(reading: VerifiedPage, *, bucket: int) -> dict[int, bytes]:
    """The records of a page that are not sealed under the newest key, sealed under it."""
    if reading.held is None or not reading.exists:
        return {}
    newest, bodies = reading.held.newest, {}
    for seq, record in zip(reading.seqs, reading.records, strict=True):
        if record.generation != newest.number:
            again = seal_record(newest, seq, record.before, record.body, bucket=bucket, own=record.id)
            bodies[seq] = again[0]
    return bodies
