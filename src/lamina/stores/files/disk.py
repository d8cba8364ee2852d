"""Writes that are there wholly or not at all, and the lock between processes.

    put(...); put(...); settle(folder)

`put` makes one file appear with all its bytes on the disk; only after `settle` it is certain to be found
there after a power cut, too. This file knows no records.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lamina.errors import StoreError

READ_ONLY = frozenset((errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT))
"""What a system says where nothing can be written, or where there is no folder for locks."""

NEW = ".tmp"
"""Ends the name of a file that is being written."""


def put(folder: Path, name: str, data: bytes) -> None:
    """Writes a file, or puts another in its place, readable for its owner alone."""
    new = folder / f"{name}{NEW}"
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(file, left) :]
        os.fsync(file)
    finally:
        os.close(file)
    new.replace(folder / name)


def settle(folder: Path) -> None:
    """Makes the names in a folder last: what was put, moved and dropped there."""
    file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def move(folder: Path, name: str, to: str) -> None:
    """Gives a file another name, if it is there."""
    with suppress(FileNotFoundError):
        (folder / name).replace(folder / to)


def drop(folder: Path, name: str) -> None:
    """Removes a file and what was begun of it."""
    for each in (name, f"{name}{NEW}"):
        (folder / each).unlink(missing_ok=True)


def make(folder: Path) -> None:
    """Makes a folder, for its owner alone, if it is not there; it lasts, whoever has made it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    settle(folder.parent)


def check_locks() -> None:
    """Refuses a system on which two processes could not keep out of each other's way."""
    try:
        import fcntl  # noqa: F401, PLC0415 - not on every system
    except ImportError:
        hint = "use the SQLite store"
        raise StoreError("files need locks between processes (fcntl), not here", hint=hint) from None


@contextmanager
def locked(path: Path, *, alone: bool) -> Iterator[None]:
    """Waits until nobody else holds this lock, or nobody who wants to be alone. Dies with the process."""
    import fcntl  # noqa: PLC0415 - not on every system

    file = _lock_file(path, needed=alone)
    if file is None:
        yield
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
    finally:
        os.close(file)


def _lock_file(path: Path, *, needed: bool) -> int | None:
    """The file of a lock, made if it is not there; None on a medium on which nobody could make one."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if needed or error.errno not in READ_ONLY:
            raise
    with suppress(FileNotFoundError, PermissionError):  # of a medium that was copied without its locks
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return None
