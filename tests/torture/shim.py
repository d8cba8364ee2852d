"""Stands between a store and the disk, inside a child: it can record every change, or let one fail.

    Shim(folder, before).place()        before(call) is asked ahead of each change; its OSError is the call's

It takes the place of functions of `os`, through which Python code opens, writes, syncs, renames and removes
files; `sqlite_shim` does it for connections of apsw. What it cannot see: Python's own sqlite3, and files that
were opened with `open`. strace sees those.

It cannot be taken away again, and belongs in a process that is to end.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.torture.children import Say, Work, forked
from tests.torture.medium import Call, Create, Remove, Rename, Said, Sync, Truncate, Write
from tests.torture.sqlite_shim import place_in_sqlite

Before = Callable[[Call], None]
Recorder = Callable[[Work, str], tuple[Sequence[Call], Sequence[str]]]
"""Runs work in a child; what it did below a folder, and what it said."""


class Torn(OSError):
    """A write that fails after its first `size` bytes."""

    def __init__(self, number: int, size: int) -> None:
        super().__init__(number, os.strerror(number))
        self.size = size


def recorded(work: Work, folder: str) -> tuple[Sequence[Call], Sequence[str]]:
    """What the work did below a folder, and what it said: as `strace.recorded`, where that cannot be had."""
    with tempfile.NamedTemporaryFile(prefix="calls-") as beside:

        def watched(say: Say) -> None:
            calls: list[Call] = []

            def heard(line: str) -> None:
                calls.append(Said(int(line)))
                say(line)

            Shim(folder, calls.append).place()
            work(heard)
            Path(beside.name).write_bytes(pickle.dumps(calls))

        said = forked(watched).said()
        kept = beside.read()
        return (pickle.loads(kept) if kept else ()), said  # noqa: S301 - of our own child


class Shim:
    """Changes below `folder`. Each is announced before it is made."""

    def __init__(self, folder: str, before: Before) -> None:
        self._folder, self._before = folder, before
        self._real: dict[str, Any] = {name: getattr(os, name) for name in _WRAPPED}
        self._paths: dict[int, str] = {}
        self._at: dict[int, int] = {}

    def place(self) -> None:
        place_in_sqlite(self.announce)
        for name in _WRAPPED:
            setattr(os, name, getattr(self, name))
        for twin, name in (("remove", "unlink"), ("rename", "replace"), ("fdatasync", "fsync")):
            setattr(os, twin, getattr(self, name))

    def announce(self, call: Call) -> None:
        if isinstance(call, Said) or call.path == self._folder or call.path.startswith(f"{self._folder}/"):
            self._before(call)

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        full = self._full(path, dir_fd)
        if flags & os.O_CREAT and not os.path.lexists(full):
            self.announce(Create(full))
        elif flags & os.O_TRUNC:
            self.announce(Truncate(full, 0))
        number: int = self._real["open"](path, flags, mode, dir_fd=dir_fd)
        self._paths[number], self._at[number] = full, 0
        return number

    def close(self, number: int) -> None:
        self._paths.pop(number, None)
        self._real["close"](number)

    def write(self, number: int, data: Any) -> int:
        if number in self._paths:
            try:
                self.announce(Write(self._paths[number], self._at[number], bytes(data)))
            except Torn as torn:
                self._real["write"](number, bytes(data)[: torn.size])
                raise
        done: int = self._real["write"](number, data)
        self._at[number] = self._at.get(number, 0) + done
        return done

    def fsync(self, number: int) -> None:
        self.announce(Sync(self._paths.get(number, "")))
        self._real["fsync"](number)

    def ftruncate(self, number: int, size: int) -> None:
        self.announce(Truncate(self._paths.get(number, ""), size))
        self._real["ftruncate"](number, size)

    def replace(
        self, path: Any, to: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        self.announce(Rename(self._full(path, src_dir_fd), self._full(to, dst_dir_fd)))
        self._real["replace"](path, to, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        if os.path.lexists(full := self._full(path, dir_fd)):
            self.announce(Remove(full))
        self._real["unlink"](path, dir_fd=dir_fd)

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        self.announce(Remove(self._full(path, dir_fd)))
        self._real["rmdir"](path, dir_fd=dir_fd)

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        if not os.path.lexists(full := self._full(path, dir_fd)):
            self.announce(Create(full, folder=True))
        self._real["mkdir"](path, mode, dir_fd=dir_fd)

    def _full(self, path: Any, folder: int | None) -> str:
        above = Path.cwd() if folder is None else Path(self._paths.get(folder, "/"))
        return str(above / os.fsdecode(path))


_WRAPPED = ("open", "close", "write", "fsync", "ftruncate", "replace", "unlink", "rmdir", "mkdir")
