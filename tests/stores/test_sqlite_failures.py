from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from lamina.errors import Broken, StoreError
from lamina.stores import Once, RecordPage, SqliteStore, StoredHead, Where, open_sqlite
from lamina.stores.checked import NewGroup
from lamina.stores.sqlite import connections, tables, writer
from lamina.stores.sqlite.connections import SqliteConnection, SqliteFailure, connect
from lamina.testing._store_trial import expect_error
from tests.sessions.talking import awaited

pytestmark = pytest.mark.filterwarnings("ignore::lamina.stores.sqlite.WalResetRisk")

HERE = Where("w", "c")
SECRET = b"the bytes that must be gone"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


def with_store(path: Path, work: Callable[[SqliteStore], Awaitable[Any]]) -> Any:
    """The library is Python's own: connections that a test makes beside the store have to see its locks."""

    async def run() -> Any:
        async with open_sqlite(path) as store:
            return await work(store)

    return anyio.run(run)


def bytes_of(path: Path) -> bytes:
    """The file and its log, read by another process: closing a file here would give up SQLite's locks."""
    files = [str(each) for each in sorted(path.parent.glob(f"{path.name}*"))]
    script = "import sys; [sys.stdout.buffer.write(open(name, 'rb').read()) for name in sys.argv[1:]]"
    return subprocess.run([sys.executable, "-c", script, *files], capture_output=True, check=True).stdout


def test_deleting_leaves_no_byte(path: Path) -> None:
    async def work(store: SqliteStore) -> None:
        for number in range(40):
            name = SECRET.decode() if number % 2 else "stays"
            group = [b"%s %d " % (SECRET if number % 2 else b"other", number) * size for size in (1, 30, 300)]
            await store.append(
                Where("w", name), group, once=Once(key=f"{name}{number}", digest=group[0]), state=group[1]
            )
        await store.read(Where("w", SECRET.decode()))
        assert SECRET in bytes_of(path)
        assert await store.delete(Where("w", SECRET.decode()))
        assert SECRET not in bytes_of(path)
        assert b"other 38 " in bytes_of(path)

    with_store(path, work)
    assert SECRET not in path.read_bytes()


@awaited
async def test_what_a_reader_still_needs_is_gone_after_the_next_write(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lamina.stores.sqlite.writer.BUSY_MS", 10)
    async with open_sqlite(path) as store:
        await store.append(HERE, [SECRET])
        reader = connect(str(path), writes=False)
        reader.run("BEGIN")
        reader.run("SELECT count(*) FROM record")
        assert await store.delete(HERE)
        assert SECRET in bytes_of(path)
        reader.run("COMMIT")
        reader.close()
        await store.append(HERE, [b"next"])
        assert SECRET not in bytes_of(path)


def test_after_a_failed_commit_nothing_is_taken_until_it_is_opened_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = Disk()
    with monkeypatch.context() as patch:
        patch.setattr(writer, "connect", bad.connect)
        store = anyio.run(SqliteStore.open, path)

    async def work() -> None:
        async with open_sqlite(path) as other:
            await store.append(HERE, [b"a"])
            bad.fails = "COMMIT"
            await expect_error(store.append(HERE, [b"b"]), Broken)
            bad.fails = ""
            await expect_error(store.append(HERE, [b"c"]), Broken)
            await expect_error(other.append(HERE, [b"c"]), Broken)
            await expect_error(store.delete(HERE), Broken)
            assert (await store.read(HERE)).head.count == 1
            async with open_sqlite(path) as again:
                assert (await again.append(HERE, [b"d"], expect=1)).count == 2
        await store.close()
        async with open_sqlite(path) as again:
            assert [record.body for record in (await again.read(HERE)).records] == [b"a", b"d"]

    anyio.run(work)


def test_an_error_before_the_commit_breaks_it_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = Disk()
    with monkeypatch.context() as patch:
        patch.setattr(writer, "connect", bad.connect)
        store = anyio.run(SqliteStore.open, path)

    async def work() -> None:
        bad.fails = "BEGIN IMMEDIATE"
        await expect_error(store.append(HERE, [b"a"]), Broken)
        bad.fails = ""
        await expect_error(store.append(HERE, [b"a"]), Broken)
        await store.close()

    anyio.run(work)


@pytest.mark.parametrize("code", [connections.BUSY, connections.LOCKED])
def test_a_lock_is_waited_for_and_no_failure(path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    bad = Disk()
    with monkeypatch.context() as patch:
        patch.setattr(writer, "connect", bad.connect)
        store = anyio.run(SqliteStore.open, path)

    async def work() -> None:
        bad.codes = {"COMMIT": code}
        refusal = await expect_error(store.append(HERE, [b"a"]), StoreError)
        assert not isinstance(refusal, Broken)
        bad.codes = {}
        assert await store.append(HERE, [b"a"], expect=0) == StoredHead(count=1)
        await store.close()

    anyio.run(work)


@pytest.mark.parametrize("code", [connections.BUSY, connections.LOCKED])
def test_a_lock_that_leaves_a_transaction_open_breaks_the_store(
    path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The rollback failed, so nobody knows what a later commit would keep."""
    bad = Disk()
    with monkeypatch.context() as patch:
        patch.setattr(writer, "connect", bad.connect)
        store = anyio.run(SqliteStore.open, path)

    async def work() -> None:
        bad.codes = {"COMMIT": code, "ROLLBACK": 10}
        await expect_error(store.append(HERE, [b"a"]), Broken)
        bad.codes = {}
        await expect_error(store.append(HERE, [b"b"]), Broken)
        await store.close()
        async with open_sqlite(path) as again:
            assert await again.read(HERE) == RecordPage()

    anyio.run(work)


class Disk:
    """Connections on which statements meet a bad disk, and which know what they were asked.

    `fails` is a statement that ends in an I/O error; `codes` are statements with the results they end in.
    """

    fails = ""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.codes: dict[str, int] = {}

    def connect(self, path: str, **arguments: Any) -> Any:
        own, disk = connect(path, **arguments), self

        class Failing:
            def run(self, sql: str, values: Any = ()) -> list[Any]:
                disk.statements.append(sql)
                if sql == disk.fails:
                    raise SqliteFailure(10, "disk I/O error")
                if sql in disk.codes:
                    raise SqliteFailure(disk.codes[sql], "refused")
                return own.run(sql, values)

            def __getattr__(self, name: str) -> Any:
                return getattr(own, name)

        return Failing()


FULL_DISK = """
import resource, signal, sys, anyio
from lamina.errors import Broken
from lamina.stores.port import Where
from lamina.stores.sqlite import open_sqlite

async def main(path):
    async with open_sqlite(path) as store:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
        kept, refused = 0, 0
        for number in range(60):
            try:
                await store.append(Where("w", "c"), [b"x" * 9000] * 3, expect=3 * kept, state=b"%d" % number)
                kept += 1
            except Broken:
                refused += 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    async with open_sqlite(path) as store:
        head = (await store.read(Where("w", "c"), last=0)).head
        print(kept, refused, head.count, int(head.state))

anyio.run(main, sys.argv[1])
"""


@pytest.mark.skipif(os.name == "nt", reason="it needs a limit on the size of files")
def test_on_a_full_disk_what_was_acknowledged_stays(path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FULL_DISK, str(path)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    acknowledged, refused_, count, state = map(int, output.split())
    assert acknowledged > 3
    assert refused_ == 60 - acknowledged
    assert (count, state) in {(3 * acknowledged, acknowledged - 1), (3 * acknowledged + 3, acknowledged)}


@awaited
async def test_a_writer_that_waits_too_long_says_so_and_goes_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "BUSY_MS", 20)
    async with open_sqlite(path) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            busy = await expect_error(store.append(HERE, [b"a"]), StoreError)
            assert not isinstance(busy, Broken)
            assert await store.read(HERE) == RecordPage()
            other.execute("ROLLBACK")
        assert await store.append(HERE, [b"a"]) == StoredHead(count=1)


def test_nothing_is_left_of_rows_that_were_moved(path: Path) -> None:
    """Pages that fill up and empty make SQLite move rows, and it does not wipe where they were."""
    dice, gone = Random(3), set[str]()  # noqa: S311

    async def work(store: SqliteStore) -> None:
        there: list[str] = []
        for number in range(300):
            if not there or dice.random() < 0.2:
                there.append(f"<{number:04}>")
            name = dice.choice(there)
            size = dice.choice((1, 20, 300))
            await store.append(
                Where("w", name), [name.encode() * dice.randrange(1, 1 + size)] * 2, state=name.encode()
            )
            if dice.random() < 0.15:
                there.remove(name)
                gone.add(name)
                await store.delete(Where("w", name))

    with_store(path, work)
    left = path.read_bytes()
    assert len(gone) > 30
    assert {name for name in gone if name.encode() in left} == set()


@awaited
async def test_what_was_replaced_can_be_scrubbed(path: Path) -> None:
    async with open_sqlite(path) as store:
        await store.append(HERE, [SECRET, b"other"], state=SECRET)
        await store.replace(HERE, {0: b"new"}, expect=2, state=b"new")
        await store.scrub()
        assert SECRET not in bytes_of(path)
        assert (await store.read(HERE)).records[0].body == b"new"


def test_those_who_wait_share_a_commit_and_not_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    monkeypatch.setattr(writer, "connect", disk.connect)
    own = writer.writer_of(str(path))
    busy, go_on = threading.Event(), threading.Event()

    def first(link: SqliteConnection) -> None:
        busy.set()
        assert go_on.wait(60)
        add(link, 0)

    def add(link: SqliteConnection, number: int) -> None:
        where = Where("", f"{number}")
        tables.append_group(link, NewGroup(where=where, expect=0, state=b""))
        if number == 3:
            raise KeyError(number)

    with ThreadPoolExecutor(6) as threads:
        jobs = [threads.submit(own.write, first)]
        assert busy.wait(60)
        jobs += [threads.submit(own.write, partial(add, number=number)) for number in range(1, 6)]
        while len(own.waiting) < 5:
            time.sleep(0.001)
        before = disk.statements.count("COMMIT")
        go_on.set()
    assert [type(job.exception()) for job in jobs] == [type(None)] * 3 + [KeyError] + [type(None)] * 2
    assert disk.statements.count("COMMIT") - before == 2
    assert own.write(lambda link: len(tables.list_conversations(link, "", after="", limit=9))) == 5
    own.release()


@awaited
async def test_a_failed_commit_fails_all_who_shared_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    monkeypatch.setattr(writer, "connect", disk.connect)
    store = await SqliteStore.open(path)
    await store.append(HERE, [b"a"])
    disk.fails = "COMMIT"

    async def append(number: int) -> None:
        await expect_error(store.append(Where("w", f"{number}"), [b"b"]), Broken)

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(append, number)
    disk.fails = ""
    await store.close()
    async with open_sqlite(path) as again:
        assert [one.conversation for one in await again.list("w")] == ["c"]


@awaited
async def test_closing_waits_for_writes_under_way(path: Path) -> None:
    store = await SqliteStore.open(path)
    heads: list[int] = []

    async def append() -> None:
        heads.append((await store.append(HERE, [b"a"])).count)

    async with anyio.create_task_group() as tasks:
        for _ in range(40):
            tasks.start_soon(append)
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        tasks.start_soon(store.close)
    async with open_sqlite(path) as again:
        assert (await again.read(HERE)).head.count == len(heads) == 40


def test_a_deletion_that_fails_leaves_no_transaction(path: Path) -> None:
    own = writer.writer_of(str(path))

    def fail(link: SqliteConnection) -> bool:
        link.run("DELETE FROM conversation")
        raise KeyError

    group = NewGroup(where=HERE, records=(b"a",), expect=0)
    own.write(partial(tables.append_group, group=group))
    with pytest.raises(KeyError):
        own.erase(fail)
    assert own.write(lambda link: link.run("SELECT count FROM conversation WHERE name = 'c'")) == [(1,)]
    own.release()


def test_a_disk_that_fails_while_a_new_store_is_made_is_told_in_our_own_words(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark of a new store cannot be removed. Whoever opens the store next removes it."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as failing:
        failing.setattr(Path, "unlink", fail)
        with pytest.raises(StoreError, match="Input/output error; check the disk"):
            with_store(path, lambda store: store.append(HERE, [b"x"]))
    with_store(path, lambda store: store.append(HERE, [b"x"]))
    assert not path.with_name(f"{path.name}{writer.NEW_SUFFIX}").exists()
