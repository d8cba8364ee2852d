"""Changes keys while the store is in use: of the ring, and of single conversations; and destroys them.

    new = await add_key(sealed, key)      the ring: every process gets the new key before the next step
    await make_primary(sealed, new)       new conversations are wrapped by it from now on
    await rewrap(sealed)                  so are the data keys of all others; records stay as they are
    await retire(sealed, old)             refused while anything needs it

    await rekey(sealed, where)            a new data key: seals every record anew, beside readers and writers
    await finish(sealed, where)           forgets the data keys before it
    await shred(sealed, where)            destroys the data keys: what was written can never be read again

Each step can be repeated after a crash. `rekey` and `finish` are two steps for the sake of writers in other
processes: one that read the head before `rekey` ended may still append under the key before.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import msgspec
from msgspec.structs import replace

from lamina.errors import BadInput, Conflict, StoreError
from lamina.stores.port import Rekeyable, Where
from lamina.stores.sealed.documents import SHREDDED, Card, Header, new_data_key, unwrap, wrap
from lamina.stores.sealed.keys import Key, Passphrase
from lamina.stores.sealed.pages import Reading
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
        after = await sealed.vault.change_card(where, lambda held: _rewrapped(sealed, held, primary))
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

    A run that was interrupted is continued. Readers and writers go on meanwhile. The state stays as it is:
    the next append seals it under the new key.
    """
    primary = await sealed.vault.primary()
    count = (await sealed.reading(where, last=0)).state.count
    await sealed.vault.change_card(where, lambda held: _with_new_key(held, primary, count))
    return await _seal_anew(sealed, where, batch, progress)


async def finish(sealed: Sealed, where: Where, *, batch: int = BATCH, alone: bool = False) -> bool:
    """Forgets the data keys before the newest; True if nothing can need them any more, and they are gone.

    That is so when the conversation has grown since `rekey`: a writer that still holds an older key then
    finds other records than it expects. `alone` says that no other process writes to the store, and does it
    now.
    """
    await _seal_anew(sealed, where, batch, None)
    async with sealed.lock(where):
        held = await sealed.vault.card(where, fresh=True)
        if held is None or len(held.card.data) < 2:
            return held is not None
        if not await _is_settled(sealed, where, held, alone=alone):
            return False
        await sealed.vault.change_card(where, _with_newest_only)
        return True


async def shred(sealed: Sealed, where: Where) -> bool:
    """Destroys the data keys of a conversation; True if there was one.

    Its name, its number of records and its ciphertext stay, and it can be deleted. A backup of the store
    still holds the wrapped keys: there, only the end of the key that wraps them destroys them.
    """
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


def _with_newest_only(held: Held) -> Card | None:
    return replace(held.card, data=held.card.data[-1:]) if len(held.card.data) > 1 else None


def _shredded(held: Held) -> Card | None:
    return None if held.card.gone else replace(held.card, gone=SHREDDED, data=())


def _rewrapped(sealed: Sealed, held: Held, primary: Key) -> Card | None:
    card, data = held.card, []
    if card.key == primary.id and all(each.key == primary.id for each in card.data):
        return None
    for each in card.data:
        secret = unwrap(held.place, sealed.vault.key(each.key), each)
        data.append(wrap(held.place, primary, generation=each.generation, secret=secret, since=each.since))
    return replace(card, key=primary.id, data=tuple(data))


async def _uses(sealed: Sealed, where: Where, key: str) -> bool:
    held = await sealed.vault.card(where, fresh=True)
    return held is not None and key in {held.card.key, *(each.key for each in held.card.data)}


async def _seal_anew(
    sealed: Sealed, where: Where, batch: int, progress: Callable[[Progress], None] | None
) -> int:
    store, done, at = _rekeyable(sealed), 0, 0
    while True:
        async with sealed.lock(where):
            reading = await sealed.reading(where, after=at, limit=batch)
            bodies = _anew(reading, bucket=sealed.bucket)
            try:
                if bodies:
                    await store.replace(sealed.vault.inner(where), bodies, expect=reading.state.count)
            except Conflict:
                continue
        done, at = done + len(bodies), at + len(reading.records)
        if progress is not None:
            progress(Progress(where=where, done=at, total=reading.state.count))
        if at >= reading.state.count:
            return done


async def _is_settled(sealed: Sealed, where: Where, held: Held, *, alone: bool) -> bool:
    """Nothing is under an older key, and nothing can come under one. Called with the lock held."""
    newest = held.newest
    reading = await sealed.reading(where, last=0)
    if reading.state.generation == newest.number and reading.state.settled:
        return await _all_under(sealed, where, newest.number)
    if not alone:
        return False
    state = seal_state(newest, replace(reading.state, settled=True), bucket=sealed.bucket)
    await _rekeyable(sealed).replace(sealed.vault.inner(where), {}, expect=reading.state.count, state=state)
    return await _all_under(sealed, where, newest.number)


async def _all_under(sealed: Sealed, where: Where, generation: int) -> bool:
    at = 0
    while records := (await sealed.reading(where, after=at, limit=BATCH)).records:
        if any(record.generation != generation for record in records):
            return False
        at += len(records)
    return True


def _anew(reading: Reading, *, bucket: int) -> dict[int, bytes]:
    """The records of a page that are not sealed under the newest key, sealed under it."""
    if reading.held is None or not reading.exists:
        return {}
    newest, bodies = reading.held.newest, {}
    for seq, record in zip(reading.seqs, reading.records, strict=True):
        if record.generation != newest.number:
            again = seal_record(newest, seq, record.before, record.body, bucket=bucket, own=record.id)
            bodies[seq] = again[0]
    return bodies
