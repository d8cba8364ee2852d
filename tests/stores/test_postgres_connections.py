"""Connections that are lost, cut at the commit, cancelled or kept waiting; tables of another version."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, Literal, ParamSpec
from uuid import uuid4

import anyio
import psycopg
import pytest
from anyio.abc import SocketAttribute, SocketStream

from lamina.errors import BadInput, Broken, Conflict, StoreError
from lamina.stores import ConnectionLimits, Once, PostgresStore, StoredHead, Where, open_postgres
from lamina.stores.postgres import connections
from lamina.stores.postgres.store import VERSION
from tests.servers.postgres import shared
from tests.sessions.talking import awaited

WHERE = Where("team", "chat")
ONCE = Once(key="turn-1", digest=b"d")
QUICK = ConnectionLimits(connections=2, reconnect=0.5)


@pytest.fixture
def tables() -> Iterator[str]:
    """A schema that no other test uses."""
    name = f"s{uuid4().hex}"
    yield name
    with psycopg.connect(shared().url, autocommit=True) as link:
        link.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')


P = ParamSpec("P")

Cut = Literal["before", "after", "never"]


class Wire:
    """A way to the server that is cut at the next commits: before the server hears of it, or after."""

    def __init__(self, *cuts: Cut) -> None:
        self.cuts = list(cuts)
        self.port = 0

    @property
    def url(self) -> str:
        return f"postgresql://lamina@127.0.0.1:{self.port}/postgres"

    async def carry(self, client: SocketStream) -> None:
        server = await anyio.connect_unix(f"{shared().folder}/.s.PGSQL.5432")
        commits = anyio.Event()
        async with client, server, anyio.create_task_group() as tasks:
            tasks.start_soon(self._forth, client, server, commits, tasks.cancel_scope)
            tasks.start_soon(self._back, client, server, commits, tasks.cancel_scope)

    async def _forth(self, client: Any, server: Any, commits: anyio.Event, end: anyio.CancelScope) -> None:
        async for sent in _chunks(client):
            if b"COMMIT" in sent and self.cuts and (cut := self.cuts.pop(0)) != "never":
                if cut == "before":
                    break
                commits.set()
            await server.send(sent)
        if not commits.is_set():
            end.cancel()

    async def _back(self, client: Any, server: Any, commits: anyio.Event, end: anyio.CancelScope) -> None:
        async for answer in _chunks(server):
            if commits.is_set():
                break
            await client.send(answer)
        end.cancel()


async def _chunks(stream: SocketStream) -> AsyncIterator[bytes]:
    while True:
        try:
            yield await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return


@asynccontextmanager
async def cut(tables: str, *cuts: Cut) -> AsyncIterator[PostgresStore]:
    """A store whose first commits are cut, once its tables are there."""
    wire = Wire(*cuts)
    await opened_and_closed(tables)
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        wire.port = listener.extra_attributes[SocketAttribute.local_port]()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, wire.carry)
            store = await PostgresStore.open(wire.url, schema=tables, limits=QUICK)
            yield store
            await store.close()
            tasks.cancel_scope.cancel()


def limited(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run a test in an event loop of its own, for a minute at most."""

    @awaited
    @wraps(test)
    async def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with anyio.fail_after(60):
            await test(*args, **kwargs)

    return run


@pytest.mark.parametrize("when", ["before", "after"])
@limited
async def test_a_commit_whose_answer_is_lost_is_settled_by_its_key(tables: str, when: Cut) -> None:
    async with cut(tables, when) as store:
        head = await store.append(WHERE, [b"a", b"b"], expect=0, once=ONCE, state=b"s")
        assert head == StoredHead(count=2, state=b"s")
        page = await store.read(WHERE)
        assert [record.body for record in page.records] == [b"a", b"b"]


@pytest.mark.parametrize(("when", "there"), [("before", 0), ("after", 1)])
@limited
async def test_a_commit_without_a_key_says_what_to_do(tables: str, when: Cut, there: int) -> None:
    async with cut(tables, when) as store:
        with pytest.raises(Broken, match=r"made or not.*read the conversation.*`once`"):
            await store.append(WHERE, [b"a"], expect=0)
        assert (await store.read(WHERE)).head.count == there
        assert (await store.append(WHERE, [b"b"], expect=there)).count == there + 1


@limited
async def test_a_key_that_could_not_be_settled_can_be_used_again(tables: str) -> None:
    async with cut(tables, "after", "before") as store:
        await store.append(WHERE, [b"zero"], once=Once(key="turn-0", digest=b"d"))  # asked twice, cut once
        with pytest.raises(Broken, match="same key"):
            await _lost_twice(store)
        assert (await store.append(WHERE, [b"a"], once=ONCE)).count == 2


async def _lost_twice(store: PostgresStore) -> None:
    link = store._pool  # noqa: SLF001 - the server cannot be had again, as far as this call sees
    address, link._url = link._url, "postgresql:///?host=/nowhere"  # noqa: SLF001
    try:
        await store.append(WHERE, [b"a"], once=ONCE)
    finally:
        link._url = address  # noqa: SLF001


@pytest.mark.parametrize("when", ["before", "after"])
@limited
async def test_a_deletion_whose_answer_is_lost_is_not_repeated(tables: str, when: Cut) -> None:
    async with cut(tables, "never", when) as store:
        await store.append(WHERE, [b"a"])
        with pytest.raises(Broken, match="delete it again"):
            await store.delete(WHERE)
        assert (await store.read(WHERE)).head.count == (when == "before")


@limited
async def test_idle_connections_that_died_are_not_noticed(tables: str) -> None:
    async with open_postgres(shared().url, schema=tables) as store:
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(store.append, Where("w", str(number)), [b"a"])
        terminated(tables)
        assert (await store.append(WHERE, [b"a"], expect=0)).count == 1
        terminated(tables)
        assert (await store.read(WHERE)).head.count == 1


def terminated(tables: str) -> None:
    query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = %s"
    with psycopg.connect(shared().url) as link:
        assert link.execute(query, [f"lamina {tables}"]).fetchone() != (0,)


@limited
async def test_a_cancelled_call_closes_its_connection(tables: str) -> None:
    async with open_postgres(shared().url, schema=tables, connections=1) as store:
        await store.append(WHERE, [b"a"])
        before = await backend(store)
        async with held(tables), anyio.create_task_group() as tasks:
            tasks.start_soon(store.append, WHERE, [b"never"])
            await waiting(tables)
            tasks.cancel_scope.cancel()
        assert await backend(store) != before
        assert (await store.append(WHERE, [b"b"], expect=1)).count == 2


async def waiting(tables: str) -> None:
    """Until a call of the store waits for somebody else's."""
    query = "SELECT FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'"
    async with await psycopg.AsyncConnection.connect(shared().url, autocommit=True) as link:
        while (await link.execute(query, [f"lamina {tables}"])).rowcount == 0:  # noqa: ASYNC110 - in another process
            await anyio.sleep(0.01)


@limited
async def test_a_call_cancelled_between_two_statements_closes_it_too(tables: str) -> None:
    async with open_postgres(shared().url, schema=tables, connections=1) as store:
        before = await backend(store)
        with anyio.CancelScope() as scope:
            async with store._pool.call():  # noqa: SLF001
                scope.cancel()
                await anyio.sleep_forever()
        assert await backend(store) != before


async def backend(store: PostgresStore) -> int:
    async with store._pool.call() as call:  # noqa: SLF001 - which connection it has is nobody else's business
        return call.connection.info.backend_pid


@asynccontextmanager
async def held(tables: str) -> AsyncIterator[None]:
    """Another writer has the conversation, and takes its time."""
    async with await psycopg.AsyncConnection.connect(shared().url) as other:
        await other.execute(f'SELECT FROM "{tables}".conversation FOR UPDATE')
        yield
        await other.rollback()


@limited
async def test_a_refusal_keeps_the_connection(tables: str) -> None:
    async with open_postgres(shared().url, schema=tables, connections=1) as store:
        before = await backend(store)
        with pytest.raises(Conflict):
            await store.append(WHERE, [b"a"], expect=3)
        assert await backend(store) == before
        assert await store.list("team") == []


@limited
async def test_a_writer_that_waits_too_long_gives_up(tables: str) -> None:
    store = await PostgresStore.open(shared().url, schema=tables, limits=ConnectionLimits(lock=0.1))
    await store.append(WHERE, [b"a"])
    async with held(tables):
        with pytest.raises(StoreError, match=r"too long.*nothing was written") as refusal:
            await store.append(WHERE, [b"b"])
    assert not isinstance(refusal.value, Broken)
    assert (await store.append(WHERE, [b"b"], expect=1)).count == 2
    await store.close()


@limited
async def test_a_session_that_does_not_commit_to_disk_is_refused(
    tables: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = connections._settings  # noqa: SLF001
    monkeypatch.setattr(
        connections, "_settings", lambda *arguments: {**settings(*arguments), "synchronous_commit": "local"}
    )
    with pytest.raises(StoreError, match="synchronous_commit at 'local'"):
        await PostgresStore.open(shared().url, schema=tables)


@limited
async def test_every_connection_commits_to_disk(tables: str) -> None:
    with psycopg.connect(shared().url) as plain:
        assert plain.execute("SHOW synchronous_commit").fetchone() == ("off",)
    async with open_postgres(shared().url, schema=tables) as store, store._pool.call() as call:  # noqa: SLF001
        assert await (await call.connection.execute("SHOW synchronous_commit")).fetchone() == ("on",)


@limited
async def test_a_server_that_is_not_there_is_said_at_once() -> None:
    with pytest.raises(Broken, match="no connection"):
        await PostgresStore.open("postgresql:///?host=/nowhere")


@limited
async def test_an_address_is_not_repeated() -> None:
    with pytest.raises(BadInput) as refusal:
        await PostgresStore.open("postgresql://me:secret@host:port:port/db?nonsense")
    assert "secret" not in str(refusal.value)


@limited
async def test_a_closed_store_takes_nothing(tables: str) -> None:
    async with open_postgres(shared().url, schema=tables) as store:
        pass
    with pytest.raises(StoreError, match="closed"):
        await store.read(WHERE)


async def opened_and_closed(tables: str) -> None:
    async with open_postgres(shared().url, schema=tables):
        pass


@pytest.mark.parametrize(("version", "advice"), [(VERSION + 1, "update lamina"), (VERSION - 1, "export it")])
@limited
async def test_tables_of_another_version_are_refused(tables: str, version: int, advice: str) -> None:
    await opened_and_closed(tables)
    with psycopg.connect(shared().url, autocommit=True) as link:
        link.execute(f'UPDATE "{tables}".lamina SET version = {version}')  # noqa: S608 - a number
    with pytest.raises(StoreError, match=f"the tables have version {version}; .*{advice}"):
        await opened_and_closed(tables)


@pytest.mark.parametrize("name", ["", "pg_mine", "n" * 64, "a\0b"])
@limited
async def test_a_schema_that_would_be_cut_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="schema"):
        await PostgresStore.open(shared().url, schema=name)


def test_without_the_extra_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['psycopg'] = None; import lamina.stores.postgres"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'lamina-context[postgres]'" in done.stderr.splitlines()[-1]
