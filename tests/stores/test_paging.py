"""Every loop over a store gets on or raises: stores that repeat a page, go back, give nothing or refuse."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from lamina.errors import BadInput, Conflict, Damaged, StoreError
from lamina.stores import ListedConversation, MemoryStore, Record, RecordPage, Store, StoredHead, Where
from lamina.stores.paging import TRIES, attempts, every_conversation, every_record
from lamina.stores.sealed import Sealed, generate
from lamina.testing import store as promises
from tests.sessions.talking import awaited

HERE = Where("team", "alice")
KEY = generate()


class SamePage(MemoryStore):
    """Lists the first page whatever was asked for, as an index with a damaged cell does."""

    async def list(
        self, workspace: str, *, after: str = "", limit: int = 1000
    ) -> Sequence[ListedConversation]:
        return await super().list(workspace, after=after[:0], limit=limit)


class GoesBack(MemoryStore):
    """Lists, after the last name, the one before it."""

    async def list(
        self, workspace: str, *, after: str = "", limit: int = 1000
    ) -> Sequence[ListedConversation]:
        listed = await super().list(workspace, after=after, limit=limit)
        return listed or (await super().list(workspace))[:1]


class NeverOrdered(MemoryStore):
    async def list(
        self, workspace: str, *, after: str = "", limit: int = 1000
    ) -> Sequence[ListedConversation]:
        return (await super().list(workspace, after=after, limit=limit))[::-1]


class SameRecords(MemoryStore):
    """Reads from the start whatever was asked for."""

    async def read(self, where: Where, *, after: int = 0, **arguments: Any) -> RecordPage:
        return await super().read(where, after=0 if after else after, **arguments)


class GivesNothing(MemoryStore):
    """Counts records that it does not give."""

    async def read(self, where: Where, *, after: int = 0, **arguments: Any) -> RecordPage:
        page = await super().read(where, after=after, **arguments)
        return RecordPage(head=page.head) if after else page


class Refuses(MemoryStore):
    """After `full` is set, another writer was always first."""

    full = False

    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        if self.full:
            raise Conflict(conversation=where.conversation, expected=0, found=1)
        return await super().append(where, records, **arguments)

    async def replace(self, where: Where, bodies: Mapping[int, bytes], **arguments: Any) -> StoredHead:
        if self.full:
            raise Conflict(conversation=where.conversation, expected=0, found=1)
        return await super().replace(where, bodies, **arguments)


async def filled(within: MemoryStore) -> Sealed:
    """A sealed store with two conversations of three records."""
    sealed = Sealed(within, KEY, create=True)
    for name in ("alice", "bob"):
        await sealed.append(Where("team", name), [b"a", b"b", b"c"], state=b"s")
    return sealed


async def in_time(work: Awaitable[Any]) -> StoreError:
    """The error that the work ends in; a loop that does not end is stopped."""
    with anyio.fail_after(30), pytest.raises(StoreError) as raised:
        await work
    return raised.value


async def collect(items: AsyncIterator[Any]) -> list[Any]:
    return [each async for each in items]


@pytest.mark.parametrize("faulty", [SamePage, GoesBack, NeverOrdered])
@awaited
async def test_a_list_that_does_not_rise_is_damage(faulty: type[MemoryStore]) -> None:
    within = faulty()
    for name in ("a", "b", "c"):
        await within.append(Where("team", name), [b"x"])
    assert isinstance(await in_time(collect(every_conversation(within, "team", page=2))), Damaged)


@pytest.mark.parametrize("faulty", [SamePage, GoesBack, NeverOrdered])
@awaited
async def test_no_list_of_a_sealed_store_goes_on_for_ever(faulty: type[MemoryStore]) -> None:
    sealed = await filled(faulty())
    assert isinstance(await in_time(sealed.list("team")), Damaged)


@pytest.mark.parametrize("faulty", [SameRecords, GivesNothing])
@awaited
async def test_records_that_do_not_follow_are_damage(faulty: type[MemoryStore]) -> None:
    within = faulty()
    await within.append(HERE, [b"a", b"b", b"c"])
    error = await in_time(collect(every_record(within, HERE, page=2)))
    assert isinstance(error, Damaged)
    assert error.conversation == "alice"


@pytest.mark.parametrize("faulty", [SameRecords, GivesNothing])
@awaited
async def test_no_reading_of_a_sealed_store_goes_on_for_ever(faulty: type[MemoryStore]) -> None:
    sealed = await filled(faulty())
    assert (await in_time(collect(every_record(sealed, HERE, page=2)))).conversation == "alice"


WRITING: dict[str, Callable[[Sealed], Awaitable[Any]]] = {
    "append": lambda sealed: sealed.append(HERE, [b"x"]),
    "append to a new one": lambda sealed: sealed.append(Where("team", "c"), [b"x"]),
    "replace": lambda sealed: sealed.replace(HERE, {0: b"x"}, expect=3),
}


@pytest.mark.parametrize("work", WRITING.values(), ids=WRITING.keys())
@awaited
async def test_no_write_is_tried_for_ever(work: Callable[[Sealed], Awaitable[Any]]) -> None:
    within = Refuses()
    sealed = await filled(within)
    within.full = True
    assert (await in_time(work(sealed))).conversation in ("alice", "c")


class OldAndNew(MemoryStore):
    """Gives a state of before and the one of now by turns: neither is ever what a write finds."""

    def __init__(self) -> None:
        super().__init__()
        self.older: dict[Where, bytes] = {}
        self.turn = 0

    async def read(self, where: Where, **arguments: Any) -> RecordPage:
        page = await super().read(where, **arguments)
        self.turn += where in self.older
        if where in self.older and self.turn % 2:
            return RecordPage(
                records=page.records, head=StoredHead(count=page.head.count, state=self.older[where])
            )
        return page

    async def append(self, where: Where, records: Sequence[bytes], **arguments: Any) -> StoredHead:
        if where in self.older:
            raise Conflict(conversation=where.conversation, expected=0, found=0)
        return await super().append(where, records, **arguments)


@awaited
async def test_a_store_that_alternates_between_two_states_is_left_in_the_end() -> None:
    within = OldAndNew()
    sealed = await filled(within)
    inner = await sealed.inner(HERE)
    older = (await within.read(inner, last=0)).head.state
    await sealed.append(HERE, [], state=b"another")
    within.older[inner] = older
    assert (await in_time(sealed.append(HERE, [b"x"]))).conversation == "alice"


@pytest.mark.parametrize("batch", [0, -1])
@awaited
async def test_a_batch_of_nothing_is_refused(batch: int) -> None:
    sealed = await filled(MemoryStore())
    with pytest.raises(BadInput):
        await collect(every_record(sealed, HERE, page=batch))


def test_attempts_end() -> None:
    seen: list[int] = []
    with pytest.raises(StoreError, match=f"{TRIES:,} times another writer was first"):
        seen.extend(attempts("a"))
    assert seen == list(range(TRIES))


@awaited
async def test_whole_walks_are_whole() -> None:
    within = MemoryStore()
    names = [f"{number:03}" for number in range(25)]
    for name in names:
        await within.append(Where("team", name), [name.encode()] * 25)
    for page in (1, 24, 25, 26):
        listed = await collect(every_conversation(within, "team", page=page))
        assert [each.conversation for each in listed] == names
        records = await collect(every_record(within, Where("team", "007"), page=page))
        assert records == [Record(seq=seq, body=b"007") for seq in range(25)]
    assert await collect(every_record(within, Where("team", "none"))) == []


@pytest.mark.parametrize("faulty", [SamePage, GoesBack, NeverOrdered])
def test_the_suite_for_stores_finds_a_list_that_does_not_rise(faulty: type[MemoryStore]) -> None:
    @asynccontextmanager
    async def opened(_folder: str) -> AsyncIterator[Store]:
        yield faulty()

    [case] = [each for each in promises(opened, lasting=False) if each.name == "a list goes page by page"]
    with pytest.raises((AssertionError, Damaged)):
        case()
