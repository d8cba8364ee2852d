"""Connections that only read: each read has one to itself, and sees one moment of the file.

They never copy the log into the file, and are closed before the writer is. Every function here blocks, and
belongs in a worker thread.

On a medium that cannot be written SQLite can make neither locks nor the index of its log. A file without a
log is then opened as one that nobody changes, anew for each read; one that has a log, as after a crash, is
copied with it to a private folder first, and read there.
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
from lamina.stores.sqlite.links import BUSY, CORRUPT, LOCKED, NOTADB, Driver, Link, SqliteFailure, connect

T = TypeVar("T")


def can_write(path: str) -> bool:
    """Whether this process may change the file, and make a log beside it."""
    return os.access(path, os.W_OK) and os.access(Path(path).parent, os.W_OK)


class Readers:
    """Connections to one file, made when they are needed and kept for the next read.

    `frozen`: the file is on a medium that cannot be written.
    """

    def __init__(self, path: str, driver: Driver, *, frozen: bool = False) -> None:
        self._path = path
        self.driver = driver
        self._frozen = frozen
        self._copied: TemporaryDirectory[str] | None = None
        self._idle: list[Link] = []
        self._used = 0
        self._closed = False
        self._change = threading.Condition()

    def read(self, work: Callable[[Link], T]) -> T:
        """What `work` finds, all of it from one snapshot."""
        with self._lent() as link:
            link.run("BEGIN")
            found = work(link)
            link.run("COMMIT")
            return found

    def copy(self, path: str) -> None:
        """A copy of the file at `path`, complete or not there."""
        if Path(path).exists():
            raise BadInput(f"{path!r} exists", place="path", hint="a backup never overwrites anything")
        part = f"{path}.part"
        try:
            with suppress(FileNotFoundError):
                Path(part).unlink()
            os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            with self._lent() as link:
                link.copy(part)
            _into_place(part, path)
        except OSError as error:
            problem = f"{path!r}: {error.strerror or error}"
            raise StoreError(problem, hint="check the folder and its permissions") from error
        finally:
            with suppress(OSError):
                Path(part).unlink()

    def close(self) -> None:
        """Waits until no read is under way."""
        with self._change:
            self._closed = True
            self._change.wait_for(lambda: not self._used)
            while self._idle:
                with suppress(SqliteFailure):
                    self._idle.pop().close()
            if self._copied is not None:
                self._copied.cleanup()
                self._copied = None

    @contextmanager
    def _lent(self) -> Iterator[Link]:
        """A connection; one that failed in any way is closed, not used again."""
        link = self._taken()
        try:
            yield link
        except BaseException as error:
            with suppress(SqliteFailure):
                link.close()
            self._returned(None)
            if isinstance(error, SqliteFailure):
                raise _told(error) from error
            raise
        self._returned(link)

    def _taken(self) -> Link:
        with self._change:
            if self._closed:
                raise StoreError("the store is closed", hint="open it again")
            self._used += 1
            if self._idle:
                return self._idle.pop()
        try:
            return self._connected()
        except BaseException:
            self._returned(None)
            raise

    def _connected(self) -> Link:
        if not self._frozen:
            return connect(self._path, driver=self.driver, writes=False)
        if _has_log(self._path):
            return connect(self._copy_with_log(), driver=self.driver, writes=False)
        return connect(self._path, driver=self.driver, writes=False, frozen=True)

    def _copy_with_log(self) -> str:
        """The file and its log in a folder of this process, made once."""
        with self._change:
            if self._copied is None:
                self._copied = TemporaryDirectory(prefix="lamina-", ignore_cleanup_errors=True)
                for end in ("", "-wal"):
                    copy = Path(self._copied.name) / f"chats.db{end}"
                    shutil.copyfile(f"{self._path}{end}", copy)
            return str(Path(self._copied.name) / "chats.db")

    def _returned(self, link: Link | None) -> None:
        """Keeps a connection for the next read; not one to a file that SQLite was told nobody changes."""
        with self._change:
            self._used -= 1
            if link is not None and not self._frozen:
                self._idle.append(link)
            elif link is not None:
                with suppress(SqliteFailure):
                    link.close()
            self._change.notify_all()


def _has_log(path: str) -> bool:
    """Whether there is a log with something in it: without one the file is all there is."""
    log = Path(f"{path}-wal")
    return log.exists() and log.stat().st_size > 0


def _told(error: SqliteFailure) -> StoreError:
    if error.code in (BUSY, LOCKED):
        return StoreError("another process holds the file", hint="try again")
    if error.code in (CORRUPT, NOTADB):
        return Damaged(f"the file is damaged: {error.words}")
    return StoreError(f"reading failed: {error.words}", hint="check the disk, then try again")


def _into_place(part: str, path: str) -> None:
    """Gives the copy its name once all of it is on the disk."""
    sync(part)
    Path(part).rename(path)
    if os.name != "nt":  # where a folder cannot be opened
        sync(Path(path).parent)


def sync(path: str | Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
