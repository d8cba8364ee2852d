"""The one connection of this process that writes to a file. No other one copies the log into the file.

Stores that open the same file share it; it is closed with the last of them. After a failed write it refuses
every further write: only opening the file again can find out what is on the disk. Every function here blocks,
and belongs in a worker thread.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from lamina.errors import BadInput, Broken, Damaged, StoreError
from lamina.stores.sqlite.connections import (
    BUSY,
    BUSY_MS,
    FULL,
    LOCKED,
    TOOBIG,
    SqliteConnection,
    SqliteFailure,
    close_quietly,
    connect,
)
from lamina.stores.sqlite.schema import has_tables, make_tables
from lamina.stores.sqlite.wal_reset import ProcessLock, is_faulty, warn_if_unsafe
from lamina.stores.syncing import sync_folder

T = TypeVar("T")

SCRUB_IN_MEMORY = 256_000_000
"""A file up to this size is rewritten through memory, a larger one through a temporary file."""

NEW_SUFFIX = "-new"
"""Ends the name of a file that exists next to a store while its tables are made for the first time."""

_APPEND_AGAIN = "append again with the same idempotency key: a group is stored only once"

_FileId = tuple[int, int, int]
"""This process, the device and the number of the file: one file has one writer, whatever its names."""

_writers: dict[_FileId, Writer] = {}
_writers_lock = threading.Lock()


def writer_of(path: str) -> Writer:
    """The writer of a file; a new file is made. Give the writer back with `release`."""
    with _writers_lock:
        file_id = _file_id(path)
        writer = _writers.get(file_id)
        if writer is None or writer.broken:
            warn_if_unsafe()
            writer = Writer(path, file_id)
            _writers[file_id] = writer
        writer.holders += 1
        return writer


def _file_id(path: str) -> _FileId:
    """Which file this is. A file that does not exist is made."""
    try:
        if not Path(path).exists():
            _make_file(path)
        check_not_empty(path)
    except OSError as error:
        problem = f"{path!r}: {error.strerror}"
        raise StoreError(problem, hint="check the folder and its permissions") from error
    status = os.stat(path)  # noqa: PTH116 - paths are text here, as SQLite takes them
    return os.getpid(), status.st_dev, status.st_ino


def _make_file(path: str) -> None:
    """Make an empty file that only its owner can read.

    A second file says that this one is new. It exists before, and until the tables are made.
    """
    os.close(os.open(f"{path}{NEW_SUFFIX}", os.O_CREAT | os.O_RDWR, 0o600))
    sync_folder(Path(path).parent)
    with suppress(FileExistsError):
        # Only if nobody else made it: closing a file that SQLite has open would give up its locks.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def check_not_empty(path: str) -> None:
    """Raise Damaged for a file that was truncated to nothing: to SQLite it would be a new one."""
    file = Path(path)
    if file.stat().st_size or Path(f"{path}{NEW_SUFFIX}").exists():
        return
    if file.stat().st_size:  # between the two looks somebody made its tables, and removed the other file
        return
    hint = "restore it from a backup; if it never held conversations, remove it, and a new one is made"
    raise Damaged(f"{path!r} is empty", hint=hint)


class _Job(Generic[T]):
    """A write, and what became of it."""

    def __init__(self, write: Callable[[SqliteConnection], T]) -> None:
        self.write = write
        self.done = False
        self._result: T | None = None
        self._error: Exception | None = None

    def run(self, connection: SqliteConnection) -> None:
        """Do it, or leave no trace of it."""
        connection.run("SAVEPOINT job")
        try:
            self._result = self.write(connection)
        except SqliteFailure as error:
            if error.code != TOOBIG:
                raise
            self._error = BadInput(
                error.words, place="records", hint="SQLite stores at most about 1 GB in one record"
            )
            connection.run("ROLLBACK TO job")
        except Exception as error:  # noqa: BLE001 - `outcome` raises it
            self._error = error
            connection.run("ROLLBACK TO job")
        connection.run("RELEASE job")

    def end(self, error: Exception | None = None, cause: Exception | None = None) -> None:
        if error is not None:
            error.__cause__ = cause
            self._error = error
        self.done = True

    def outcome(self) -> T:
        if self._error is not None:
            raise self._error
        if not self.done:
            raise StoreError("the write was interrupted", hint=_APPEND_AGAIN)
        return cast("T", self._result)


def _end_jobs(
    jobs: Sequence[_Job[Any]], error: Exception | None = None, cause: Exception | None = None
) -> None:
    for job in jobs:
        job.end(error, cause)


def _run_jobs(jobs: Sequence[_Job[Any]], connection: SqliteConnection) -> None:
    for job in jobs:
        job.run(connection)


class Writer:
    """Write transactions, one at a time."""

    def __init__(self, path: str, file_id: _FileId) -> None:
        self.holders = 0
        self.broken = ""
        self._path = path
        self._file_id = file_id
        self._turn = threading.Lock()
        self.waiting: deque[_Job[Any]] = deque()
        self._scrub_due = False
        self._log_due = False
        self._between_processes = ProcessLock(path, needed=is_faulty(), patience=BUSY_MS / 1000)
        with self._between_processes.hold():
            self._connection = connect(path, writes=True)
            try:
                self._prepare_tables()
            except SqliteFailure as error:
                close_quietly(self._connection)
                hint = "is another process using it?"
                raise StoreError(f"{path!r}: {error.words}", hint=hint) from error
            except OSError as error:
                close_quietly(self._connection)
                raise StoreError(f"{path!r}: {error.strerror}", hint="check the disk") from error
            except BaseException:
                close_quietly(self._connection)
                raise

    def _prepare_tables(self) -> None:
        """Make the tables of a new file."""
        if not has_tables(self._connection):
            make_tables(self._connection)
        Path(f"{self._path}{NEW_SUFFIX}").unlink(missing_ok=True)

    def write(self, write: Callable[[SqliteConnection], T]) -> T:
        """The result of a write, once it is on the disk. If it raises, nothing of it is stored.

        A thread does the writes of all that wait when its turn comes, so they share one wait for the disk.
        """
        job = _Job(write)
        self.waiting.append(job)
        with self._turn:
            if not job.done:  # else the thread that had the turn before has done this write, too
                self._commit([self.waiting.popleft() for _ in range(len(self.waiting))])
        return job.outcome()

    def erase(self, delete: Callable[[SqliteConnection], bool]) -> bool:
        """As `write`; if something was deleted, no byte of it is left, in the file or in its log."""
        # Alone, and not with the writes that wait: VACUUM runs in no transaction, and this caller is told
        # whether the bytes are gone.
        with self._turn, self._between_processes.hold():
            self._check_not_broken()
            try:
                deleted = self._run_transaction(delete)
            except SqliteFailure as error:
                raise self._write_error(error) from error
            if deleted or self._scrub_due:
                self._scrub()
            return deleted

    def scrub(self) -> None:
        """Leave no byte of anything that was ever deleted or replaced."""
        with self._turn, self._between_processes.hold():
            self._check_not_broken()
            self._scrub()

    def release(self) -> None:
        """Close the connection when its last holder is gone."""
        with _writers_lock, self._turn:
            self.holders -= 1
            if self.holders:
                return
            if _writers.get(self._file_id) is self:
                del _writers[self._file_id]
            if not self.broken:
                close_quietly(self._connection)

    def _check_not_broken(self) -> None:
        if not self.broken and not self._has_its_file():
            self.broken = "the file was removed or replaced"
            close_quietly(self._connection)
        if self.broken:
            hint = f"close the store and open it again, then {_APPEND_AGAIN}"
            raise Broken(f"an earlier write failed ({self.broken})", hint=hint)

    def _has_its_file(self) -> bool:
        """Whether the path still leads to the open file. SQLite would write to a deleted one for ever."""
        try:
            status = os.stat(self._path)  # noqa: PTH116 - paths are text here, as SQLite takes them
        except OSError:
            return False
        return self._file_id[1:] == (status.st_dev, status.st_ino)

    def _commit(self, jobs: Sequence[_Job[Any]]) -> None:
        """Do all in one transaction. A wrong call fails alone; if the disk fails, all of them fail."""
        try:
            with self._between_processes.hold():
                self._commit_alone(jobs)
        except StoreError as error:  # another process holds the file
            _end_jobs(jobs, error)

    def _commit_alone(self, jobs: Sequence[_Job[Any]]) -> None:
        try:
            self._check_not_broken()
            self._run_transaction(partial(_run_jobs, jobs))
        except SqliteFailure as error:
            _end_jobs(jobs, self._write_error(error), error)
        except StoreError as error:  # an earlier write failed
            _end_jobs(jobs, error)
        _end_jobs(jobs)
        if self._log_due and not self.broken:
            with suppress(SqliteFailure):  # these writes are on the disk, whatever becomes of the log
                self._empty_log(patience=0)

    def _run_transaction(self, write: Callable[[SqliteConnection], T]) -> T:
        self._connection.run("BEGIN IMMEDIATE")
        try:
            result = write(self._connection)
            self._connection.run("COMMIT")
        except BaseException:
            self._undo()
            raise
        return result

    def _undo(self) -> None:
        """Undo a transaction, unless SQLite has done that. If it cannot be undone, the writer is broken."""
        try:
            if self._connection.inside():
                self._connection.run("ROLLBACK")
        except SqliteFailure as error:
            self._break(error)

    def _write_error(self, error: SqliteFailure) -> Exception:
        """The error for the caller. Whatever is not about waiting is about the disk."""
        if error.code in (BUSY, LOCKED) and not self.broken:
            return StoreError("another process holds the file", hint="try again")
        self._break(error)
        hint = f"open the store again, then {_APPEND_AGAIN}"
        return Broken(f"the write failed: {error.words}", hint=hint)

    def _break(self, error: SqliteFailure) -> None:
        if not self.broken:
            self.broken = error.words
            close_quietly(self._connection)

    def _scrub(self) -> None:
        """Rewrite the file: SQLite overwrites rows that it deletes, but not copies left when rows moved."""
        self._scrub_due = True
        try:
            self._vacuum()
            self._scrub_due = False
            self._empty_log(patience=BUSY_MS)
        except SqliteFailure as error:
            self._undo()
            if error.code not in (BUSY, LOCKED, FULL):
                raise self._write_error(error) from error
            problem = f"it is deleted, but bytes of it may be left in the file: {error.words}"
            raise StoreError(problem, hint="make room, let other processes finish, and call scrub") from error

    def _vacuum(self) -> None:
        [(pages,)] = self._connection.run("PRAGMA page_count")
        [(size,)] = self._connection.run("PRAGMA page_size")
        if pages * size > SCRUB_IN_MEMORY:
            self._connection.run("PRAGMA temp_store=1")
        try:
            self._connection.run("VACUUM")
        finally:
            self._connection.run("PRAGMA temp_store=2")

    def _empty_log(self, *, patience: int) -> None:
        """Truncate the log, which has deleted bytes. If a reader needs it, a later write tries again.

        `patience` are the milliseconds to wait for readers.
        """
        self._log_due = True
        self._connection.run(f"PRAGMA busy_timeout={patience}")
        try:
            [(busy, *_)] = self._connection.run("PRAGMA wal_checkpoint(TRUNCATE)")
        except SqliteFailure as error:
            if error.code not in (BUSY, LOCKED):
                raise
        else:
            self._log_due = bool(busy)
        finally:
            self._connection.run(f"PRAGMA busy_timeout={BUSY_MS}")
