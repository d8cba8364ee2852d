"""A disk that dies or fails at the k-th call, for the tests of the store in files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CALLS = ("open", "write", "fsync", "replace", "unlink", "mkdir", "rmdir", "rename")


def in_memory() -> str | None:
    """A folder on a disk in memory, if there is a large one.

    These tests write thousands of files, each synced; what a sync is for is tested with `tests.torture`.
    """
    shared = Path("/dev/shm")  # noqa: S108
    roomy = shared.is_dir() and os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > 1 << 29
    return str(shared) if roomy else None


class Died(BaseException):
    """The process is gone: nothing catches it, and nothing works after it."""


@contextmanager
def at_call(number: int, error: Callable[[], BaseException], *, once: bool = False) -> Iterator[list[str]]:
    """Raise at the call with this number and at all later ones, or only there. Gives the calls made."""
    calls: list[str] = []
    real = {name: getattr(os, name) for name in CALLS}

    def counted(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            if len(calls) == number or (len(calls) > number and not once):
                raise error()
            return real[name](*args, **kwargs)

        return call

    try:
        for name in CALLS:
            setattr(os, name, counted(name))
        yield calls
    finally:
        for name, function in real.items():
            setattr(os, name, function)
