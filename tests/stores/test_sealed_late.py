"""Writers of a sealed store that come late: nothing is lost, and what was done meanwhile is not undone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import anyio
import pytest

from lamina.errors import Conflict, WrongKey
from lamina.stores import MemoryStore, RecordPage, StoredHead, Where
from lamina.stores.sealed import (
    Cost,
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
from lamina.stores.sealed.records import SHREDDED
from tests.sessions.talking import awaited

pytestmark = pytest.mark.filterwarnings("ignore::lamina.stores.sqlite.WalResetRisk")
CHEAP = Cost(memory=19_456, passes=2, lanes=1)
WHERE = Where("team", "chat")


def bodies_of(page: RecordPage) -> list[bytes]:
    return [record.body for record in page.records]


class Slow(MemoryStore):
    """Lets something happen between the reading and the writing of another instance, once."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def append(self, where: Where, records: Sequence[bytes], **named: object) -> StoredHead:
        happens, self.meanwhile = self.meanwhile, None
        if happens is not None:
            await happens()
        return await super().append(where, records, **named)  # type: ignore[arg-type]


@pytest.mark.parametrize("grown", [True, False])
@pytest.mark.parametrize("records", [[b"late"], []])
@awaited
async def test_a_writer_that_was_late_loses_nothing(records: list[bytes], *, grown: bool) -> None:
    inner, key = Slow(), generate()
    one, late = Sealed(inner, key, create=True), Sealed(inner, key)
    await one.append(WHERE, [b"first"], state=b"old ledger")
    await late.read(WHERE)

    async def meanwhile() -> None:
        await rekey(one, WHERE)
        await one.append(WHERE, [b"meanwhile"] if grown else [], state=b"middle ledger")
        assert await finish(one, WHERE)

    inner.meanwhile = meanwhile
    await late.append(WHERE, records, state=b"late ledger")
    for reader in (one, late, Sealed(inner, key)):
        page = await reader.read(WHERE)
        assert bodies_of(page) == [b"first", *([b"meanwhile"] if grown else []), *records]
        assert page.head.state == b"late ledger"
        await verify(reader, WHERE)
    await one.append(WHERE, [b"more"])
    assert await finish(one, WHERE)
    assert await rekey(late, WHERE) == len(page.records) + 1


@awaited
async def test_a_writer_that_was_late_writes_nothing_to_what_was_shredded() -> None:
    inner, key = Slow(), generate()
    one, late = Sealed(inner, key, create=True), Sealed(inner, key)
    await one.append(WHERE, [b"first"], state=b"ledger")
    await late.read(WHERE)

    async def meanwhile() -> None:
        assert await shred(one, WHERE)

    inner.meanwhile = meanwhile
    with pytest.raises(WrongKey, match="shredded"):
        await late.append(WHERE, [], expect=1, state=b"late ledger")
    assert (await inner.read(one.vault.inner(WHERE))).head.state == SHREDDED


@pytest.mark.parametrize("records", [[b"late"], []])
@awaited
async def test_a_writer_that_was_late_leaves_the_next_of_this_name_alone(records: list[bytes]) -> None:
    inner, key = Slow(), generate()
    one, late = Sealed(inner, key, create=True), Sealed(inner, key)
    await one.append(WHERE, [b"first"], state=b"ledger")
    await late.read(WHERE)

    async def meanwhile() -> None:
        await one.delete(WHERE)
        await one.append(WHERE, [b"second"], state=b"another")

    inner.meanwhile = meanwhile
    with pytest.raises(Conflict):
        await late.append(WHERE, records, expect=1, was=b"ledger")
    for reader in (one, late, Sealed(inner, key)):
        assert bodies_of(await reader.read(WHERE)) == [b"second"]
    inner.meanwhile = meanwhile
    await late.append(WHERE, [b"third"])
    assert bodies_of(await one.read(WHERE)) == [b"second", b"third"]


@awaited
async def test_a_card_is_not_put_over_that_of_the_next_of_this_name() -> None:
    inner, key = Slow(), generate()
    one, late = Sealed(inner, key, create=True), Sealed(inner, key)
    await one.append(WHERE, [b"first"])

    async def meanwhile() -> None:
        await one.delete(WHERE)
        await one.append(WHERE, [b"second"])

    inner.meanwhile = meanwhile
    await rekey(late, WHERE)
    assert await finish(late, WHERE)
    for reader in (one, late, Sealed(inner, key)):
        assert bodies_of(await reader.read(WHERE)) == [b"second"]


@awaited
async def test_the_key_of_the_next_of_this_name_is_not_forgotten() -> None:
    inner, key = Slow(), generate()
    one, late = Sealed(inner, key, create=True), Sealed(inner, key)
    await one.append(WHERE, [b"first"])
    await rekey(late, WHERE)

    async def meanwhile() -> None:
        await one.delete(WHERE)
        await one.append(WHERE, [b"second"])

    inner.meanwhile = meanwhile
    await finish(late, WHERE)
    for reader in (one, late, Sealed(inner, key)):
        assert bodies_of(await reader.read(WHERE)) == [b"second"]


@awaited
async def test_records_are_not_put_back_under_a_key_that_is_gone() -> None:
    inner, key = Dawdles(), generate()
    one, late = Sealed(inner, key, create=True), Sealed(inner, key)
    await one.append(WHERE, [b"a", b"b"], state=b"ledger")

    async def meanwhile() -> None:
        for _ in range(2):
            await rekey(one, WHERE)
            assert await finish(one, WHERE)

    inner.meanwhile = meanwhile
    await rekey(late, WHERE)
    for reader in (one, late, Sealed(inner, key)):
        assert bodies_of(await reader.read(WHERE)) == [b"a", b"b"]


class Dawdles(MemoryStore):
    """Lets something happen before another instance replaces records, once."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def replace(self, *arguments: object, **named: object) -> StoredHead:
        happens, self.meanwhile = self.meanwhile, None
        if happens is not None:
            await happens()
        return await super().replace(*arguments, **named)  # type: ignore[arg-type]


@awaited
async def test_keys_of_what_was_never_begun_are_not_forgotten() -> None:
    sealed = Sealed(MemoryStore(), generate(), create=True)
    await sealed.vault.unlock()
    await sealed.cards.make(WHERE)
    await rekey(sealed, WHERE)
    assert not await finish(sealed, WHERE)
    await sealed.append(WHERE, [b"first"])
    assert bodies_of(await sealed.read(WHERE)) == [b"first"]


@awaited
async def test_a_writer_learns_of_a_new_key_by_writing() -> None:
    inner, key = MemoryStore(), generate()
    one, other = Sealed(inner, key, create=True), Sealed(inner, key)
    await one.append(WHERE, [b"a"], state=b"ledger")
    await other.append(WHERE, [b"b"])
    await rekey(one, WHERE)
    await other.append(WHERE, [b"c"])
    assert await finish(one, WHERE)
    assert bodies_of(await one.read(WHERE)) == [b"a", b"b", b"c"]


@awaited
async def test_rekeying_leaves_a_state_that_another_process_wrote_meanwhile() -> None:
    inner, key = MemoryStore(), generate()
    one, other = Sealed(inner, key, create=True), Sealed(inner, key)
    await one.append(WHERE, [b"%d" % n for n in range(6)], state=b"old")

    async def ledger(number: int) -> None:
        await other.append(WHERE, [], state=b"%d" % number)

    for number in range(5):
        async with anyio.create_task_group() as group:
            group.start_soon(ledger, number)
            group.start_soon(rekey, one, WHERE)
        assert (await one.read(WHERE)).head == StoredHead(count=6, state=b"%d" % number)


@pytest.mark.parametrize("knows", [True, False])
@awaited
async def test_a_conversation_begun_while_the_key_changes_can_be_read_with_the_new_one(
    *, knows: bool
) -> None:
    inner, old, new = Slow(), generate(), generate()
    one = Sealed(inner, [old, new], create=True)
    await one.append(Where("team", "before"), [b"x"])
    late = Sealed(inner, [old, new] if knows else old)
    await late.read(Where("team", "before"))

    async def meanwhile() -> None:
        await make_primary(one, await add_key(one, new))
        await rewrap(one)
        await retire(one, old.id)

    inner.meanwhile = meanwhile
    if knows:
        await late.append(WHERE, [b"begun"])
        assert bodies_of(await Sealed(inner, new).read(WHERE)) == [b"begun"]
    else:
        with pytest.raises(WrongKey):
            await late.append(WHERE, [b"begun"])
        await Sealed(inner, new).append(WHERE, [b"after"])
        assert bodies_of(await Sealed(inner, new).read(WHERE)) == [b"after"]
