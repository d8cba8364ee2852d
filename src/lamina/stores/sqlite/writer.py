"""The one connection of this process that writes to a file, and alone copies its log into it.

Stores that open the same file share it; it is closed with the last of them. After a failed write it takes
nothing more: what the disk holds then is known only to who opens the file again. Every function here blocks,
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
from lamina.stores.sqlite.links import (
    BUSY,
    BUSY_MS,
    FULL,
    LOCKED,
    TOOBIG,
    Driver,
    Link,
    SqliteFailure,
    connect,
    usual_driver,
    warn_if_faulty,
)
from lamina.stores.sqlite.readers import sync
from lamina.stores.sqlite.schema import NEWEST, bring_up, version_of

T = TypeVar("T")

SCRUB_IN_MEMORY = 256_000_000
"""A file up to this size is written anew through memory, a larger one through a temporary file."""

NEW = "-new"
"""Ends the name of a file that stands beside a store while its tables are made for the first time."""

_File = tuple[int, int, int]
"""This process, the device and the number of the file: one file has one writer, whatever its names."""

_open: dict[_File, Writer] = {}
_opening = threading.Lock()


def writer_of(path: str, driver: Driver | None = None) -> Writer:
    """The writer of a file, made with the file where there is none yet. Give it back with `release`.

    Without a `driver` it is the one that has the file open already, else the usual one.
    """
    with _opening:
        file = _file(path)
        writer = _open.get(file)
        if writer is None or writer.broken:
            library = driver or usual_driver()
            warn_if_faulty(library)
            _open[file] = writer = Writer(path, library, file)
        elif driver is not None and writer.driver != driver:
            # Two SQLite libraries in one process do not see each other's locks.
            hint = f"open it with driver={writer.driver!r}, or close that first"
            raise BadInput(f"{path!r} is open with {writer.driver}", place="driver", hint=hint)
        writer.holders += 1
        return writer


def _file(path: str) -> _File:
    """Which file this is. A new one is for its owner only: it will hold conversations."""
    try:
        if not Path(path).exists():
            _make(path)
        check_not_empty(path)
    except OSError as error:
        problem = f"{path!r}: {error.strerror}"
        raise StoreError(problem, hint="check the folder and its permissions") from error
    found = os.stat(path)  # noqa: PTH116 - paths are text here, as SQLite takes them
    return os.getpid(), found.st_dev, found.st_ino


def _make(path: str) -> None:
    """An empty file, and beside it, from before until its tables are there, one that says that it is new."""
    os.close(os.open(f"{path}{NEW}", os.O_CREAT | os.O_RDWR, 0o600))
    if os.name != "nt":  # where a folder cannot be opened
        sync(Path(path).parent)
    with suppress(FileExistsError):
        # Only a file that nobody has: closing one that SQLite has open would give up its locks.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def check_not_empty(path: str) -> None:
    """Refuses a file that was cut off to nothing: to SQLite it would be a new one."""
    file = Path(path)
    if file.stat().st_size or Path(f"{path}{NEW}").exists():
        return
    if file.stat().st_size:  # somebody made its tables, and removed the sign, between the two looks
        return
    hint = "restore it from a backup; if it never held conversations, remove it, and a new one is made"
    raise Damaged(f"{path!r} is empty", hint=hint)


class _Job(Generic[T]):
    """A write of somebody who waits for it."""

    def __init__(self, work: Callable[[Link], T]) -> None:
        self.work = work
        self.done = False
        self._answer: T | None = None
        self._error: Exception | None = None

    def run(self, link: Link) -> None:
        """Does it, or leaves no trace of it."""
        link.run("SAVEPOINT job")
        try:
            self._answer = self.work(link)
        except SqliteFailure as error:
            if error.code != TOOBIG:
                raise
            self._error = BadInput(error.words, place="records", hint="SQLite takes about 1 GB in one record")
            link.run("ROLLBACK TO job")
        except Exception as error:  # noqa: BLE001 - it is raised where the job is waited for
            self._error = error
            link.run("ROLLBACK TO job")
        link.run("RELEASE job")

    def end(self, error: Exception | None = None, cause: Exception | None = None) -> None:
        if error is not None:
            error.__cause__ = cause
            self._error = error
        self.done = True

    def outcome(self) -> T:
        if self._error is not None:
            raise self._error
        if not self.done:
            raise StoreError("the write was interrupted", hint="the same idempotency key tells what was kept")
        return cast("T", self._answer)


def _each(jobs: Sequence[_Job[Any]], link: Link) -> None:
    for job in jobs:
        job.run(link)


class Writer:
    """Write transactions, one at a time."""

    def __init__(self, path: str, driver: Driver, file: _File) -> None:
        self.driver = driver
        self.holders = 0
        self.broken = ""
        self._path = path
        self._file = file
        self._turn = threading.Lock()
        self.waiting: deque[_Job[Any]] = deque()
        self._scrub_due = self._log_due = False
        self._link = connect(path, driver=driver, writes=True)
        try:
            self._older = self._begun()
        except BaseException as error:
            with suppress(SqliteFailure):
                self._link.close()
            if isinstance(error, SqliteFailure):
                raise StoreError(f"{path!r}: {error.words}", hint="is another process at it?") from error
            raise

    def _begun(self) -> bool:
        """Makes the tables of a new file. True if they are of an older release, and stay so until a write."""
        version = version_of(self._link)
        if not version:
            bring_up(self._link)
        Path(f"{self._path}{NEW}").unlink(missing_ok=True)
        return 0 < version < NEWEST

    def write(self, work: Callable[[Link], T]) -> T:
        """What `work` answers, once what it did is on the disk. If it raises, nothing of it is kept.

        Whoever comes to its turn takes along all who wait, so that they share one wait for the disk.
        """
        job = _Job(work)
        self.waiting.append(job)
        with self._turn:
            if not job.done:
                self._commit([self.waiting.popleft() for _ in range(len(self.waiting))])
        return job.outcome()

    def erase(self, work: Callable[[Link], bool]) -> bool:
        """As `write`; if it deleted something, no byte of it is left, in the file or in its log."""
        with self._turn:
            self._check()
            try:
                done = self._transaction(work)
            except SqliteFailure as error:
                raise self._told(error) from error
            if done or self._scrub_due:
                self._scrub()
            return done

    def scrub(self) -> None:
        """Leaves no byte of anything that was ever deleted or replaced."""
        with self._turn:
            self._check()
            self._scrub()

    def release(self) -> None:
        """Closes the connection when its last holder is gone."""
        with _opening, self._turn:
            self.holders -= 1
            if self.holders:
                return
            if _open.get(self._file) is self:
                del _open[self._file]
            if not self.broken:
                self._close()

    def _check(self) -> None:
        if self.broken:
            raise self._refusal()

    def _refusal(self) -> Broken:
        hint = "close the store and open it again; the same idempotency key tells what was kept"
        return Broken(f"an earlier write failed ({self.broken})", hint=hint)

    def _commit(self, jobs: Sequence[_Job[Any]]) -> None:
        """All in one transaction. What one asked wrongly is its own error, what the disk did all share."""
        try:
            self._check()
            self._transaction(partial(_each, jobs))
        except SqliteFailure as error:
            for job in jobs:
                job.end(self._told(error), error)
        except Broken:
            for job in jobs:
                job.end(self._refusal())
        except StoreError as error:  # a file of an older release that could not be brought up
            for job in jobs:
                job.end(error)
        for job in jobs:
            job.end()
        if self._log_due and not self.broken:
            with suppress(SqliteFailure):  # these writes are on the disk, whatever comes of the older one
                self._empty_log(patience=0)

    def _transaction(self, work: Callable[[Link], T]) -> T:
        if self._older:
            bring_up(self._link)
            self._older = False
        self._link.run("BEGIN IMMEDIATE")
        try:
            done = work(self._link)
            self._link.run("COMMIT")
        except BaseException:
            self._undo()
            raise
        return done

    def _undo(self) -> None:
        """SQLite may have undone it by itself. If it cannot be undone at all, nothing more is written."""
        try:
            if self._link.inside():
                self._link.run("ROLLBACK")
        except SqliteFailure as error:
            self._break(error)

    def _told(self, error: SqliteFailure) -> Exception:
        """The error a caller sees. Whatever is not about waiting is about the disk."""
        if error.code in (BUSY, LOCKED) and not self.broken:
            return StoreError("another process holds the file", hint="try again")
        self._break(error)
        hint = "open the store again; the same idempotency key tells whether this was kept"
        return Broken(f"the write failed: {error.words}", hint=hint)

    def _break(self, error: SqliteFailure) -> None:
        if not self.broken:
            self.broken = error.words
            self._close()

    def _close(self) -> None:
        with suppress(SqliteFailure):
            self._link.close()

    def _scrub(self) -> None:
        """Writes the file anew: SQLite overwrites what it deletes, but not copies left when rows moved."""
        self._scrub_due = True
        try:
            self._vacuum()
            self._scrub_due = False
            self._empty_log(patience=BUSY_MS)
        except SqliteFailure as error:
            self._undo()
            if error.code not in (BUSY, LOCKED, FULL):
                raise self._told(error) from error
            problem = f"it is deleted, but bytes of it may be left in the file: {error.words}"
            raise StoreError(problem, hint="make room, let other processes finish, and call scrub") from error

    def _vacuum(self) -> None:
        [(pages,)], [(size,)] = self._link.run("PRAGMA page_count"), self._link.run("PRAGMA page_size")
        if pages * size > SCRUB_IN_MEMORY:
            self._link.run("PRAGMA temp_store=1")
        try:
            self._link.run("VACUUM")
        finally:
            self._link.run("PRAGMA temp_store=2")

    def _empty_log(self, *, patience: int) -> None:
        """Cuts the log, where deleted bytes would stay. While a reader needs it: after a later write."""
        self._log_due = True
        self._link.run(f"PRAGMA busy_timeout={patience}")
        try:
            [(busy, *_)] = self._link.run("PRAGMA wal_checkpoint(TRUNCATE)")
        except SqliteFailure as error:
            if error.code not in (BUSY, LOCKED):
                raise
        else:
            self._log_due = bool(busy)
        finally:
            self._link.run(f"PRAGMA busy_timeout={BUSY_MS}")
