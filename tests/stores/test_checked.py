"""Every store of lamina refuses the same arguments, and stores what a call was given when it began.

All of them take their arguments at one door, `CheckedStore`, so the store in memory stands for the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from lamina.errors import BadInput
from lamina.stores import (
    FilesStore,
    MemoryStore,
    Once,
    PostgresStore,
    SqliteStore,
    StoredHead,
    Where,
    open_sqlite,
)
from lamina.stores.checked import CheckedStore
from lamina.stores.sealed import Sealed
from tests.sessions.talking import awaited

WHERE = Where("checked", "chat")
BODIES = [b"a", b"b"]

Call = Callable[[Any], Awaitable[Any]]

REFUSED: dict[str, Call] = {
    "where is a tuple": lambda store: store.append(("checked", "chat"), [b"x"]),
    "workspace is a number": lambda store: store.read(Where(1, "chat")),  # type: ignore[arg-type]
    "conversation is bytes": lambda store: store.delete(Where("checked", b"chat")),  # type: ignore[arg-type]
    "records are bytes": lambda store: store.append(WHERE, b"xy"),
    "a record is a bytearray": lambda store: store.append(WHERE, [bytearray(b"x")]),
    "expect is text": lambda store: store.append(WHERE, [b"x"], expect="2"),
    "state is text": lambda store: store.append(WHERE, [b"x"], state="s"),
    "once is a dict": lambda store: store.append(WHERE, [b"x"], once={"key": "k", "digest": b"d"}),
    "digest is text": lambda store: store.append(WHERE, [b"x"], once=Once(key="k", digest="d")),  # type: ignore[arg-type]
    "after is a float": lambda store: store.read(WHERE, after=0.5),
    "last is text": lambda store: store.read(WHERE, last="1"),
    "limit is a float": lambda store: store.read(WHERE, limit=1.5),
    "a place is text": lambda store: store.read(WHERE, at=["0"]),
    "a place is a float": lambda store: store.read(WHERE, at=[1.5]),
    "a place is nothing": lambda store: store.read(WHERE, at=[None]),
    "list after nothing": lambda store: store.list(WHERE.workspace, after=None),
    "list after a lone surrogate": lambda store: store.list(WHERE.workspace, after="\ud800"),
    "list a float": lambda store: store.list(WHERE.workspace, limit=1.5),
    "list without a limit": lambda store: store.list(WHERE.workspace, limit=None),
    "replace a place that is not there": lambda store: store.replace(WHERE, {2: b"x"}, expect=2),
    "replace at a place of text": lambda store: store.replace(WHERE, {"0": b"x"}, expect=2),
    "replace without expecting": lambda store: store.replace(WHERE, {}, expect=None),
}


def test_every_store_has_the_one_door() -> None:
    for kind in (MemoryStore, FilesStore, SqliteStore, PostgresStore, Sealed):
        for name in ("append", "read", "replace", "list", "delete"):
            assert getattr(kind, name) is getattr(CheckedStore, name)


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED.keys())
@awaited
async def test_no_store_takes_what_another_could_not_store(call: Call) -> None:
    store = MemoryStore()
    await store.append(WHERE, BODIES, state=b"s")
    before = await store.read(WHERE)
    with pytest.raises(BadInput):
        await call(store)
    assert await store.read(WHERE) == before


@awaited
async def test_records_of_an_iterator_are_stored() -> None:
    def bodies() -> Iterator[bytes]:
        yield from BODIES

    store = MemoryStore()
    assert await store.append(WHERE, bodies()) == StoredHead(count=2)  # type: ignore[arg-type]
    page = await store.read(WHERE, at=iter([1, 0]))  # type: ignore[arg-type]
    assert [record.body for record in page.records] == BODIES


@awaited
async def test_a_call_stores_what_it_was_given() -> None:
    """What the caller does with its list while the call waits changes nothing."""
    records: list[Any] = [b"a"]
    bodies: dict[int, Any] = {0: b"A"}
    store = MemoryStore()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store.append, WHERE, records)
        await checkpoint()
        records.append("not a record")
    assert [record.body for record in (await store.read(WHERE)).records] == [b"a"]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(store.replace, WHERE, bodies, expect=1))
        await checkpoint()
        bodies[0] = "not a record"
    assert [record.body for record in (await store.read(WHERE)).records] == [b"A"]


@awaited
async def test_several_deletions_are_those_that_were_given(tmp_path: Path) -> None:
    other = Where("checked", "other")
    async with open_sqlite(tmp_path / "chats.db") as store:
        for where in (WHERE, other):
            await store.append(where, BODIES)
        places: Any = iter([WHERE, other])
        assert await store.delete_many(places) == 2
        assert list(await store.list("checked")) == []
