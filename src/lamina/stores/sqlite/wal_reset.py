"""The WAL-reset fault of SQLite, and the lock that keeps a file safe from it.

Releases 3.7.0 to 3.51.2 can damage a file that several connections write at once, and the Pythons that lamina
supports bring such releases along. The fault needs two connections that write or copy the log at the same
moment. In one process there is one such connection (see `writer`); between processes a lock keeps them apart.
It is a file of its own beside the store, because SQLite gives up its own locks when anybody closes a second
descriptor of its file.
"""

from __future__ import annotations

import os
import sqlite3
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from lamina.errors import StoreError

_FIRST_FAULTY = (3, 7, 0)
_LAST_FAULTY = (3, 51, 2)
_warned: set[str] = set()

LOCK_SUFFIX = "-lock"
"""Ends the name of the file that is locked. It stays, and tells every process to take the lock."""

_PAUSE = 0.002
"""Seconds between two attempts. A group of writes takes about as long."""


class WalResetRisk(UserWarning):
    """SQLite has a version that can damage a file which several connections write and checkpoint."""


def is_faulty() -> bool:
    """Whether Python's SQLite has the WAL-reset fault."""
    version = tuple(map(int, sqlite3.sqlite_version.split(".")[:3]))
    return _FIRST_FAULTY <= version <= _LAST_FAULTY


def describe_fault() -> str:
    """What is wrong with this SQLite and what lamina does about it, in a sentence; empty if nothing is."""
    if not is_faulty():
        return ""
    first = ".".join(map(str, _FIRST_FAULTY))
    last = ".".join(map(str, _LAST_FAULTY))
    fault = (
        f"SQLite {sqlite3.sqlite_version} has the WAL-reset fault ({first} to {last}): it can damage a file "
        "that several connections write at once"
    )
    if can_lock():
        return f"{fault}. lamina lets one process write at a time, so its files are safe"
    return f"{fault}. This system has no locks that lamina could use: let one process at a time use a file"


def risk() -> str:
    """What this SQLite could do to a file, with what to do; empty if it can do nothing."""
    if can_lock():
        return ""
    return describe_fault()


def warn_if_unsafe() -> None:
    """Warn, once in a process, if SQLite has the fault and nothing keeps two processes apart."""
    version = sqlite3.sqlite_version
    if version in _warned or not risk():
        return
    _warned.add(version)
    warnings.warn(risk(), WalResetRisk, stacklevel=2)


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
