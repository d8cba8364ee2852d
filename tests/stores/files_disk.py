"""A disk that dies, fails or loses power at the k-th call, for the tests of the store in files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

CALLS = ("open", "write", "fsync", "replace", "unlink", "mkdir", "rmdir", "rename")


def in_memory() -> str | None:
    """A folder on a disk in memory, if there is a large one.

    These tests write thousands of files, each synced; what a sync is for is tested with `Cache`.
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


class Cache:
    """What the system has been told, and what of it is certain to be on the disk: files by their number.

    After a power cut a name that was changed since the last fsync of its folder may be old or new, each for
    itself, and bytes since the last fsync of a file may be there, in part, or not.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: list[tuple[bytes, bytes | None]] = []  # now, and as synced
        self.names: dict[str, int | None] = {str(root): None}  # None: a folder
        self.changes: dict[str, list[tuple[str, str | None, int | None]]] = {}  # by folder, not yet synced
        self.lasting: dict[str, int | None] = {str(root): None}
        self.open: dict[int, str] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        real = {name: getattr(os, name) for name in CALLS}
        watched = {
            name: getattr(self, f"_{name}")
            for name in ("open", "write", "fsync", "replace", "unlink", "mkdir")
        }

        def wrapped(name: str) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                answer = real[name](*args, **kwargs)
                watched[name](answer, *args)
                return answer

            return call

        try:
            for name in watched:
                setattr(os, name, wrapped(name))
            yield
        finally:
            for name, function in real.items():
                setattr(os, name, function)

    def cut(self, into: Path, dice: Random) -> None:
        """What a disk may hold if the power fails now."""
        names = dict(self.lasting)
        for changes in self.changes.values():
            for name, old, file in changes:
                if dice.random() < 0.5:
                    names.pop(old, None) if old else None
                    if file == -1:
                        names.pop(name, None)
                    else:
                        names[name] = file
        for name in sorted(names):
            path, file = into / Path(name).relative_to(self.root), names[name]
            if not path.parent.is_dir() and path != into:
                continue
            if file is None:
                path.mkdir(exist_ok=True)
            else:
                path.write_bytes(self._survives(file, dice))

    def _survives(self, file: int, dice: Random) -> bytes:
        now, synced = self.files[file]
        return (
            synced
            if synced == now
            else dice.choice((synced or b"", now[: dice.randrange(len(now) + 1)], now))
        )

    def _open(self, fd: int, path: Any, flags: int, *_: Any) -> None:
        name = str(path)
        self.open[fd] = name
        if flags & os.O_TRUNC and self._ours(name):
            self.files.append((b"", None))
            self._change(name, None, len(self.files) - 1)

    def _write(self, count: int, fd: int, data: Any) -> None:
        file = self.names.get(self.open.get(fd, ""))
        if file is not None:
            now, synced = self.files[file]
            self.files[file] = (now + bytes(data[:count]), synced)

    def _fsync(self, _: None, fd: int) -> None:
        name = self.open.get(fd, "")
        file = self.names.get(name)
        if file is not None:
            self.files[file] = (self.files[file][0],) * 2
            return
        self.changes.pop(name, None)
        for each in [each for each in self.lasting if _above(each) == name]:
            if each not in self.names:
                del self.lasting[each]
        self.lasting |= {each: file for each, file in self.names.items() if _above(each) == name}

    def _replace(self, _: None, old: Any, new: Any) -> None:
        if self._ours(str(new)):
            self._change(str(new), str(old), self.names.pop(str(old)))

    def _unlink(self, _: None, path: Any) -> None:
        if self._ours(str(path)):
            self.names.pop(str(path))
            self.changes.setdefault(_above(path), []).append((str(path), None, -1))

    def _mkdir(self, _: None, path: Any, *__: Any) -> None:
        if self._ours(str(path)):
            self._change(str(path), None, None)

    def _change(self, name: str, old: str | None, file: int | None) -> None:
        self.names[name] = file
        self.changes.setdefault(_above(name), []).append((name, old, file))

    def _ours(self, name: str) -> bool:
        return name.startswith(f"{self.root}/")


def _above(path: Any) -> str:
    return str(Path(path).parent)
