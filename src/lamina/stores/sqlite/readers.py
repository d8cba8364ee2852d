"""Connections that only read: each read has one to itself, and sees one moment of the file.

They never copy the log into the file, and are closed before the writer is. Every function here blocks, and
belongs in a worker thread.

On a medium that cannot be written to, SQLite can make neither locks nor the index of its log. A file without
a log is then opened as one that nobody changes, anew for each read. A file with a log, as after a crash, is
first copied with its log to a private folder, and read there.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from lamina.errors import BadInput, Damaged, StoreError
from lamina.stores.sqlite.connections import (
    BUSY,
    CORRUPT,
    LOCKED,
    NOTADB,
    SqliteConnection,
    SqliteFailure,
    close_quietly,
    connect,
)
from lamina.stores.sqlite.drivers import Driver
from lamina.stores.syncing import sync_file, sync_folder

T = TypeVar("T")


def can_write(path: str) -> bool:
    """Whether this process may change the file, and make a log next to it."""
    return os.access(path, os.W_OK) and os.access(Path(path).parent, os.W_OK)


class Readers:
    """Connections to one file, opened when needed and reused for the next read.

    `frozen`: the file is on a medium that cannot be written to.
    """

    def __init__(self, path: str, driver: Driver, *, frozen: bool = False) -> None:
        self._path = path
        self.driver = driver
        self._frozen = frozen
        self._private_copy: TemporaryDirectory[str] | None = None
        self._idle: list[SqliteConnection] = []
        self._busy_count = 0
        self._closed = False
        self._change = threading.Condition()

    def read(self, query: Callable[[SqliteConnection], T]) -> T:
        """The result of a query, all of it from one snapshot."""
        with self._borrow() as connection:
            connection.run("BEGIN")
            result = query(connection)
            connection.run("COMMIT")
            return result

    def copy(self, path: str) -> None:
        """Copy the file to `path`, all of it or nothing."""
        if Path(path).exists():
            raise BadInput(f"{path!r} exists", place="path", hint="a backup never overwrites anything")
        part = f"{path}.part"
        try:
            with suppress(FileNotFoundError):
                Path(part).unlink()
            os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            with self._borrow() as connection:
                connection.copy(part)
            _move_into_place(part, path)
        except OSError as error:
            problem = f"{path!r}: {error.strerror or error}"
            raise StoreError(problem, hint="check the folder and its permissions") from error
        finally:
            with suppress(OSError):
                Path(part).unlink()

    def close(self) -> None:
        """Wait until no read is under way, and close all connections."""
        with self._change:
            self._closed = True
            self._change.wait_for(lambda: not self._busy_count)
            while self._idle:
                close_quietly(self._idle.pop())
            if self._private_copy is not None:
                self._private_copy.cleanup()
                self._private_copy = None

    @contextmanager
    def _borrow(self) -> Iterator[SqliteConnection]:
        """A connection for one read. After any error it is closed and not used again."""
        connection = self._take()
        try:
            yield connection
        except SqliteFailure as error:
            self._discard(connection)
            raise _read_error(error) from error
        except BaseException:
            self._discard(connection)
            raise
        self._give_back(connection)

    def _take(self) -> SqliteConnection:
        with self._change:
            if self._closed:
                raise StoreError("the store is closed", hint="open it again")
            self._busy_count += 1
            if self._idle:
                return self._idle.pop()
        try:
            return self._connect()
        except BaseException:
            self._end_read()
            raise

    def _connect(self) -> SqliteConnection:
        if not self._frozen:
            return connect(self._path, driver=self.driver, writes=False)
        if _has_log(self._path):
            return connect(self._copy_with_log(), driver=self.driver, writes=False)
        return connect(self._path, driver=self.driver, writes=False, frozen=True)

    def _copy_with_log(self) -> str:
        """Copy the file and its log to a private folder, once, and return the path of the copy."""
        with self._change:
            if self._private_copy is None:
                self._private_copy = TemporaryDirectory(prefix="lamina-", ignore_cleanup_errors=True)
                folder = Path(self._private_copy.name)
                shutil.copyfile(self._path, folder / "chats.db")
                shutil.copyfile(f"{self._path}-wal", folder / "chats.db-wal")
            return str(Path(self._private_copy.name) / "chats.db")

    def _give_back(self, connection: SqliteConnection) -> None:
        """End a read. Its connection is reused, unless the file is frozen: then each read opens it anew."""
        if self._frozen:
            self._discard(connection)
            return
        with self._change:
            self._idle.append(connection)
            self._end_read()

    def _discard(self, connection: SqliteConnection) -> None:
        """End a read whose connection is not used again."""
        close_quietly(connection)
        self._end_read()

    def _end_read(self) -> None:
        with self._change:
            self._busy_count -= 1
            self._change.notify_all()


def _has_log(path: str) -> bool:
    """Whether there is a log that is not empty; without one the file has everything."""
    log = Path(f"{path}-wal")
    return log.exists() and log.stat().st_size > 0


def _read_error(error: SqliteFailure) -> StoreError:
    if error.code in (BUSY, LOCKED):
        return StoreError("another process holds the file", hint="try again")
    if error.code in (CORRUPT, NOTADB):
        return Damaged(f"the file is damaged: {error.words}")
    return StoreError(f"reading failed: {error.words}", hint="check the disk, then try again")


def _move_into_place(part: str, path: str) -> None:
    """Give the copy its name once all of it is on the disk."""
    sync_file(part)
    Path(part).rename(path)
    sync_folder(Path(path).parent)
