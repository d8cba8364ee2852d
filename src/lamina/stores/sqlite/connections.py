"""A connection to an SQLite file, set up so that what is committed is on the disk.

It knows no tables and no conversations, and raises nothing but `SqliteFailure`.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lamina.errors import Damaged, StoreError

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


def connect(path: str, *, writes: bool, frozen: bool = False) -> SqliteConnection:
    """Open a connection. Every setting is made and read back; StoreError if SQLite does not accept one.

    `frozen`: the file is on a medium that cannot be written to, and has no log. SQLite is then told that
    nobody changes the file, since it can make neither a lock nor a log there.
    """
    connection = _open_connection(path, frozen=frozen)
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


def _open_connection(path: str, *, frozen: bool) -> SqliteConnection:
    try:
        return SqliteConnection(path, frozen=frozen)
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


class SqliteConnection:
    """One connection, for one thread at a time. Whatever error sqlite3 raises becomes a SqliteFailure."""

    # Numbers that are too large, and names in a damaged file, raise errors of Python itself.
    _errors: tuple[type[Exception], ...] = (sqlite3.Error, OverflowError, UnicodeDecodeError)

    def __init__(self, path: str, *, frozen: bool = False) -> None:
        try:
            self._inner = self._open(path, frozen=frozen)
        except self._errors as error:
            raise _failure_of(error) from error

    def _open(self, path: str, *, frozen: bool) -> Any:
        """Open the file. A frozen one cannot change, and SQLite is told so in the address."""
        address = f"{Path(path).as_uri()}?mode=ro&immutable=1" if frozen else path
        return sqlite3.connect(address, timeout=0, isolation_level=None, check_same_thread=False, uri=frozen)

    def run(self, sql: str, values: Values = ()) -> list[Any]:
        """Run one statement and return its rows."""
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

    def close(self) -> None:
        """Close the connection. A transaction that is still open is undone."""
        try:
            self._inner.close()
        except self._errors as error:
            raise _failure_of(error) from error


def _failure_of(error: Exception) -> SqliteFailure:
    """The result code of an error."""
    if isinstance(error, UnicodeDecodeError):  # names in a damaged file, even inside SQLite's own messages
        return SqliteFailure(CORRUPT, "the file is damaged")
    if isinstance(error, OverflowError):
        return SqliteFailure(TOOBIG, str(error))
    code: int = getattr(error, "sqlite_errorcode", 1)
    return SqliteFailure(code & 0xFF, str(error))
