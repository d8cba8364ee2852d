from __future__ import annotations

import base64
from pathlib import Path

import anyio
import pytest

from lamina.errors import BadInput, Conflict, StoreError, WrongKey
from lamina.stores import MemoryStore, Once, RecordPage, Store, StoredHead, Where, open_sqlite
from lamina.stores.port import record_place
from lamina.stores.sealed import (
    Cost,
    Passphrase,
    Sealed,
    add_key,
    finish,
    generate,
    make_primary,
    rekey,
    retire,
    rewrap,
    shred,
    verify,
)
from tests.sessions.talking import awaited, opened

pytestmark = pytest.mark.filterwarnings("ignore::lamina.stores.sqlite.WalResetRisk")
CHEAP = Cost(memory=19_456, passes=2, lanes=1)
WHERE = Where("team", "chat")


def bodies_of(page: RecordPage) -> list[bytes]:
    return [record.body for record in page.records]


@awaited
async def test_a_key_is_added_made_primary_and_the_old_one_retired() -> None:
    inner, old, new = MemoryStore(), generate(), generate()
    sealed = Sealed(inner, old, create=True)
    for name in "abc":
        await sealed.append(Where("team", name), [name.encode()])
    assert await add_key(sealed, new) == new.id
    with pytest.raises(StoreError, match="primary"):
        await retire(sealed, old.id)
    await make_primary(sealed, new.id)
    await sealed.append(Where("team", "d"), [b"d"])
    with pytest.raises(StoreError, match="in use by 4 conversations"):
        await retire(sealed, old.id)
    assert await rewrap(sealed) == 4  # three conversations and the index
    assert await rewrap(sealed) == 0
    await retire(sealed, old.id)
    with pytest.raises(WrongKey):
        await Sealed(inner, old).read(Where("team", "a"))
    only_new = Sealed(inner, new)
    for name in "abcd":
        assert bodies_of(await only_new.read(Where("team", name))) == [name.encode()]
    assert [each.conversation for each in await only_new.list("team")] == [*"abcd"]


@awaited
async def test_a_process_that_has_both_keys_goes_on_through_a_rotation() -> None:
    inner, old, new = MemoryStore(), generate(), generate()
    one = Sealed(inner, old, create=True)
    await one.append(WHERE, [b"1"])
    both = Sealed(inner, [old, new])
    assert bodies_of(await both.read(WHERE)) == [b"1"]
    await add_key(one, new)
    await make_primary(one, new.id)
    await rewrap(one)
    await retire(one, old.id)
    await both.append(WHERE, [b"2"])
    await both.append(Where("team", "later"), [b"3"])
    assert bodies_of(await Sealed(inner, new).read(WHERE)) == [b"1", b"2"]
    assert bodies_of(await Sealed(inner, new).read(Where("team", "later"))) == [b"3"]


@awaited
async def test_only_a_key_of_the_store_becomes_primary() -> None:
    sealed = Sealed(MemoryStore(), [generate(), stranger := generate()], create=True)
    with pytest.raises((BadInput, WrongKey)):
        await make_primary(sealed, stranger.id)


@awaited
async def test_records_are_sealed_anew_and_the_old_key_forgotten() -> None:
    inner = MemoryStore()
    sealed = Sealed(inner, generate(), create=True)
    await sealed.append(WHERE, [b"%d" % n for n in range(10)], state=b"ledger")
    before = {record.body for record in (await inner.read(sealed.vault.inner(WHERE))).records}
    assert await rekey(sealed, WHERE, batch=4) == 10
    after = {record.body for record in (await inner.read(sealed.vault.inner(WHERE))).records}
    assert before.isdisjoint(after)
    assert await finish(sealed, WHERE)
    page = await sealed.read(WHERE)
    assert (bodies_of(page), page.head.state) == ([b"%d" % n for n in range(10)], b"ledger")
    held = await sealed.cards.read(WHERE, fresh=True)
    assert held is not None
    assert [data.generation for data in held.card.data] == [2]


class Dies(MemoryStore):
    """Fails once, at the n-th replacement."""

    left = -1

    async def replace(self, *arguments: object, **named: object) -> StoredHead:
        self.left -= 1
        if self.left == -1:
            raise StoreError("the process died here")
        return await super().replace(*arguments, **named)  # type: ignore[arg-type]


@pytest.mark.parametrize("survives", range(3))
@awaited
async def test_an_interrupted_rekeying_is_continued(survives: int) -> None:
    inner, key = Dies(), generate()
    sealed = Sealed(inner, key, create=True)
    await sealed.append(WHERE, [b"%d" % n for n in range(8)], state=b"ledger")
    inner.left = survives
    with pytest.raises(StoreError, match="died here"):
        await rekey(sealed, WHERE, batch=3)
    done = 3 * survives
    fresh = Sealed(inner, key)
    assert len(bodies_of(await fresh.read(WHERE))) == 8
    inner.left = -1
    assert await rekey(fresh, WHERE, batch=3) == 8 - done
    await fresh.append(WHERE, [b"8"])
    assert await finish(fresh, WHERE)
    await verify(fresh, WHERE)


async def _written(store: Store, writer: int, turns: int) -> None:
    """Turns of two records, each by compare-and-swap and tried again with the same key until it is kept."""
    for turn in range(turns):
        body = b"%d/%d" % (writer, turn)
        while True:
            page = await store.read(WHERE, last=2)
            assert len(page.records) in {0, 2}
            once = Once(key=body.decode(), digest=body)
            try:
                await store.append(WHERE, [body, body], expect=page.head.count, once=once, state=body)
                break
            except Conflict:
                continue


@pytest.mark.parametrize("shared", [True, False])
@awaited
async def test_keys_change_under_load_and_nothing_fails_or_is_lost(tmp_path: Path, *, shared: bool) -> None:
    key = generate()
    async with open_sqlite(tmp_path / "chats.db") as inner:
        first = Sealed(inner, key, create=True)
        await first.append(Where("team", "warm"), [b"x"])
        writers = [first if shared else Sealed(inner, key) for _ in range(4)]
        rekeyed = 0
        async with anyio.create_task_group() as group:
            async with anyio.create_task_group() as load:
                for number, store in enumerate(writers):
                    load.start_soon(_written, store, number, 12)
                group.start_soon(_reads, first)
                for _ in range(6):
                    await anyio.sleep(0.02)
                    rekeyed += await rekey(first, WHERE, batch=8)
                    await finish(first, WHERE)
            group.cancel_scope.cancel()
        assert rekeyed
        bodies = bodies_of(await first.read(WHERE))
        assert (
            sorted(bodies[::2])
            == sorted(bodies[1::2])
            == sorted(b"%d/%d" % (writer, turn) for writer in range(4) for turn in range(12))
        )
        assert bodies[::2] == bodies[1::2]
        await rekey(first, WHERE)
        await first.append(WHERE, [b"last"])
        assert await finish(first, WHERE)
        assert (await verify(Sealed(inner, key), WHERE)).count == 97


async def _reads(store: Store) -> None:
    count = 0
    while True:
        page = await store.read(WHERE)
        assert page.head.count >= count
        count = page.head.count
        await anyio.sleep(0.001)


@awaited
async def test_the_title_of_a_shredded_session_is_gone_with_its_record() -> None:
    sealed = Sealed(MemoryStore(), generate(), create=True)
    async with opened(sealed, "chat", workspace="team", model="gpt-5") as session:
        await session.ask("My number is 4711")
        await session.record("Noted.")
    place = record_place(WHERE)
    assert place is not None
    assert b"4711" in (await sealed.read(place)).head.state
    assert await shred(sealed, WHERE)
    assert (await sealed.read(place)).head.is_empty


def test_what_was_shredded_is_unreadable_and_known_as_shredded(tmp_path: Path) -> None:
    async def trial() -> bytes:
        key = generate()
        async with open_sqlite(tmp_path / "chats.db") as inner:
            sealed = Sealed(inner, key, create=True)
            other = Sealed(inner, key)
            await sealed.append(WHERE, [b"a", b"b"])
            await sealed.append(Where("team", "kept"), [b"c"])
            assert bodies_of(await other.read(WHERE)) == [b"a", b"b"]
            held = await sealed.cards.read(WHERE)
            assert held is not None
            wrapped = base64.b64encode(held.card.data[0].wrapped)
            assert wrapped in everything(tmp_path)
            assert await shred(sealed, WHERE)
            for reader in (sealed, other, Sealed(inner, key)):
                with pytest.raises(WrongKey, match="shredded") as error:
                    await reader.read(WHERE)
                assert error.value.conversation == "chat"
                with pytest.raises(WrongKey, match="shredded"):
                    await reader.append(WHERE, [b"c"])
                assert bodies_of(await reader.read(Where("team", "kept"))) == [b"c"]
            assert wrapped not in everything(tmp_path)
            assert [each.conversation for each in await sealed.list("team")] == ["chat", "kept"]
            assert await sealed.delete(WHERE)
            await sealed.append(WHERE, [b"new"], expect=0)
            assert bodies_of(await other.read(WHERE)) == [b"new"]
            assert not await shred(sealed, Where("team", "nobody"))
        return wrapped

    wrapped = anyio.run(trial)
    assert wrapped not in everything(tmp_path)


def everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file())


@awaited
async def test_a_deleted_conversation_leaves_no_wrapped_key(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "chats.db") as inner:
        sealed = Sealed(inner, generate(), create=True)
        await sealed.append(WHERE, [b"a"])
        held = await sealed.cards.read(WHERE)
        assert held is not None
        await sealed.delete(WHERE)
        assert base64.b64encode(held.card.data[0].wrapped) not in everything(tmp_path)


@awaited
async def test_a_passphrase_opens_the_store_again_and_another_one_does_not() -> None:
    inner, words = MemoryStore(), Passphrase("a quiet harbour of 7 lamps")
    await Sealed(inner, words, create=True, cost=CHEAP).append(WHERE, [b"x"])
    assert bodies_of(await Sealed(inner, Passphrase("a quiet harbour of 7 lamps")).read(WHERE)) == [b"x"]
    with pytest.raises(WrongKey):
        await Sealed(inner, Passphrase("a quiet harbour of 8 lamps")).read(WHERE)
    with pytest.raises(WrongKey):
        await Sealed(inner, generate()).read(WHERE)
    sealed = Sealed(inner, words)
    new = await add_key(sealed, key := generate())
    await make_primary(sealed, new)
    await rewrap(sealed)
    assert bodies_of(await Sealed(inner, key).read(WHERE)) == [b"x"]
