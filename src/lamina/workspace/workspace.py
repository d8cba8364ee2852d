"""Opens the one door to files: everything below one folder, and nothing else.

A path is opened name by name from an open folder (`openat`), and symbolic links are never followed. So
nothing that happens between a check and an open can lead outside. After a file was opened it is checked
again: only regular files with one name are read, up to a size. A file is written under a temporary name and
then renamed. Anything else raises BadInput, in words that tell nothing about what is outside.

This module does not know segments, models or text encodings. It blocks: call it from a worker thread.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import weakref
from collections.abc import Iterator
from os import PathLike
from typing import NamedTuple

from lamina.errors import BadInput
from lamina.workspace.open_folders import (
    OWN_FILE_PROBLEMS,
    READ_FLAGS,
    describe_error,
    enter_folder,
    mode_of,
    read_whole,
    refuse_os_errors,
    write_and_rename,
)
from lamina.workspace.paths import (
    NOISE,
    SECRET,
    display_name,
    find_excluded,
    holds_excluded,
    is_excluded,
    is_plain,
    join_path,
    split_path,
)

LARGEST = 8 * 2**20
"""Bytes of one file, read or written: far more text than any context window takes."""

MOST = 20_000
"""Files that one walk looks at."""

DEEPEST = 40
"""How many folders deep a walk goes."""

_CHANGING = threading.RLock()
"""Held while a file is changed. One for all workspaces: those of two agents may have the same file."""

_NAMES_OF_TYPES = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


class FolderItem(NamedTuple):
    """Something in a folder. `why` says why it cannot be read, "" if it can. `size` is in bytes."""

    path: str
    folder: bool = False
    size: int = 0
    why: str = ""


class Workspace:
    """Files below `root`. `exclude` are patterns of names that are never used; `linked` allows hard links."""

    def __init__(
        self,
        root: str | PathLike[str],
        *,
        largest: int = LARGEST,
        exclude: tuple[str, ...] = SECRET,
        linked: bool = False,
    ) -> None:
        if os.open not in os.supports_dir_fd or not hasattr(os, "O_NOFOLLOW"):
            raise BadInput("this system cannot open files relative to a folder", place=str(root))
        try:
            self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            problem = f"no folder: {describe_error(error)}"
            raise BadInput(problem, place=str(root), hint="check the path") from None
        as_given = os.path.abspath(root)  # noqa: PTH100 - links in it stay
        self._root_paths = (as_given, os.path.realpath(root))
        self.largest = largest
        self.exclude = exclude
        self.linked = linked
        self._closed = weakref.finalize(self, os.close, self._root)

    def close(self) -> None:
        self._closed()

    def relative(self, path: str) -> str:
        """A path from the root. One that begins with the path of the root itself is shortened to that.

        Only its text is looked at: whatever is left is opened name by name from the root.
        """
        text = str(path)
        for root in self._root_paths:
            folder = root.rstrip("/")
            if text == folder or text.startswith(f"{folder}/"):
                return join_path(split_path(f".{text[len(folder) :]}"))
        return join_path(split_path(path))

    def read(self, path: str, *, limit: int | None = None) -> bytes:
        """All of a regular file. Refuses one that is larger than `limit`, which is at most `largest`."""
        names = self._check_path(path)
        most = self.largest if limit is None else min(limit, self.largest)
        with self._open_parent(names) as (folder, name), refuse_os_errors(path):
            file = self._open_file(folder, name, path)
            try:
                return read_whole(file, most, path)
            finally:
                os.close(file)

    def items(self, path: str = ".") -> list[FolderItem]:
        """What is in a folder, by name. Items that cannot be read are listed with the reason.

        If there are more than `MOST`, one item says so.
        """
        return self._list_folder(self._check_path(path), MOST)

    def walk(self, path: str = ".") -> Iterator[FolderItem]:
        """Every file below a folder, in order, and what was left out with the reason.

        At most `MOST` items are looked at, in all folders together.
        """
        left = [MOST]  # a list, since all folders count down the same number
        yield from self._walk_folder(self._check_path(path), left, DEEPEST)

    def kind(self, path: str) -> str:
        """What is at a path: "file", "folder", or "" for nothing that can be read."""
        names = self._check_path(path)
        if not names:
            return "folder"
        with contextlib.suppress(BadInput), self._open_parent(names) as (folder, _):
            item = self._make_item(names, folder)
            if item.why:
                return ""
            if item.folder:
                return "folder"
            return "file"
        return ""

    def withheld(self, path: str) -> str:
        """Why nobody may read a path from here; "" if it may be read, or if nothing is there."""
        try:
            names = self._check_path(path)
            if not names:
                return ""
            with self._open_parent(names) as (folder, _):
                why = self._make_item(names, folder).why
        except BadInput as error:
            why = error.problem
        if why in OWN_FILE_PROBLEMS:
            return ""
        return why

    def write(self, path: str, data: bytes, *, replace: bool = True) -> bool:
        """Write a file, and the folders above it, wholly or not at all. True if it is new."""
        self._check_size(len(data), path)
        names = self._check_path(path, change=True)
        with (
            _CHANGING,
            self._open_parent(names, make=True) as (folder, name),
            refuse_os_errors(path),
        ):
            mode = self._check_replaceable(folder, name, path)
            if mode is not None and not replace:
                raise BadInput("it is there already", place=display_name(path), hint="choose another name")
            new_mode = 0o644 if mode is None else mode & 0o777
            write_and_rename(folder, name, data, new_mode)
            return mode is None

    def edit(self, path: str, old: bytes, new: bytes, *, every: bool = False) -> int:
        """Replace an exact text, and return in how many places. It must be there once, unless `every`.

        Others may change the file between the read and the write only from outside of this process.
        """
        with _CHANGING:
            data = self.read(path)
            count = data.count(old) if old else 0
            if not count:
                raise BadInput("the text is not there", place=display_name(path), hint="read the file again")
            if count > 1 and not every:
                problem = f"the text to replace is there {count} times"
                hint = "give more of the lines around it, or replace all"
                raise BadInput(problem, place=display_name(path), hint=hint)
            size = len(data) + count * (len(new) - len(old))
            self._check_size(size, path)  # before the replacement: a few bytes can become terabytes
            self.write(path, data.replace(old, new))
            return count

    def touch(self, path: str) -> bool:
        """Create an empty file if there is none. True if it did."""
        if self.kind(path) == "file":
            return False
        return self.write(path, b"", replace=False)

    def remove(self, path: str) -> None:
        """Remove a file, or a folder that is empty."""
        names = self._check_path(path, change=True)
        with _CHANGING, self._open_parent(names) as (folder, name), refuse_os_errors(path):
            if stat.S_ISDIR(mode_of(folder, name) or 0):
                os.rmdir(name, dir_fd=folder)
            else:
                self._check_replaceable(folder, name, path, required=True)
                os.unlink(name, dir_fd=folder)

    def move(self, path: str, to: str) -> None:
        """Move a file or folder to a place where there is nothing yet.

        Nothing is ever replaced by a move, so that no file is lost by it.
        """
        names = self._check_path(path, change=True)
        new_names = self._check_path(to, change=True)
        if new_names[: len(names)] == names:
            raise BadInput("a folder cannot be moved into itself", place=display_name(path))
        if holds_excluded(names[-1], self.exclude):
            problem = "a folder of this name may hold files that are excluded by their place in it"
            raise BadInput(problem, place=display_name(path), hint="move the files that you need one by one")
        with (
            _CHANGING,
            refuse_os_errors(path),
            self._open_parent(names) as (folder, name),
            self._open_parent(new_names, make=True) as (new_folder, new_name),
        ):
            if not stat.S_ISDIR(mode_of(folder, name) or 0):
                self._check_replaceable(folder, name, path, required=True)
            if mode_of(new_folder, new_name) is not None:
                raise BadInput("it is there already", place=display_name(to), hint="remove it first")
            # Python has no rename that fails if the place is taken (renameat2), so another process may still
            # put a file there between the look and this.
            os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=new_folder)

    def _check_size(self, size: int, path: str) -> None:
        """Raise BadInput for a file that could not be read again."""
        if size > self.largest:
            raise BadInput(f"{size:,} bytes", place=display_name(path), hint=f"at most {self.largest:,}")

    def _check_path(self, path: str, *, change: bool = False) -> tuple[str, ...]:
        """The names of a path, if it is allowed. `change`: the root itself is refused."""
        names = split_path(self.relative(path))
        excluded_name = find_excluded(names, self.exclude)
        if excluded_name:
            problem = f"{display_name(excluded_name)!r} is excluded from this workspace"
            raise BadInput(problem, place=display_name(path), hint="ask for something else")
        if change and not names:
            raise BadInput("the root itself cannot be changed", place=".")
        return names

    @contextlib.contextmanager
    def _open_folder(self, names: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
        """A folder, opened name by name. `make` creates missing ones."""
        with refuse_os_errors(join_path(names)):
            if not self._closed.alive:
                raise BadInput("the workspace is closed", place=join_path(names))
            folder = os.dup(self._root)
            try:
                for name in names:
                    folder = enter_folder(folder, name, make=make)
            except BaseException:
                os.close(folder)
                raise
        try:
            yield folder
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def _open_parent(self, names: tuple[str, ...], *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The open folder in which the last name is, and that name."""
        if not names:
            raise BadInput("it is a folder", place=".", hint="name a file in it")
        with self._open_folder(names[:-1], make=make) as folder:
            yield folder, names[-1]

    def _open_file(self, folder: int, name: str, path: str) -> int:
        """A regular file. It is checked before it is opened, since a device must not be, and again after."""
        self._check_regular(os.stat(name, dir_fd=folder, follow_symlinks=False), path)
        file = os.open(name, READ_FLAGS, dir_fd=folder)
        try:
            self._check_regular(os.fstat(file), path)
        except BaseException:
            os.close(file)
            raise
        return file

    def _check_regular(self, status: os.stat_result, path: str) -> None:
        """Raise BadInput for anything but a file that may be read."""
        why = self._why_not(status)
        if stat.S_ISDIR(status.st_mode):
            why = "a folder"
        if why:
            raise BadInput(f"it is {why}, not a plain file", place=display_name(path))

    def _why_not(self, status: os.stat_result) -> str:
        """Why something is neither a folder nor a file that may be read, "" if it is one.

        A second name of a file may stand outside of the workspace, so it would be a way out.
        """
        if stat.S_ISDIR(status.st_mode):
            return ""
        if not stat.S_ISREG(status.st_mode):
            return _NAMES_OF_TYPES.get(stat.S_IFMT(status.st_mode), "something else")
        if status.st_nlink > 1 and not self.linked:
            return "a hard link"
        return ""

    def _check_replaceable(self, folder: int, name: str, path: str, *, required: bool = False) -> int | None:
        """The mode of the plain file at a place, None if there is none. Anything else is refused."""
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            if required:
                raise
            return None
        self._check_regular(status, path)
        if not status.st_mode & 0o222:
            raise BadInput("it may only be read", place=display_name(path), hint="write another file")
        return status.st_mode

    def _make_item(self, names: tuple[str, ...], folder: int) -> FolderItem:
        """What is at a path, from its open folder. `why` says why it cannot be read."""
        path = join_path(names)
        name = names[-1]
        if not is_plain(name):
            return FolderItem(join_path((*names[:-1], display_name(name))), why="a name that cannot be shown")
        if is_excluded(names, self.exclude):
            return FolderItem(path, why="excluded")
        try:
            # without following links, relative to its open folder: nobody can swap the folder
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            return FolderItem(path, why=describe_error(error))
        why = self._why_not(status)
        if stat.S_ISDIR(status.st_mode):
            return FolderItem(path, folder=True)
        if why:
            return FolderItem(path, why=why)
        return FolderItem(path, size=status.st_size)

    def _list_folder(self, names: tuple[str, ...], most: int) -> list[FolderItem]:
        """The first `most` items of a folder, by name, and one item more if there are others."""
        path = join_path(names)
        with self._open_folder(names) as folder, refuse_os_errors(path):
            inner_names = sorted(os.listdir(folder))  # noqa: PTH208 - of an open folder
            items = [self._make_item((*names, name), folder) for name in inner_names[:most]]
        if len(inner_names) > most:
            items.append(FolderItem(path, folder=True, why=f"more than {MOST:,} files"))
        return items

    def _walk_folder(self, names: tuple[str, ...], left: list[int], depth: int) -> Iterator[FolderItem]:
        """Everything below a folder, in order. `left` is how many items may still be looked at."""
        if not depth:
            yield FolderItem(join_path(names), folder=True, why="too deep")
            return
        items = self._list_folder(names, left[0])
        # all folders share it, so a walk ends even if folders are added while it goes on
        left[0] = max(left[0] - len(items), 0)
        for item in items:
            if item.folder and not item.why:
                yield from self._walk_item(item, left, depth)
            else:
                yield item

    def _walk_item(self, item: FolderItem, left: list[int], depth: int) -> Iterator[FolderItem]:
        """What is below a folder that was listed, or the folder itself with the reason why not."""
        names = split_path(item.path)
        if is_excluded(names, NOISE):
            yield item._replace(why="skipped")
            return
        try:
            yield from self._walk_folder(names, left, depth - 1)
        except BadInput as error:  # removed, or replaced by a link, since it was listed
            yield item._replace(why=error.problem)
