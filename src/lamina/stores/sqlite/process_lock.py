"""One process at a time writes to a file whose SQLite has the WAL-reset fault.

The fault needs two connections that write or copy the log at the same moment. In one process there is one
such connection (see `writer`); between processes this lock keeps them apart. It is a file of its own beside
the store, because SQLite gives up its own locks when anybody closes a second descriptor of its file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from lamina.errors import StoreError

LOCK_SUFFIX = "-lock"
"""Ends the name of the file that is locked. It stays, and tells every process to take the lock."""

_PAUSE = 0.002
"""Seconds between two attempts. A group of writes takes about as long."""


def can_lock() -> bool:
    """Whether this system has locks that end with the process that holds them."""
    return find_spec("fcntl") is not None


class ProcessLock:
    """The lock of one file. Without `needed` it is taken only if another process needs it."""

    def __init__(self, path: str, *, needed: bool, patience: float) -> None:
        self._path = Path(f"{path}{LOCK_SUFFIX}")
        self._patience = patience
        self._is_used = can_lock() and (needed or self._path.exists())

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock. Raises StoreError if another process does not give it up."""
        if not self._is_used:
            yield
            return
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            problem = f"{str(self._path)!r}: {error.strerror}"
            raise StoreError(problem, hint="check the folder and its permissions") from error
        try:
            self._wait(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _wait(self, descriptor: int) -> None:
        """Take the lock as soon as it is free."""
        fcntl = import_module("fcntl")  # not on every system
        until = time.monotonic() + self._patience
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise StoreError("another process holds the file", hint="try again") from None
                time.sleep(_PAUSE)
            else:
                return
