"""A server that is killed under load, again and again. As a script: how often, and what came of it.

python tests/stores/test_postgres_killed.py 200
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from random import Random

import anyio
import pytest
from anyio import to_thread

from lamina.errors import Broken
from lamina.stores import ConnectionLimits, Once, PostgresStore, RecordPage, Where
from lamina.stores.postgres.connections import ConnectionPool
from tests.servers.postgres import Server, postgres
from tests.sessions.talking import awaited

WRITERS = 4
PATIENT = ConnectionLimits(connections=2 * WRITERS, reconnect=60)
HASTY = ConnectionLimits(connections=2 * WRITERS, reconnect=0.3)


class Load:
    """Writers with and without keys, and what they were told. A group is two records and a state."""

    def __init__(self) -> None:
        self.kept: Counter[str] = Counter()
        self.open: Counter[str] = Counter()
        self.settled = 0
        self.perhaps = 0
        self.made = 0
        self.over = False

    async def with_key(self, store: PostgresStore, writer: int) -> None:
        """Send each group until it is acknowledged, always with its key."""
        number = 0
        while not self.over:
            name = f"key/{writer}/{number}"
            while not await self._sent(store, "keys", name, Once(key=name, digest=b"d")):
                self.settled += 1
                await anyio.sleep(0.01)
            number += 1

    async def without_key(self, store: PostgresStore, writer: int) -> None:
        """Send each group once; what was not acknowledged is there or not."""
        number = 0
        while not self.over:
            name = f"none/{writer}/{number}"
            if not await self._sent(store, "none", name, None):
                self.open[name] += 1
            number += 1

    async def more(self) -> None:
        """Wait until something of each sort was acknowledged since now."""
        before = [self.kept_of(kind).total() for kind in ("key", "none")]
        while any(  # noqa: ASYNC110 - short, and nobody has to tell
            self.kept_of(kind).total() <= was for kind, was in zip(("key", "none"), before, strict=True)
        ):
            await anyio.sleep(0.01)

    async def _sent(self, store: PostgresStore, conversation: str, name: str, once: Once | None) -> bool:
        group = [f"{name}/{part}".encode() for part in range(2)]
        try:
            await store.append(Where("w", conversation), group, once=once, state=name.encode())
        except Broken as broken:
            self.perhaps += "made or not" in broken.problem
            return False
        self.kept[name] += 1
        return True

    def check(self, keys: RecordPage, none: RecordPage) -> None:
        there = groups(keys)
        assert there == self.kept_of("key"), "a group with a key is there once, and acknowledged"
        there = groups(none)
        self.made = sum((there & self.open).values())
        assert not self.kept_of("none") - there, "acknowledged, and lost"
        assert not there - self.kept_of("none") - self.open, "there twice, or never sent"
        for page in (keys, none):
            assert page.head.count == len(page.records)
            assert page.records[-1].body.rpartition(b"/")[0] == page.head.state

    def kept_of(self, kind: str) -> Counter[str]:
        return Counter({name: count for name, count in self.kept.items() if name.startswith(kind)})


def groups(page: RecordPage) -> Counter[str]:
    """The groups by name; each has to be whole, its records side by side."""
    bodies = [record.body.decode() for record in page.records]
    pairs = list(zip(bodies[::2], bodies[1::2], strict=True))
    assert all((one.rpartition("/")[0], "1") == (*two.rpartition("/")[::2],) for one, two in pairs)
    return Counter(one.rpartition("/")[0] for one, _ in pairs)


async def killed(server: Server, times: int, limits: ConnectionLimits, seed: int) -> Load:
    """The load, through so many kills of the server, checked against what is there at the end."""
    load, dice = Load(), Random(seed)  # noqa: S311 - moments, not secrets
    store = await PostgresStore.open(server.url, schema=f"s{seed}", limits=limits)
    async with anyio.create_task_group() as tasks:
        for writer in range(WRITERS):
            tasks.start_soon(load.with_key, store, writer)
            tasks.start_soon(load.without_key, store, writer)
        for _ in range(times):
            await load.more()
            await anyio.sleep(dice.random() * 0.3)
            await to_thread.run_sync(server.kill)
            await to_thread.run_sync(server.start)
        load.over = True
    load.check(await store.read(Where("w", "keys")), await store.read(Where("w", "none")))
    await store.close()
    return load


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres() as started:
        yield started


def test_nothing_acknowledged_is_lost_when_the_server_is_killed(server: Server) -> None:
    loads = []
    for seed in (1, 11, 12, 13):  # a kill may find no append without a key on its way
        loads.append(anyio.run(killed, server, 2, HASTY, seed))
        assert loads[-1].kept
        if loads[-1].open:
            break
    assert loads[-1].open, "no kill ever interrupted an append"


def test_a_restart_is_waited_for(server: Server) -> None:
    load = anyio.run(killed, server, 1, PATIENT, 2)
    assert not load.settled, "a group with a key needs no repeating by the caller"


@awaited
async def test_a_lost_connection_that_is_given_back_late_stops_nobody(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All connections are lost with the server, and one is given back after the others were dropped."""

    async def drop_too_early(_: ConnectionPool) -> None:
        pass

    store = await PostgresStore.open(server.url, schema="late", limits=PATIENT)
    async with anyio.create_task_group() as tasks:
        for writer in range(WRITERS):
            tasks.start_soon(store.append, Where("w", f"late/{writer}"), [b"a"])
    await to_thread.run_sync(server.kill)
    await to_thread.run_sync(server.start)
    with monkeypatch.context() as patched:
        patched.setattr(ConnectionPool, "drop_idle", drop_too_early)
        head = await store.append(Where("w", "late/0"), [b"b"])
    assert head.count == 2
    await store.close()


def main(times: int) -> None:
    began = time.monotonic()
    with postgres() as server:
        load = anyio.run(killed, server, times, HASTY, 3)
        print(server.version)
    acknowledged = sum(load.kept.values())
    print(f"{times} kills, {acknowledged:,} groups acknowledged, 0 lost, 0 doubled")
    print(f"{load.settled} repeated by their key")
    print(f"{sum(load.open.values())} failed without one, of which {load.made} were there")
    print(f"{load.perhaps} calls could not say whether they had committed")
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]))
