from __future__ import annotations

import sqlite3
import stat
import threading
import warnings
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from lamina.errors import BadInput, StoreError
from lamina.stores import SqliteStore, WalResetRisk, Where, open_sqlite
from lamina.stores.sqlite import connections, schema, tables, wal_reset, writer
from lamina.stores.sqlite.connections import SqliteConnection, SqliteFailure, connect
from lamina.stores.sqlite.schema import APPLICATION, VERSION, make_tables
from lamina.stores.sqlite.wal_reset import LOCK_SUFFIX, ProcessLock, warn_if_unsafe
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


@pytest.mark.parametrize("writes", [True, False])
def test_every_connection_waits_for_the_disk(path: Path, *, writes: bool) -> None:
    with_store(path, lambda store: store.append(HERE, [b"a"]))
    link = connect(str(path), writes=writes)
    settings = "journal_mode synchronous mmap_size secure_delete wal_autocheckpoint query_only".split()
    values = [link.run(f"PRAGMA {name}") for name in settings]
    link.close()
    checkpoints = 1000 if writes else 0
    assert values == [[("wal",)], [(2,)], [(0,)], [(1,)], [(checkpoints,)], [(int(not writes),)]]


def test_a_setting_that_does_not_hold_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.SETTINGS, "synchronous", 7)
    with pytest.raises(StoreError, match="synchronous"):
        connect(str(path), writes=True)


@pytest.mark.parametrize("has_locks", [True, False])
def test_only_an_sqlite_that_nothing_makes_safe_is_warned_of_and_once(
    monkeypatch: pytest.MonkeyPatch, *, has_locks: bool
) -> None:
    monkeypatch.setattr(wal_reset, "_warned", set())
    monkeypatch.setattr(wal_reset, "can_lock", lambda: has_locks)
    faulty = {"3.7.0": 1, "3.40.1": 1, "3.51.2": 1, "3.51.3": 0, "3.6.23": 0, "3.54.1": 0, "4.0.0": 0}
    for version, warned in faulty.items():
        monkeypatch.setattr(sqlite3, "sqlite_version", version)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            warn_if_unsafe()
            warn_if_unsafe()
        expected = [] if has_locks else [WalResetRisk] * warned
        assert [each.category for each in seen] == expected, version
        assert bool(wal_reset.describe_fault()) == bool(warned)


def test_with_the_wal_reset_fault_one_process_writes_at_a_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "BUSY_MS", 50)
    monkeypatch.setattr(writer, "is_faulty", lambda: False)
    with_store(path, lambda store: store.append(HERE, [b"a"]))
    assert not Path(f"{path}{LOCK_SUFFIX}").exists(), "a SQLite without the fault needs no lock"
    monkeypatch.setattr(writer, "is_faulty", lambda: True)
    with_store(path, lambda store: store.append(HERE, [b"b"]))
    other = ProcessLock(str(path), needed=False, patience=0)  # the file of the lock tells others to take it
    monkeypatch.setattr(writer, "is_faulty", lambda: False)

    async def trial(store: SqliteStore) -> None:
        with other.hold():
            for attempt in (store.append(HERE, [b"c"]), store.delete(HERE)):
                with pytest.raises(StoreError, match="another process holds the file"):
                    await attempt
            assert (await store.read(HERE)).head.count == 2, "nobody waits to read"
        await store.append(HERE, [b"c"], expect=2)
        assert await store.delete(HERE)

    with_store(path, trial)
    with other.hold(), pytest.raises(StoreError, match="another process holds the file"):
        with_store(path, lambda store: store.read(HERE))


def test_a_new_file_is_for_its_owner(path: Path) -> None:
    with_store(path, lambda store: store.append(HERE, [b"a"]))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(("version", "advice"), [(VERSION + 1, "update lamina"), (VERSION - 1, "export it")])
def test_a_file_of_another_version_is_refused(path: Path, version: int, advice: str) -> None:
    with_store(path, lambda store: store.append(HERE, [b"a"]))
    with closing(sqlite3.connect(path)) as raw:
        raw.execute(f"PRAGMA user_version={version}")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=f"the file has version {version}; .*{advice}"):
        with_store(path, lambda store: store.read(HERE))
    assert path.read_bytes() == before


def test_a_file_of_somebody_else_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("CREATE TABLE record (theirs)")
    with pytest.raises(StoreError, match="not lamina's"):
        with_store(path, lambda store: store.read(HERE))


@pytest.mark.parametrize("content", [b"{}" * 3000, b"SQLite format 3\0" + b"\1" * 5000])
def test_what_is_no_database_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreError):
        with_store(path, lambda store: store.read(HERE))
    assert path.read_bytes() == content


@pytest.mark.parametrize("name", ["", ":memory:", "a\0b"])
def test_what_is_no_path_is_refused(name: str) -> None:
    with pytest.raises(BadInput):
        anyio.run(SqliteStore.open, name)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        anyio.run(SqliteStore.open, tmp_path / "nowhere" / "chats.db")


def test_tables_whose_making_fails_are_not_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = connect(str(path), writes=True)
    with closing(link):
        with monkeypatch.context() as patch:
            patch.setattr(schema, "TABLES", (*schema.TABLES, "nonsense"))
            with pytest.raises(SqliteFailure):
                make_tables(link)
        assert link.run("SELECT 1 FROM sqlite_master") == []
        assert link.run("PRAGMA application_id") == [(0,)]
        make_tables(link)
        assert link.run("PRAGMA user_version") == [(VERSION,)]
        assert link.run("PRAGMA application_id") == [(APPLICATION,)]


def test_stores_of_one_process_share_the_writer(path: Path) -> None:
    alias = path.with_name("other.db")
    one = writer.writer_of(str(path))
    alias.symlink_to(path)
    two = writer.writer_of(str(alias))
    assert one is two
    one.release()
    assert two.write(lambda link: link.run("SELECT 1")) == [(1,)]
    two.release()
    three = writer.writer_of(str(path))
    three.release()
    assert three is not one


def test_a_closed_store_says_so(path: Path) -> None:
    async def work() -> None:
        store = await SqliteStore.open(path)
        await store.close()
        await expect_error(store.read(HERE), StoreError)
        await expect_error(store.append(HERE, [b"a"]), StoreError)

    anyio.run(work)
    assert not path.with_name("chats.db-wal").exists()


@awaited
async def test_a_store_is_not_carried_into_another_process(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_sqlite(path) as store:
        monkeypatch.setattr(store, "_process", 1)
        await expect_error(store.read(HERE), StoreError)


def test_nothing_blocks_the_event_loop(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, threads = threading.get_ident(), set[int]()

    def spied(original: Callable[..., Any], link: SqliteConnection, **arguments: Any) -> Any:
        threads.add(threading.get_ident())
        return original(link, **arguments)

    for name in (
        "append_group",
        "read_page",
        "delete_conversation",
        "list_conversations",
        "replace_records",
    ):
        monkeypatch.setattr(tables, name, partial(spied, getattr(tables, name)))

    async def work(store: SqliteStore) -> None:
        await store.append(HERE, [b"a"])
        await store.replace(HERE, {0: b"b"}, expect=1)
        await store.read(HERE)
        await store.list("w")
        await store.delete(HERE)

    with_store(path, work)
    assert threads
    assert here not in threads


class _Interrupted:
    """A connection. After each word that it reads of the file, another process has made the tables."""

    def __init__(self, connection: SqliteConnection, other: SqliteConnection) -> None:
        self.connection = connection
        self.other = other

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    def run(self, sql: str) -> list[Any]:
        rows = self.connection.run(sql)
        if sql.startswith("PRAGMA"):
            make_tables(self.other)
        return rows


def test_the_version_is_that_of_one_moment_while_another_process_makes_the_tables(path: Path) -> None:
    connection = connect(str(path), writes=True)
    other = connect(str(path), writes=True)
    with closing(connection), closing(other):
        interrupted: Any = _Interrupted(connection, other)
        assert not schema.has_tables(interrupted)
        assert schema.has_tables(interrupted)
        assert not connection.inside()
