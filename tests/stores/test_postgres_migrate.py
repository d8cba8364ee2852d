"""Tables of an older release, migrated while programs of both releases write, and killed in between."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import anyio
import psycopg
import pytest
from anyio import to_thread

from lamina.cli import main
from lamina.errors import StoreError
from lamina.stores.port import Once, Where
from lamina.stores.postgres import PostgresStore, open_postgres, schema
from lamina.stores.postgres.migrate import migrate_tables, plan_migration
from tests.servers.postgres import shared
from tests.stores.older_postgres import append_as_version_2, make_older_tables

CONVERSATIONS = 40
RECORDS = 250
"""Of each conversation that is there before."""

SHARED = Where("w", "shared")


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A database of its own, with tables of version 2 that count as large."""
    monkeypatch.setattr(schema, "SMALL", 0)
    name = f"d{uuid4().hex}"
    with psycopg.connect(shared().url, autocommit=True) as link:
        link.execute(f'CREATE DATABASE "{name}"')
        address = shared().url.replace("/postgres?", f"/{name}?")
        with psycopg.connect(address, autocommit=True) as own:
            make_older_tables(own, "lamina", 2)
            own.execute(
                "INSERT INTO conversation SELECT 'w', 'old-' || n, %s, 'state' FROM generate_series(1, %s) n",
                [RECORDS, CONVERSATIONS],
            )
            own.execute(
                "INSERT INTO record SELECT 'w', 'old-' || n, seq - 1, 'body' FROM generate_series(1, %s) n, "
                "generate_series(1, %s) seq",
                [CONVERSATIONS, RECORDS],
            )
        yield address
        link.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


class Load:
    """Programs of both releases that write, and what they were told."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.bodies: dict[Where, list[bytes]] = {SHARED: []}
        self.ends_older = anyio.Event()
        self.ends = anyio.Event()
        self.was_read = anyio.Event()

    async def write_as_older(self, writer: int) -> None:
        own = Where("w", f"older-{writer}")
        async with await _connect(self.url) as link:
            number = 0
            while not self.ends_older.is_set():
                for where in (own, SHARED, Where("w", f"old-{number % CONVERSATIONS + 1}")):
                    body = f"older {writer} {number}".encode()
                    key = f"{writer} {number}".encode()
                    await append_as_version_2(link, where, body, state=body, key=key)
                    self.bodies.setdefault(where, []).append(body)
                number += 1

    async def write_as_newer(self, writer: int) -> None:
        own = Where("w", f"newer-{writer}")
        async with open_postgres(self.url) as store:
            number = 0
            while not self.ends.is_set():
                for where in (own, SHARED, Where("w", f"old-{number % CONVERSATIONS + 1}")):
                    body = f"newer {writer} {number}".encode()
                    await store.append(where, [body], once=Once(key=f"{writer} {number}", digest=b"d"))
                    self.bodies.setdefault(where, []).append(body)
                number += 1

    async def read_all(self) -> None:
        async with open_postgres(self.url) as store:
            while not self.ends.is_set():
                for listed in await store.list("w"):
                    await store.read(Where("w", listed.conversation), last=20)
                self.was_read.set()


async def _connect(url: str) -> psycopg.AsyncConnection[Any]:
    link = await psycopg.AsyncConnection.connect(url, autocommit=True)
    await link.execute("SET search_path TO lamina")
    return link


def start_and_kill(url: str) -> None:
    """`lamina migrate`, killed as soon as it has filled some rows of `record`."""
    command = [sys.executable, "-m", "lamina", "migrate", "--store", url, "--yes"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("record: compute the checksums:"):
                process.send_signal(signal.SIGKILL)
                break


def test_programs_of_both_releases_write_while_it_runs_is_killed_and_goes_on(url: str) -> None:
    load = Load(url)

    async def migrate() -> None:
        with anyio.fail_after(120):
            await to_thread.run_sync(start_and_kill, url)
            plan = await plan_migration(url)
            assert (plan.tables.finished, plan.tables.expanded) == (2, 3)
            assert not any("add the column" in purpose for purpose in plan.before)
            left = next(purpose for purpose in plan.before if purpose.startswith("record: compute"))
            assert "(0 rows)" not in left
            await migrate_tables(url)
            load.ends_older.set()
            tables = await migrate_tables(url, finish=True)
            assert (tables.finished, tables.expanded) == (3, 3)
            load.was_read = anyio.Event()
            await load.was_read.wait()  # once more, by the stores that were open all the time
        load.ends.set()

    async def work() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(load.write_as_older, 0)
            tasks.start_soon(load.write_as_newer, 0)
            tasks.start_soon(load.write_as_newer, 1)
            tasks.start_soon(load.read_all)
            tasks.start_soon(migrate)
        async with open_postgres(url) as store:
            await check_bodies(store, load)
        async with await _connect(url) as link:
            with pytest.raises(psycopg.errors.NotNullViolation):
                await append_as_version_2(link, SHARED, b"late", state=b"", key=b"late")
            cursor = await link.execute("SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal")
            assert await cursor.fetchone() == (0,)

    anyio.run(work)
    assert any(body.startswith(b"older") for body in load.bodies[SHARED])
    assert any(body.startswith(b"newer") for body in load.bodies[SHARED])


async def check_bodies(store: PostgresStore, load: Load) -> None:
    """Every record that was acknowledged is there once, and every row has its checksum."""
    for where, bodies in load.bodies.items():
        records = (await store.read(where)).records
        written = [record.body for record in records if record.body != b"body"]
        assert sorted(written) == sorted(bodies)
        assert len(records) - len(written) == (RECORDS if where.conversation.startswith("old-") else 0)


def test_a_step_that_has_to_wait_lets_others_through(url: str) -> None:
    async def work() -> None:
        with anyio.fail_after(60):
            async with (
                await _connect(url) as reader,
                await _connect(url) as writer,
                anyio.create_task_group() as tasks,
            ):
                await reader.execute("BEGIN")
                await reader.execute("SELECT FROM record LIMIT 1")  # `ALTER TABLE record` waits for this
                tasks.start_soon(migrate_tables, url)
                await wait_for_lock(writer)
                await append_as_version_2(writer, SHARED, b"a", state=b"s", key=b"k")
                assert not (await plan_migration(url)).tables.has_sums
                await reader.execute("ROLLBACK")
            assert (await plan_migration(url)).tables.has_sums

    anyio.run(work)


async def wait_for_lock(link: psycopg.AsyncConnection[Any]) -> None:
    query = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'ALTER TABLE record%'"
    while (await link.execute(query)).rowcount == 0:  # noqa: ASYNC110 - in another process
        await anyio.sleep(0.01)


def test_an_index_that_was_never_finished_is_made_again(url: str) -> None:
    async def work() -> None:
        await migrate_tables(url)
        async with await _connect(url) as link:
            await append_as_version_2(link, SHARED, b"a", state=b"s", key=b"k")
            await link.execute(
                "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'record_unfilled'::regclass"
            )
            tables = await migrate_tables(url, finish=True)
            assert tables.finished == 3
            cursor = await link.execute("SELECT FROM pg_class WHERE relname LIKE '%_unfilled'")
            assert cursor.rowcount == 0

    anyio.run(work)


def test_only_one_migration_runs_at_a_time(url: str) -> None:
    async def work() -> None:
        async with await _connect(url) as link:
            await link.execute("SELECT pg_advisory_lock(hashtextextended('lamina migrate lamina', 0))")
            with pytest.raises(StoreError, match="being migrated already"):
                await migrate_tables(url)

    anyio.run(work)


def test_the_command_prints_the_plan_does_it_and_says_when_nothing_is_left(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["migrate", "--store", url]) == 0
    plan = capsys.readouterr().out
    assert "version 2, and this release writes version 3" in plan
    assert f"record: compute the checksums ({CONVERSATIONS * RECORDS:,} rows)" in plan
    assert main(["migrate", "--store", url, "--yes"]) == 0
    assert "record: compute the checksums (0 rows)" in capsys.readouterr().out
    assert main(["migrate", "--store", url, "--finish", "--yes"]) == 0
    assert "nothing is left to do" in capsys.readouterr().out
    assert main(["migrate", "--store", "chats.db"]) == 2


def test_tables_that_are_of_this_release_are_left_alone_and_their_version_is_told(url: str) -> None:
    async def migrate_again() -> None:
        first = await migrate_tables(url, finish=True)
        assert first.finished == schema.NEWEST
        assert await migrate_tables(url, finish=True) == first

    anyio.run(migrate_again)
