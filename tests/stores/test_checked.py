"""Every store of lamina refuses the same arguments, and stores what a call was given when it began."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from lamina.errors import BadInput
from lamina.stores.checked import CheckedStore, RecordSelection
from lamina.stores.files import open_files
from lamina.stores.memory import MemoryStore
from lamina.stores.port import ListedConversation, Once, Rekeyable, StoredHead, Where, Withdrawable
from lamina.stores.postgres import open_postgres
from lamina.stores.sealed import Sealed, generate
from lamina.stores.sqlite import open_sqlite
from tests.servers.postgres import shared

pytestmark = pytest.mark.filterwarnings("ignore::lamina.stores.sqlite.WalResetRisk")

WHERE = Where("checked", "chat")
HUGE = 2**70
BODIES = [b"a", b"b"]

OpenChecked = Callable[[Path], AbstractAsyncContextManager[CheckedStore]]
Call = Callable[[Any], Awaitable[Any]]


@asynccontextmanager
async def in_memory(_folder: Path) -> AsyncIterator[CheckedStore]:
    yield MemoryStore()


@asynccontextmanager
async def sealed_in_memory(_folder: Path) -> AsyncIterator[CheckedStore]:
    yield Sealed(MemoryStore(), generate(), create=True)


@asynccontextmanager
async def in_files(folder: Path) -> AsyncIterator[CheckedStore]:
    async with open_files(folder / "chats") as store:
        yield store


@asynccontextmanager
async def in_sqlite(folder: Path, *, driver: Any) -> AsyncIterator[CheckedStore]:
    async with open_sqlite(folder / "chats.db", driver=driver) as store:
        yield store


@asynccontextmanager
async def in_postgres(_folder: Path) -> AsyncIterator[CheckedStore]:
    async with open_postgres(shared().url, schema="checked") as store:
        await store.delete(WHERE)
        yield store


STORES: dict[str, OpenChecked] = {
    "memory": in_memory,
    "sealed": sealed_in_memory,
    "files": in_files,
    "sqlite3": partial(in_sqlite, driver="sqlite3"),
    "postgres": in_postgres,
}
if importlib.util.find_spec("apsw"):
    STORES["apsw"] = partial(in_sqlite, driver="apsw")


@pytest.fixture(params=list(STORES))
def open_checked(request: pytest.FixtureRequest) -> OpenChecked:
    return STORES[request.param]


REFUSED: dict[str, Call] = {
    "where is a tuple": lambda store: store.append(("checked", "chat"), [b"x"]),
    "workspace is a number": lambda store: store.read(Where(1, "chat")),  # type: ignore[arg-type]
    "conversation is bytes": lambda store: store.delete(Where("checked", b"chat")),  # type: ignore[arg-type]
    "records are bytes": lambda store: store.append(WHERE, b"xy"),
    "a record is a bytearray": lambda store: store.append(WHERE, [bytearray(b"x")]),
    "expect is text": lambda store: store.append(WHERE, [b"x"], expect="2"),
    "expect is negative": lambda store: store.append(WHERE, [b"x"], expect=-1),
    "state is text": lambda store: store.append(WHERE, [b"x"], state="s"),
    "once is a dict": lambda store: store.append(WHERE, [b"x"], once={"key": "k", "digest": b"d"}),
    "digest is text": lambda store: store.append(WHERE, [b"x"], once=Once(key="k", digest="d")),  # type: ignore[arg-type]
    "after is a float": lambda store: store.read(WHERE, after=0.5),
    "last is text": lambda store: store.read(WHERE, last="1"),
    "limit is a float": lambda store: store.read(WHERE, limit=1.5),
    "a place is text": lambda store: store.read(WHERE, at=["0"]),
    "two selections": lambda store: store.read(WHERE, last=1, at=[0]),
    "list after nothing": lambda store: store.list(WHERE.workspace, after=None),
    "list after a lone surrogate": lambda store: store.list(WHERE.workspace, after="\ud800"),
    "list a float": lambda store: store.list(WHERE.workspace, limit=1.5),
    "list without a limit": lambda store: store.list(WHERE.workspace, limit=None),
    "replace a place that is not there": lambda store: store.replace(WHERE, {2: b"x"}, expect=2),
    "replace at a place of text": lambda store: store.replace(WHERE, {"0": b"x"}, expect=2),
    "replace without expecting": lambda store: store.replace(WHERE, {}, expect=None),
}


def test_no_store_takes_what_another_could_not_store(open_checked: OpenChecked, tmp_path: Path) -> None:
    async def trial() -> None:
        async with open_checked(tmp_path) as store:
            await store.append(WHERE, BODIES, state=b"s")
            before = await store.read(WHERE)
            for name, call in REFUSED.items():
                try:
                    answer = await call(store)
                except BadInput:
                    continue
                pytest.fail(f"{name}: {answer!r}")
            if isinstance(store, Withdrawable):
                with pytest.raises(BadInput, match=r"^was: "):
                    await store.withdraw(WHERE, was="s")  # type: ignore[arg-type]
            assert await store.read(WHERE) == before

    anyio.run(trial)


def test_a_number_too_large_for_a_database_means_all(open_checked: OpenChecked, tmp_path: Path) -> None:
    async def trial() -> None:
        async with open_checked(tmp_path) as store:
            await store.append(WHERE, BODIES)
            listed = ListedConversation(conversation=WHERE.conversation, count=2)
            assert await store.list(WHERE.workspace, limit=HUGE) == [listed]
            everything = await store.read(WHERE)
            assert await store.read(WHERE, limit=HUGE) == everything
            assert await store.read(WHERE, last=HUGE) == everything
            assert (await store.read(WHERE, after=HUGE)).records == ()
            assert (await store.read(WHERE, at=[HUGE, 1])).records == everything.records[1:]

    anyio.run(trial)


def test_records_of_an_iterator_are_stored(open_checked: OpenChecked, tmp_path: Path) -> None:
    def bodies() -> Iterator[bytes]:
        yield from BODIES

    async def trial() -> None:
        async with open_checked(tmp_path) as store:
            head = await store.append(WHERE, bodies())  # type: ignore[arg-type]
            assert head == StoredHead(count=2)
            page = await store.read(WHERE, at=iter([1, 0]))  # type: ignore[arg-type]
            assert [record.body for record in page.records] == BODIES

    anyio.run(trial)


def test_a_call_stores_what_it_was_given(open_checked: OpenChecked, tmp_path: Path) -> None:
    """What the caller does with its list while the call waits changes nothing."""
    records: list[Any] = [b"a"]
    bodies: dict[int, Any] = {0: b"A"}

    async def trial() -> None:
        async with open_checked(tmp_path) as store:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(store.append, WHERE, records)
                await checkpoint()
                records.append("not a record")
            assert [record.body for record in (await store.read(WHERE)).records] == [b"a"]
            assert isinstance(store, Rekeyable)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(store.replace, WHERE, bodies, expect=1))
                await checkpoint()
                bodies[0] = "not a record"
            assert [record.body for record in (await store.read(WHERE)).records] == [b"A"]

    anyio.run(trial)


@pytest.mark.parametrize(
    ("selection", "places"),
    [
        (RecordSelection(), [0, 1, 2, 3]),
        (RecordSelection(after=3), [3]),
        (RecordSelection(after=9), []),
        (RecordSelection(last=0), []),
        (RecordSelection(last=3, limit=2), [1, 2]),
        (RecordSelection(at=(3, 9, 1, 3)), [1, 3]),
        (RecordSelection(at=(3, 1), limit=1), [1]),
    ],
)
def test_a_selection_names_its_places(selection: RecordSelection, places: list[int]) -> None:
    assert list(selection.places(4)) == places


def test_several_deletions_are_those_that_were_given(tmp_path: Path) -> None:
    other = Where("checked", "other")

    async def delete_all() -> None:
        async with open_sqlite(tmp_path / "chats.db") as store:
            for where in (WHERE, other):
                await store.append(where, BODIES)
            places: Any = iter([WHERE, other])
            assert await store.delete_many(places) == 2
            assert list(await store.list("checked")) == []

    anyio.run(delete_all)
