"""Nothing that was changed within is ever read as valid: every mutation of `tampering`, and a few more."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from lamina.errors import Damaged, StoreError, Tampered, WrongKey
from lamina.stores import MemoryStore, Once, Record, RecordPage, StoredHead, Where, open_sqlite
from lamina.stores.port import HEADER
from lamina.stores.sealed import Sealed, generate
from tests.sessions.talking import awaited
from tests.stores.tampering import Mutation, bodies, copied, of_header, of_records, put

KEY = generate()
OWN = Where("team", "alice")
OTHERS = {"another conversation": Where("team", "bob"), "another workspace": Where("guests", "alice")}


class World:
    """A store with three conversations, its past, and another store with the same key and names."""

    def __init__(self) -> None:
        self.now, self.old, self.other = MemoryStore(), MemoryStore(), MemoryStore()

    async def fill(self) -> World:
        for store in (self.now, self.other):
            sealed = Sealed(store, KEY, create=True)
            for where in (OWN, *OTHERS.values()):
                await sealed.append(where, [b"question 0", b"answer 0"], state=b"ledger 0")
                await sealed.append(where, [b"question 1", b"answer 1"], state=b"ledger 1")
        await self.split()
        return self

    async def split(self) -> None:
        """The past is not only older: it went on differently, as after a backup was restored."""
        self.old = copied(self.now)
        await Sealed(self.old, KEY).append(OWN, [b"question 2'", b"answer 2'"], state=b"ledger 2'")
        await Sealed(self.now, KEY).append(OWN, [b"question 2", b"answer 2"], state=b"ledger 2")


async def verdict(changed: MemoryStore, truth: list[bytes], head: StoredHead) -> str:
    """How a fresh reader, with the right key, takes it."""
    sealed = Sealed(changed, KEY)
    try:
        page = await sealed.read(OWN)
    except Tampered as error:
        return "detected" if error.conversation in {"alice", ""} else "detected, names nobody"
    except WrongKey:
        return "detected"
    same = [record.body for record in page.records] == truth and page.head == head
    return "no effect" if same else "SILENT"


async def tried(world: World, mutations: list[Mutation]) -> Counter[str]:
    page = await Sealed(world.now, KEY).read(OWN)
    truth = [record.body for record in page.records]
    counts: Counter[str] = Counter()
    for mutation in mutations:
        changed = copied(world.now)
        mutation.change(changed)
        result = await verdict(changed, truth, page.head)
        counts[result if result == "detected" else f"{result}: {mutation.name}"] += 1
    return counts


def test_every_change_to_records_and_state_is_detected() -> None:
    async def trial() -> Counter[str]:
        world = await World().fill()
        sealed = Sealed(world.now, KEY)
        await sealed.read(OWN)
        elsewhere = Sealed(world.other, KEY)
        await elsewhere.read(OWN)
        others = {name: (world.now, await sealed.inner(where)) for name, where in OTHERS.items()}
        others["another store"] = (world.other, await elsewhere.inner(OWN))
        own = await sealed.inner(OWN)
        return await tried(world, list(of_records(own, world.now, old=world.old, others=others)))

    counts = anyio.run(trial)
    assert set(counts) == {"detected"}, counts
    assert counts["detected"] >= 250


def test_every_change_to_the_header_is_detected() -> None:
    async def trial() -> Counter[str]:
        world = await World().fill()
        return await tried(world, list(of_header(HEADER, world.now)))

    counts = anyio.run(trial)
    assert set(counts) == {"detected"}, counts


@pytest.mark.parametrize("seq", range(2, 6))
@awaited
async def test_a_tail_is_verified_without_what_stands_before_it(seq: int) -> None:
    world = await World().fill()
    sealed = Sealed(world.now, KEY)
    await sealed.read(OWN)
    own = await sealed.inner(OWN)
    if seq >= 4:
        bodies(world.now, own)[seq] = bodies(world.old, own)[seq]
        with pytest.raises(Tampered, match=r"record [45]"):
            await sealed.read(OWN, last=6 - seq)
    del bodies(world.now, own)[-1]
    with pytest.raises(Tampered, match="5 records, 6 were sealed"):
        await sealed.read(OWN, last=6 - seq)


@awaited
async def test_single_places_are_bound_to_themselves() -> None:
    world = await World().fill()
    sealed = Sealed(world.now, KEY)
    await sealed.read(OWN)
    own = await sealed.inner(OWN)
    for seq in range(6):
        for other in {*range(6)} - {seq}:
            changed = copied(world.now)
            put(own, seq, bodies(world.now, own)[other])(changed)
            with pytest.raises(Tampered, match=f"record {seq} "):
                await Sealed(changed, KEY).read(OWN, at=[seq])


class Withholds(MemoryStore):
    """Says how many records there are, and keeps some back, gives them twice, or in another order."""

    trick: Callable[[tuple[Record, ...]], tuple[Record, ...]] | None = None

    async def read(self, where: Where, **selection: object) -> RecordPage:
        page = await super().read(where, **selection)  # type: ignore[arg-type]
        return page if self.trick is None else RecordPage(records=self.trick(page.records), head=page.head)


@pytest.mark.parametrize(
    "trick",
    [
        lambda records: records[1:],
        lambda records: records[:-1],
        lambda records: records[:1] + records[2:],
        lambda records: records[::-1],
        lambda records: records + records[-1:],
        lambda _: (),
    ],
)
@awaited
async def test_records_that_the_store_keeps_back_are_missed(
    trick: Callable[[tuple[Record, ...]], tuple[Record, ...]],
) -> None:
    inner = Withholds()
    await Sealed(inner, KEY, create=True).append(OWN, [b"%d" % number for number in range(6)])
    for selection in ({}, {"last": 3}, {"after": 2}, {"after": 1, "limit": 3}, {"at": [0, 2, 4]}):
        sealed = Sealed(inner, KEY)
        inner.trick = None
        assert (await sealed.read(OWN, **selection)).records
        inner.trick = trick
        with pytest.raises(Tampered, match="missing"):
            await sealed.read(OWN, **selection)


@awaited
async def test_the_error_names_conversation_and_record() -> None:
    world = await World().fill()
    sealed = Sealed(world.now, KEY)
    await sealed.read(OWN)
    bodies(world.now, await sealed.inner(OWN))[3] = b"{}"
    with pytest.raises(Tampered, match="record 3") as error:
        await sealed.read(OWN)
    assert error.value.conversation == "alice"
    assert [record.seq for record in (await sealed.read(OWN, at=[1, 5])).records] == [1, 5]


@awaited
async def test_nothing_is_written_after_what_was_changed() -> None:
    world = await World().fill()
    sealed = Sealed(world.now, KEY)
    await sealed.read(OWN)
    del bodies(world.now, await sealed.inner(OWN))[-1]
    for expect in (None, 5, 6):
        with pytest.raises(Tampered):
            await Sealed(world.now, KEY).append(OWN, [b"more"], expect=expect)


class Refuses(MemoryStore):
    """Gives a state, and takes nothing that was sealed after it."""

    refuses = False

    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        was = b"another" if self.refuses else arguments.pop("was", None)
        return await super().append(where, records, **{**arguments, "was": was})


@awaited
async def test_a_store_that_refuses_what_it_gives_is_not_tried_for_ever() -> None:
    inner = Refuses()
    sealed = Sealed(inner, KEY, create=True)
    await sealed.append(OWN, [b"x"])
    inner.refuses = True
    with pytest.raises(StoreError, match="another writer was first"):
        await sealed.append(OWN, [b"y"])


@awaited
async def test_an_idempotency_key_that_names_records_to_come_is_noticed() -> None:
    inner, once = MemoryStore(), Once(key="retry", digest=b"d")
    sealed = Sealed(inner, KEY, create=True)
    await sealed.append(OWN, [b"x"], once=once)
    conversation = inner._conversations[await sealed.inner(OWN)]  # noqa: SLF001 - the attacker sees everything
    conversation.once = {key: (digest, 2) for key, (digest, _) in conversation.once.items()}
    with pytest.raises(Tampered, match="not there"):
        await sealed.append(OWN, [b"x"], once=once)


@awaited
async def test_an_idempotency_row_of_another_conversation_answers_nothing() -> None:
    inner = MemoryStore()
    sealed = Sealed(inner, KEY, create=True)
    other = OTHERS["another conversation"]
    once = Once(key="retry", digest=b"d")
    await sealed.append(OWN, [b"x"], once=once)
    await sealed.append(other, [b"y"], once=once)
    mine, theirs = [inner._conversations[await sealed.inner(where)] for where in (OWN, other)]  # noqa: SLF001
    assert set(mine.once).isdisjoint(theirs.once)
    (answer,) = theirs.once.values()
    mine.once = dict.fromkeys(mine.once, answer)
    with pytest.raises(StoreError):
        await sealed.append(OWN, [b"x"], once=once)


def test_damage_within_is_told_with_the_name_that_a_caller_knows(tmp_path: Path) -> None:
    async def fill() -> None:
        async with open_sqlite(tmp_path / "chats.db") as store:
            sealed = Sealed(store, KEY, create=True)
            await sealed.append(OWN, [b"one", b"two", b"three"])

    async def read() -> None:
        async with open_sqlite(tmp_path / "chats.db") as store:
            await Sealed(store, KEY).read(OWN)

    anyio.run(fill)
    with closing(sqlite3.connect(tmp_path / "chats.db", isolation_level=None)) as disk:
        disk.execute(
            "UPDATE record SET body = x'00' WHERE seq = 1 AND conversation IN "
            "(SELECT name FROM conversation WHERE count = 3 AND workspace NOT LIKE 'lamina.sealed%')"
        )
    with pytest.raises(Damaged) as raised:
        anyio.run(read)
    assert raised.value.conversation == "alice"
    assert raised.value.whole == (0, 2)
    assert str(raised.value).count("records 0 and 2 can be read") == 1
