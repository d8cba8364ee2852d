"""The one door to files: everything below one folder, and nothing else.

A path is walked name by name from an open folder (`openat`), never following a symbolic link, so that nothing
that happens between a check and an open can lead outside. What was opened is looked at again: only regular
files with one name are read, up to a size. A file is written beside its place and then renamed into it.
What cannot be had is refused as BadInput, in words that tell nothing about what stands outside.

It does not know segments, models or text encodings. All of it blocks: call it from a worker thread.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import threading
import weakref
from collections.abc import Iterator
from os import PathLike
from typing import NamedTuple

from lamina.errors import BadInput
from lamina.workspace.paths import NOISE, SECRET, excluded, joined, plain, shown, steps

LARGEST = 8 * 2**20
"""Bytes of one file, read or written: far more text than any window holds."""

MOST, DEEPEST = 20_000, 40
"""Files that one walk looks at, and how deep it goes."""

_FOLDER = (
    os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
)
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
_FILES = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}
_CHUNK = 1 << 18


class FolderItem(NamedTuple):
    """Something in a folder. `why` says why it cannot be had, else nothing; `size` is in bytes."""

    path: str
    folder: bool = False
    size: int = 0
    why: str = ""


class Workspace:
    """Files below `root`. `exclude` are patterns of names that are never had; `linked` allows hard links."""

    def __init__(
        self,
        root: str | PathLike[str],
        *,
        largest: int = LARGEST,
        exclude: tuple[str, ...] = SECRET,
        skip: tuple[str, ...] = NOISE,
        linked: bool = False,
    ) -> None:
        if os.open not in os.supports_dir_fd or not hasattr(os, "O_NOFOLLOW"):
            raise BadInput("this system cannot open files relative to a folder", place=str(root))
        try:
            self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            raise BadInput(f"no folder: {_told(error)}", place=str(root), hint="check the path") from None
        self.largest, self.exclude, self.skip, self.linked = largest, exclude, skip, linked
        self._changing = threading.RLock()
        self._closed = weakref.finalize(self, os.close, self._root)

    def close(self) -> None:
        self._closed()

    def read(self, path: str, *, limit: int | None = None) -> bytes:
        """All of a regular file; refused if it is larger than `limit`, at most `largest`."""
        way = self._way(path)
        most = self.largest if limit is None else min(limit, self.largest)
        with self._parent(way) as (folder, name), _refusing(path):
            file = self._opened(folder, name, path)
            try:
                return _all_of(file, most, path)
            finally:
                os.close(file)

    def items(self, path: str = ".") -> list[FolderItem]:
        """What stands in a folder, by name; what cannot be had is named with the reason.

        Of more than `MOST` the rest is one item that says so.
        """
        return self._listed(self._way(path), MOST)

    def walk(self, path: str = ".") -> Iterator[FolderItem]:
        """Every file below a folder, in order, and what was left out with the reason.

        At most `MOST` things are looked at, in all folders together.
        """
        left = [MOST]
        yield from self._below(self._way(path), left, DEEPEST)

    def kind(self, path: str) -> str:
        """What stands there: "file", "folder", or nothing that can be had."""
        way = self._way(path)
        if not way:
            return "folder"
        with contextlib.suppress(BadInput), self._parent(way) as (folder, _):
            item = self._item(way, folder)
            return "" if item.why else "folder" if item.folder else "file"
        return ""

    def withheld(self, path: str) -> str:
        """Why a path may not be had from here, whoever asks; nothing if it may be, or if nothing is there."""
        try:
            way = self._way(path)
            if not way:
                return ""
            with self._parent(way) as (folder, _):
                why = self._item(way, folder).why
        except BadInput as refused:
            why = refused.problem
        return "" if why in _MEANT_WELL else why

    def write(self, path: str, data: bytes, *, replace: bool = True, parents: bool = True) -> bool:
        """Writes a file, wholly or not at all; True if it is new."""
        self._check_size(len(data), path)
        way = self._way(path, change=True)
        with self._changing, self._parent(way, make=parents) as (folder, name), _refusing(path):
            mode = self._replaceable(folder, name, path)
            if mode is not None and not replace:
                raise BadInput("it is there already", place=shown(path), hint="choose another name")
            _put(folder, name, data, 0o644 if mode is None else mode & 0o777)
            return mode is None

    def edit(self, path: str, old: bytes, new: bytes, *, every: bool = False) -> int:
        """Replaces an exact text and gives the number of places; it must stand there once, unless `every`."""
        with self._changing:
            data = self.read(path)
            count = data.count(old) if old else 0
            if not count or (count > 1 and not every):
                problem = f"the text to replace is there {count} times" if count else "the text is not there"
                hint = "give more of the lines around it, or replace all" if count else "read the file again"
                raise BadInput(problem, place=shown(path), hint=hint)
            size = len(data) + count * (len(new) - len(old))
            self._check_size(size, path)  # before it is made: a few bytes can become terabytes
            self.write(path, data.replace(old, new))
            return count

    def touch(self, path: str) -> bool:
        """Makes an empty file where there is none; True if it did."""
        return self.kind(path) != "file" and self.write(path, b"", replace=False)

    def remove(self, path: str) -> None:
        """Removes a file, or a folder that is empty."""
        way = self._way(path, change=True)
        with self._changing, self._parent(way) as (folder, name), _refusing(path):
            if stat.S_ISDIR(_mode(folder, name) or 0):
                os.rmdir(name, dir_fd=folder)
            else:
                self._replaceable(folder, name, path, needed=True)
                os.unlink(name, dir_fd=folder)

    def move(self, path: str, to: str) -> None:
        """Gives a file or folder another place, where nothing stands yet."""
        way, goal = self._way(path, change=True), self._way(to, change=True)
        if goal[: len(way)] == way:
            raise BadInput("a folder cannot be moved into itself", place=shown(path))
        with (
            self._changing,
            _refusing(path),
            self._parent(way) as (folder, name),
            self._parent(goal, make=True) as (there, new),
        ):
            if not stat.S_ISDIR(_mode(folder, name) or 0):
                self._replaceable(folder, name, path, needed=True)
            if _mode(there, new) is not None:
                raise BadInput("it is there already", place=shown(to), hint="remove it first")
            os.rename(name, new, src_dir_fd=folder, dst_dir_fd=there)

    def _check_size(self, size: int, path: str) -> None:
        if size > self.largest:
            raise BadInput(f"{size:,} bytes", place=shown(path), hint=f"at most {self.largest:,}")

    def _way(self, path: str, *, change: bool = False) -> tuple[str, ...]:
        way = steps(path)
        forbidden = excluded(way, self.exclude)
        if forbidden:
            hint = "ask for something else"
            raise BadInput(
                f"{shown(forbidden)!r} is excluded from this workspace", place=shown(path), hint=hint
            )
        if change and not way:
            raise BadInput("the root itself cannot be changed", place=".")
        return way

    @contextlib.contextmanager
    def _folder(self, way: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
        """A folder, opened name by name."""
        with _refusing(joined(way)):
            if not self._closed.alive:
                raise BadInput("the workspace is closed", place=joined(way))
            folder = os.dup(self._root)
            try:
                for name in way:
                    folder = _entered(folder, name, make=make)
            except BaseException:
                os.close(folder)
                raise
        try:
            yield folder
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def _parent(self, way: tuple[str, ...], *, make: bool = False) -> Iterator[tuple[int, str]]:
        if not way:
            raise BadInput("it is a folder", place=".", hint="name a file in it")
        with self._folder(way[:-1], make=make) as folder:
            yield folder, way[-1]

    def _opened(self, folder: int, name: str, path: str) -> int:
        """A regular file, looked at before it is opened (a device must not be) and after."""
        self._regular(os.stat(name, dir_fd=folder, follow_symlinks=False), path)
        file = os.open(name, _READ | os.O_CLOEXEC, dir_fd=folder)
        try:
            self._regular(os.fstat(file), path)
        except BaseException:
            os.close(file)
            raise
        return file

    def _regular(self, found: os.stat_result, path: str) -> None:
        why = self._why(found)
        if why or stat.S_ISDIR(found.st_mode):
            raise BadInput(f"it is {why or 'a folder'}, not a plain file", place=shown(path))

    def _why(self, found: os.stat_result) -> str:
        if stat.S_ISDIR(found.st_mode):
            return ""
        if not stat.S_ISREG(found.st_mode):
            return _FILES.get(stat.S_IFMT(found.st_mode), "something else")
        return "a hard link" if found.st_nlink > 1 and not self.linked else ""

    def _replaceable(self, folder: int, name: str, path: str, *, needed: bool = False) -> int | None:
        """The mode of the plain file that stands there, None if there is none; else a refusal."""
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            if needed:
                raise
            return None
        self._regular(found, path)
        if not found.st_mode & 0o222:
            raise BadInput("it may only be read", place=shown(path), hint="write another file")
        return found.st_mode

    def _item(self, way: tuple[str, ...], folder: int) -> FolderItem:
        path, name = joined(way), way[-1]
        if not plain(name):
            return FolderItem(joined((*way[:-1], shown(name))), why="a name that cannot be shown")
        if excluded((name,), self.exclude):
            return FolderItem(path, why="excluded")
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            return FolderItem(path, why=_told(error))
        is_folder, why = stat.S_ISDIR(found.st_mode), self._why(found)
        return FolderItem(path, folder=is_folder, size=0 if is_folder or why else found.st_size, why=why)

    def _listed(self, way: tuple[str, ...], most: int) -> list[FolderItem]:
        """The first `most` things in a folder, by name, and one item more if there are others."""
        with self._folder(way) as folder, _refusing(joined(way)):
            names = sorted(os.listdir(folder))  # noqa: PTH208 - of an open folder
            items = [self._item((*way, name), folder) for name in names[:most]]
        if len(names) > most:
            items.append(FolderItem(joined(way), folder=True, why=f"more than {MOST:,} files"))
        return items

    def _below(self, way: tuple[str, ...], left: list[int], depth: int) -> Iterator[FolderItem]:
        if not depth:
            yield FolderItem(joined(way), folder=True, why="too deep")
            return
        items = self._listed(way, left[0])
        left[0] = max(left[0] - len(items), 0)
        for item in items:
            if item.folder and not item.why:
                yield from self._inner(item, left, depth)
            else:
                yield item

    def _inner(self, item: FolderItem, left: list[int], depth: int) -> Iterator[FolderItem]:
        way = steps(item.path)
        if excluded(way[-1:], self.skip):
            yield item._replace(why="skipped")
            return
        try:
            yield from self._below(way, left, depth - 1)
        except BadInput as refused:  # removed, or swapped for a link, since it was listed
            yield item._replace(why=refused.problem)


def _entered(folder: int, name: str, *, make: bool) -> int:
    """The folder `name` in a folder, which is closed."""
    try:
        inner = os.open(name, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
        inner = os.open(name, _FOLDER, dir_fd=folder)
    os.close(folder)
    return inner


def _mode(folder: int, name: str) -> int | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None


def _all_of(file: int, most: int, path: str) -> bytes:
    """Counted while reading: a size that was looked up may be another one by now."""
    chunks: list[bytes] = []
    size = 0
    while chunk := os.read(file, min(_CHUNK, most + 1 - size)):
        chunks.append(chunk)
        size += len(chunk)
        if size > most:
            raise BadInput(
                f"larger than {most:,} bytes", place=shown(path), hint="only smaller files are read"
            )
    return b"".join(chunks)


def _put(folder: int, name: str, data: bytes, mode: int) -> None:
    beside = f".lamina-{secrets.token_hex(8)}"
    file = os.open(beside, _NEW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        with os.fdopen(file, "wb") as new:
            new.write(data)
            new.flush()
            os.fchmod(new.fileno(), mode)
            os.fsync(new.fileno())
        os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise
    os.fsync(folder)


@contextlib.contextmanager
def _refusing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInput(_told(error), place=shown(path), hint="list the folder to see what is there") from None


_WORDS = {
    errno.ENOENT: "there is no such file",
    errno.ENOTDIR: "it is no folder, or a link on the way to it",
    errno.ELOOP: "it is a symbolic link",
    errno.EISDIR: "it is a folder",
    errno.ENOTEMPTY: "the folder is not empty",
    errno.EACCES: "it may not be read or changed",
    errno.EPERM: "it may not be read or changed",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ENXIO: "it is not a plain file",
    errno.ENOSPC: "there is no space left",
}


_MEANT_WELL = frozenset(_WORDS[number] for number in (errno.ENOENT, errno.EACCES))
"""What goes wrong for somebody who asks for a file of their own."""


def _told(error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) else None
    return _WORDS.get(number or 0) or getattr(error, "strerror", None) or str(error)
