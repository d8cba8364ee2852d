"""Changes keys while the store is in use, of the ring and of single conversations, and destroys them.

    new = await add_key(sealed, key)      the ring: every process gets the new key before the next step
    await make_primary(sealed, new)       new conversations are wrapped by it from now on
    await rewrap(sealed)                  so are the data keys of all others; records stay as they are
    await retire(sealed, old)             refused while anything needs it

    await rekey(sealed, where)            a new data key: seals every record again
    await finish(sealed, where)           forgets the older data keys
    await shred(sealed, where)            destroys the data keys: what was written can never be read again

Each step can be repeated after a crash, and readers and writers go on meanwhile. If a writer of another
process still uses an older key, the state is no more the one that it read, and it seals its group again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec.structs import replace

from lamina.errors import BadInput, StoreError
from lamina.stores.checked import RecordSelection
from lamina.stores.paging import check_page, retry_overtaken, sweep_replaced
from lamina.stores.port import RESERVED, OwnName, Rekeyable, Where
from lamina.stores.sealed.cards import OpenCard, is_same_card
from lamina.stores.sealed.documents import SHREDDED, Card, Header, new_data_key, rewrap_card
from lamina.stores.sealed.keys import Key
from lamina.stores.sealed.reader import NOTHING, VerifiedPage
from lamina.stores.sealed.records import SHREDDED as SHREDDED_STATE
from lamina.stores.sealed.records import seal_record, seal_state
from lamina.stores.sealed.store import INDEX, Sealed, require_rekeyable
from lamina.stores.sealed.vault import Credential

BATCH = 256

SWEEP = Where(OwnName(RESERVED), "sweep")
"""What is made and deleted to sweep the store within, which accepts no plain names."""


async def add_key(sealed: Sealed, key: Credential) -> str:
    """Let another key open the store, and return its id."""
    key_id, add_line = await sealed.vault.add_credential(key)
    await sealed.vault.change_header(add_line)
    return key_id


async def make_primary(sealed: Sealed, key: str) -> None:
    """From now on new data keys are wrapped by this key."""

    def change(header: Header) -> Header | None:
        if not header.has_key(key):
            raise BadInput(f"{key!r} is not a key of this store", place="key", hint="add it first: add_key()")
        if header.primary == key:
            return None
        return replace(header, primary=key)

    await sealed.vault.unlock()
    sealed.vault.key(key)
    await sealed.vault.change_header(change)


async def rewrap(sealed: Sealed) -> int:
    """Wrap every data key by the primary key, and return how many conversations that changed."""
    primary = await sealed.vault.primary()

    def change(open_card: OpenCard) -> Card | None:
        return rewrap_card(open_card.card, open_card.place, primary, sealed.vault.key)

    count = 0
    async for where in _every_card(sealed):
        before = await sealed.cards.read(where, fresh=True)
        after = await sealed.cards.change(where, change)
        if before is not None and not is_same_card(before, after):
            count += 1
    return count


async def retire(sealed: Sealed, key: str) -> None:
    """Take a key out of the header. Raises StoreError while it is primary, or wraps a data key."""
    header = await sealed.vault.unlock(fresh=True)
    if header.primary == key:
        raise StoreError(f"key {key!r} is the primary key", hint="make another one primary first")
    using: list[Where] = []
    async for where in _every_card(sealed):
        open_card = await sealed.cards.read(where, fresh=True)
        if open_card is not None and key in open_card.card.key_ids:
            using.append(where)
    if using:
        problem = f"key {key!r} is in use by {len(using)} conversations"
        raise StoreError(problem, conversation=using[0].conversation, hint="rewrap() them first")
    await sealed.vault.change_header(lambda header: _without_key(header, key))


async def rekey(sealed: Sealed, where: Where, *, batch: int = BATCH) -> int:
    """Give a conversation a new data key, seal every record again under it, and return how many.

    A run that was interrupted is continued. The state stays as it is: the next append, or `finish`, seals it
    under the new key.
    """
    primary = await sealed.vault.primary()
    page = await sealed.reader.read(where, NOTHING)
    count = page.state.count
    await sealed.cards.change(where, lambda open_card: _with_new_key(open_card, primary, count))
    return await _reseal_records(sealed, where, batch)


async def finish(sealed: Sealed, where: Where) -> bool:
    """Forget all data keys but the newest, and return True if they are gone.

    Once the state is sealed under the newest key, nobody can write under an older one. While there is no
    state, because nothing was ever written, another process may still do so, and the keys stay.
    """
    open_card = await sealed.cards.read(where, fresh=True)
    if open_card is None:
        return False
    if len(open_card.card.data) < 2:
        return True
    if not await _reseal_state(sealed, where):
        return False
    await _reseal_records(sealed, where, BATCH)
    new_card = await sealed.cards.change(where, lambda now: _without_older_keys(now, open_card))
    return new_card is not None


async def shred(sealed: Sealed, where: Where) -> bool:
    """Destroy the data keys of a conversation, after what is beside it. True if there was a conversation.

    Its name, its number of records and its ciphertext stay, and it can be deleted. A backup of the store
    still holds the wrapped keys: these are lost only with the key that wraps them.
    """
    await sealed.delete_beside(where)
    async with sealed.lock(where):
        open_card = await sealed.cards.change(where, _without_data_keys)
        if open_card is None:
            return False
        # The card has the keys, and says that they were destroyed on purpose. Whoever is killed here leaves a
        # conversation that is shredded. The state only makes a late writer's condition fail.
        await sealed.store.append(sealed.vault.inner(where), [], state=SHREDDED_STATE)
        await sweep_replaced(sealed.store, place=SWEEP)
        return True


async def conversations(sealed: Sealed) -> AsyncIterator[Where]:
    """Every conversation that has a card and is not being deleted, lamina's own index among them."""
    async for where in _every_card(sealed):
        open_card = await sealed.cards.read(where)
        if open_card is not None and not open_card.is_deleting:
            yield where


async def _every_card(sealed: Sealed) -> AsyncIterator[Where]:
    """Every conversation that has a card.

    The card of one whose deletion was interrupted needs its key, too: nobody could finish it otherwise.
    """
    if await sealed.cards.read(INDEX) is None:
        return
    yield INDEX
    for workspace in await sealed.workspaces():
        for inner_name in await sealed.count_within(sealed.vault.names.card_workspace(workspace)):
            named_card = await sealed.cards.named_card(workspace, inner_name)
            if named_card is not None:
                yield Where(workspace, named_card.name)


def _without_key(header: Header, key: str) -> Header | None:
    """The header without a key; None if it has no such key, so nothing needs to be written."""
    if not header.has_key(key):
        return None
    return replace(header, keys=tuple(line for line in header.keys if line.id != key))


def _with_new_key(open_card: OpenCard, primary: Key, count: int) -> Card | None:
    """One more generation, unless an earlier run has not finished with the last one."""
    card = open_card.card
    if len(card.data) != 1:
        return None
    generation = card.data[-1].generation + 1
    data = new_data_key(open_card.place, primary, generation=generation, since=count)
    return replace(card, data=(*card.data, data))


def _without_older_keys(now: OpenCard, open_card: OpenCard) -> Card | None:
    """The card without data keys older than the newest one of `open_card`.

    None if there are no older ones, or if it is the card of a later conversation by now.
    """
    if now.card.id != open_card.card.id:
        return None
    newer = tuple(data for data in now.card.data if data.generation >= open_card.newest.number)
    if len(newer) == len(now.card.data):
        return None
    return replace(now.card, data=newer)


def _without_data_keys(open_card: OpenCard) -> Card | None:
    """The card of a shredded conversation; None if it is gone already."""
    if open_card.card.gone:
        return None
    return replace(open_card.card, gone=SHREDDED, data=())


async def _reseal_records(sealed: Sealed, where: Where, batch: int) -> int:
    """Seal every record under the newest key that is not yet, and return how many that were."""
    check_page(batch)
    store = require_rekeyable(sealed.store)
    changed = 0
    place = 0
    while True:
        changed_in_batch, page = await _reseal_batch(sealed, store, where, place, batch)
        changed += changed_in_batch
        place += len(page.records)
        if place >= page.state.count:  # a verified page is never short, so each turn makes progress
            return changed


async def _reseal_batch(
    sealed: Sealed, store: Rekeyable, where: Where, place: int, batch: int
) -> tuple[int, VerifiedPage]:
    """Seal at most `batch` records from `place` on again; how many that changed, and the page."""

    async def reseal_once() -> tuple[int, VerifiedPage]:
        async with sealed.lock(where):
            page = await sealed.reader.read(where, RecordSelection(after=place, limit=batch))
            bodies = _resealed_bodies(page, bucket=sealed.bucket)
            if bodies:
                inner = sealed.vault.inner(where)
                await store.replace(inner, bodies, expect=page.state.count, was=page.sealed_state)
            return len(bodies), page

    return await retry_overtaken(reseal_once, where.conversation)


async def _reseal_state(sealed: Sealed, where: Where) -> bool:
    """Seal the state under the newest key, if it is under an older one. False if there is no state."""

    async def reseal_once() -> bool:
        async with sealed.lock(where):
            page = await sealed.reader.read(where, NOTHING)
            if page.card_in_use is None:
                return False
            newest = page.card_in_use.newest
            if page.state.generation != newest.number:
                inner = sealed.vault.inner(where)
                state = seal_state(newest, page.state, bucket=sealed.bucket)
                await sealed.store.append(
                    inner, [], expect=page.state.count, was=page.sealed_state, state=state
                )
            return True

    return await retry_overtaken(reseal_once, where.conversation)


def _resealed_bodies(page: VerifiedPage, *, bucket: int) -> dict[int, bytes]:
    """Those records of a page that are not sealed under the newest key, sealed under it."""
    if page.card_in_use is None:
        return {}
    newest = page.card_in_use.newest
    bodies: dict[int, bytes] = {}
    for record in page.records:
        if record.generation != newest.number:
            bodies[record.seq], _ = seal_record(
                newest, record.seq, record.before, record.body, bucket=bucket, own=record.id
            )
    return bodies
