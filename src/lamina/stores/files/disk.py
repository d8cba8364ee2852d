"""Writes of single files, wholly or not at all, and the lock between processes.

    write_file(...); write_file(...); sync_folder(folder)

`write_file` makes a file appear with all its bytes on the disk. Only after `sync_folder` (`stores.syncing`)
it is certain that the file is still there after a power cut. This module knows no records.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lamina.errors import StoreError
from lamina.stores.syncing import sync_folder

READ_ONLY = frozenset((errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT))
"""The errors of a system where nothing can be written, or where there is no folder for locks."""

TEMPORARY_SUFFIX = ".tmp"
"""Ends the name of a file that is being written."""


def write_file(folder: Path, name: str, data: bytes) -> None:
    """Write a file, or replace it. Only its owner can read it."""
    temporary = folder / f"{name}{TEMPORARY_SUFFIX}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        rest = memoryview(data)
        while rest:  # the system may write less than it was given
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(folder / name)


def move_file(folder: Path, name: str, to: str) -> None:
    """Give a file another name, if it exists."""
    with suppress(FileNotFoundError):
        (folder / name).replace(folder / to)


def remove_file(folder: Path, name: str) -> None:
    """Remove a file, and what an interrupted write has left of it."""
    (folder / name).unlink(missing_ok=True)
    (folder / f"{name}{TEMPORARY_SUFFIX}").unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Make a folder if it does not exist, for its owner alone.

    The folder above is synced in any case: another process may have made this one a moment ago.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_folder(folder.parent)


def check_locks() -> None:
    """Raise StoreError on a system that has no locks between processes."""
    try:
        import fcntl  # noqa: F401, PLC0415 - not on every system
    except ImportError:
        hint = "use the SQLite store"
        raise StoreError(
            "files need locks between processes (fcntl), which this system does not have", hint=hint
        ) from None


@contextmanager
def hold_lock(path: Path, *, alone: bool) -> Iterator[None]:
    """Hold a lock, `alone` or with others who read. The system frees it when the process dies."""
    import fcntl  # noqa: PLC0415 - not on every system

    descriptor = _open_lock_file(path, needed=alone)
    if descriptor is None:
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _open_lock_file(path: Path, *, needed: bool) -> int | None:
    """Open the file of a lock, made if it does not exist.

    None on a medium that cannot be written to, if the lock is not `needed`: nobody else writes there either.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if needed or error.errno not in READ_ONLY:
            raise
    with suppress(FileNotFoundError, PermissionError):  # a store that was copied without its locks
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return None
