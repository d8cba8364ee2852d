"""A connection to an SQLite file, set up so that what is committed is on the disk.

Two libraries can be behind it: `sqlite3` of Python, or `apsw`, which brings a newer SQLite along. Both are
used through `SqliteConnection` and raise `SqliteFailure`. This module knows no tables and no conversations.
"""

from __future__ import annotations

import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Protocol

from lamina.errors import BadInput, Damaged, StoreError
from lamina.stores.sqlite.drivers import Driver, import_apsw

Values = Sequence[str | int | bytes | None]

BUSY_MS = 30_000
"""How long one connection waits for another's write before it gives up."""

CHECKPOINT_PAGES = 1000
"""SQLite's own default: the log is copied into the file each time it has grown by about 4 MB."""

# Result codes of SQLite, as its documentation names them.
BUSY = 5
LOCKED = 6
CORRUPT = 11
FULL = 13
TOOBIG = 18
CONSTRAINT = 19
NOTADB = 26


class SqliteFailure(Exception):
    """An error of SQLite: the primary result code, and its words."""

    def __init__(self, code: int, words: str) -> None:
        self.code = code
        self.words = words
        super().__init__(words)


class SqliteConnection(Protocol):
    """One connection, for one thread at a time."""

    def run(self, sql: str, values: Values = ()) -> list[Any]: ...

    def many(self, sql: str, rows: Iterable[Values]) -> None: ...

    def inside(self) -> bool: ...

    def copy(self, path: str) -> None: ...

    def close(self) -> None: ...


def connect(path: str, *, driver: Driver, writes: bool, frozen: bool = False) -> SqliteConnection:
    """Open a connection. Every setting is made and read back; StoreError if SQLite does not accept one.

    `frozen`: the file is on a medium that cannot be written to, and has no log. SQLite is then told that
    nobody changes the file, since it can make neither a lock nor a log there.
    """
    connection = _open_connection(path, driver, frozen=frozen)
    try:
        _set_up(connection, writes=writes, frozen=frozen)
    except SqliteFailure as error:
        close_quietly(connection)
        raise _connect_error(path, error) from error
    except BaseException:
        close_quietly(connection)
        raise
    return connection


def close_quietly(connection: SqliteConnection) -> None:
    """Close a connection that is not used any more, whatever is wrong with it."""
    with suppress(SqliteFailure):
        connection.close()


def _open_connection(path: str, driver: Driver, *, frozen: bool) -> SqliteConnection:
    if driver not in _CONNECTIONS:
        raise BadInput(f"{driver!r}", place="driver", hint=f"it is one of {', '.join(_CONNECTIONS)}")
    try:
        return _CONNECTIONS[driver](path, frozen=frozen)
    except SqliteFailure as error:
        raise StoreError(f"{path!r}: {error.words}", hint="check the folder and its permissions") from error


def _connect_error(path: str, error: SqliteFailure) -> StoreError:
    """What a failure to open means to a user: busy, damaged, or not a file of lamina's."""
    problem = f"{path!r}: {error.words}"
    if error.code in (BUSY, LOCKED):
        return StoreError(problem, hint="another process holds the file; try again")
    if error.code == CORRUPT:
        return Damaged(problem)
    return StoreError(problem, hint="give the path of a file that lamina wrote, or of a new one")


def _set_up(connection: SqliteConnection, *, writes: bool, frozen: bool) -> None:
    """Set a connection up so that a commit is on the disk when it returns, and prove that it is so.

    `frozen`: nobody writes to the file, so it has no write-ahead log.
    """
    _set(connection, "busy_timeout", BUSY_MS)
    if writes:
        _turn_on_wal(connection)
    if not frozen and connection.run("PRAGMA journal_mode") != [("wal",)]:
        raise StoreError("SQLite keeps no write-ahead log here", hint="use a file on a local disk")
    for name, value in SETTINGS.items():
        _set(connection, name, value)
    _set(connection, "wal_autocheckpoint", CHECKPOINT_PAGES if writes else 0)
    _set(connection, "query_only", int(not writes))


SETTINGS = {
    "synchronous": 2,  # FULL: a commit is on the disk before it is acknowledged
    "fullfsync": 1,  # the same on macOS, where a plain fsync may stay in the drive
    "checkpoint_fullfsync": 1,
    "mmap_size": 0,  # so that a failing disk is an error code, not a signal
    "cell_size_check": 1,  # so that a damaged page is noticed when it is read
    "secure_delete": 1,  # deleted rows are overwritten
    "foreign_keys": 1,
    "trusted_schema": 0,  # a file from somebody else cannot run anything
    "temp_store": 2,  # no temporary files
}


def _set(connection: SqliteConnection, name: str, value: int) -> None:
    """Make one setting, and read it back: a build of SQLite may ignore what it does not know."""
    connection.run(f"PRAGMA {name}={value}")
    rows = connection.run(f"PRAGMA {name}")
    if rows == [] and value == 0:  # this SQLite does not have the setting, so it is off
        return
    if rows != [(value,)]:
        problem = f"SQLite holds {name} at {rows!r}, not {value}"
        raise StoreError(problem, hint="this build of SQLite cannot keep what lamina promises")


def _turn_on_wal(connection: SqliteConnection) -> None:
    """Turn on the write-ahead log. Many processes may make one file at once; SQLite does not wait here."""
    until = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            connection.run("PRAGMA journal_mode=WAL")
        except SqliteFailure as error:
            if error.code not in (BUSY, LOCKED) or time.monotonic() > until:
                raise
            time.sleep(0.005)
        else:
            return


class _LibraryConnection(ABC):
    """A connection of either library. Whatever error the library raises becomes a SqliteFailure."""

    def __init__(self, path: str, library_error: type[Exception], *, frozen: bool) -> None:
        # Numbers that are too large, and names in a damaged file, raise errors of Python itself.
        self._errors = (library_error, OverflowError, UnicodeDecodeError)
        try:
            self._inner = self._open(path, frozen=frozen)
        except self._errors as error:
            raise _failure_of(error) from error

    @abstractmethod
    def _open(self, path: str, *, frozen: bool) -> Any:
        """Open the file. A frozen one cannot change, and SQLite is told so in the address."""

    @abstractmethod
    def _copy_into(self, target: Any) -> None:
        """Write all pages through another connection of the library."""

    def run(self, sql: str, values: Values = ()) -> list[Any]:
        """Run one statement and return its rows. Errors of either library become one type."""
        try:
            rows: list[Any] = self._inner.execute(sql, values).fetchall()
        except self._errors as error:
            raise _failure_of(error) from error
        return rows

    def many(self, sql: str, rows: Iterable[Values]) -> None:
        """Run one statement for each row of values."""
        try:
            self._inner.executemany(sql, rows)
        except self._errors as error:
            raise _failure_of(error) from error

    def inside(self) -> bool:
        return bool(self._inner.in_transaction)

    def copy(self, path: str) -> None:
        """Copy the whole file as it is at this moment, while others go on reading and writing."""
        try:
            with closing(self._open(path, frozen=False)) as target:
                self._copy_into(target)
        except self._errors as error:
            raise _failure_of(error) from error

    def close(self) -> None:
        """Close the connection. A transaction that is still open is undone."""
        try:
            self._inner.close()
        except self._errors as error:
            raise _failure_of(error) from error


class _Sqlite3(_LibraryConnection):
    """A connection of Python's own sqlite3."""

    def __init__(self, path: str, *, frozen: bool = False) -> None:
        super().__init__(path, sqlite3.Error, frozen=frozen)

    def _open(self, path: str, *, frozen: bool) -> Any:
        address = _frozen_address(path) if frozen else path
        return sqlite3.connect(address, timeout=0, isolation_level=None, check_same_thread=False, uri=frozen)

    def _copy_into(self, target: Any) -> None:
        self._inner.backup(target)


class _Apsw(_LibraryConnection):
    """A connection of apsw."""

    def __init__(self, path: str, *, frozen: bool = False) -> None:
        self._library = import_apsw()
        super().__init__(path, self._library.Error, frozen=frozen)

    def _open(self, path: str, *, frozen: bool) -> Any:
        if not frozen:
            return self._library.Connection(path)
        flags = self._library.SQLITE_OPEN_READONLY | self._library.SQLITE_OPEN_URI
        return self._library.Connection(_frozen_address(path), flags=flags)

    def _copy_into(self, target: Any) -> None:
        with target.backup("main", self._inner, "main") as backup:
            backup.step(-1)


def _frozen_address(path: str) -> str:
    """The address with which SQLite opens a file that nobody can change."""
    return f"{Path(path).as_uri()}?mode=ro&immutable=1"


def _failure_of(error: Exception) -> SqliteFailure:
    """The result code of an error, as sqlite3 (`sqlite_errorcode`) or apsw (`result`) names it."""
    if isinstance(error, UnicodeDecodeError):  # names in a damaged file, even inside SQLite's own messages
        return SqliteFailure(CORRUPT, "the file is damaged")
    if isinstance(error, OverflowError):
        return SqliteFailure(TOOBIG, str(error))
    code: int = getattr(error, "sqlite_errorcode", getattr(error, "result", 1))
    return SqliteFailure(code & 0xFF, str(error))


_CONNECTIONS: dict[str, type[_Sqlite3 | _Apsw]] = {"sqlite3": _Sqlite3, "apsw": _Apsw}
