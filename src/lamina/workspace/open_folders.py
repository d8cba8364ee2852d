"""Opens, reads and writes files relative to an open folder, without following a link.

These are the system calls under `workspace`. Each takes the descriptor of a folder and one name in it, so
nobody can swap a folder of the path in between. What goes wrong is said in words of our own.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator

from lamina.errors import BadInput
from lamina.workspace.paths import display_name

_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)  # as far as the system has them
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINK
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK
READ_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | _NO_LINK
"""To open a file that is read. A pipe does not block it, and no terminal becomes that of this process."""

_CHUNK = 1 << 18


def enter_folder(folder: int, name: str, *, make: bool) -> int:
    """Open the folder `name` in an open folder, and close that one."""
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


def mode_of(folder: int, name: str) -> int | None:
    """The mode of what is at a place, None if nothing is there."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None


def read_whole(file: int, most: int, path: str) -> bytes:
    """All bytes of a file. They are counted while reading, since the size may have changed since a look."""
    chunks: list[bytes] = []
    size = 0
    while chunk := os.read(file, min(_CHUNK, most + 1 - size)):
        chunks.append(chunk)
        size += len(chunk)
        if size > most:
            problem = f"larger than {most:,} bytes"
            raise BadInput(problem, place=display_name(path), hint="only smaller files are read")
    return b"".join(chunks)


def write_and_rename(folder: int, name: str, data: bytes, mode: int) -> None:
    """Write a file under a temporary name, and rename it when all of it is on disk."""
    temporary = f".lamina-{secrets.token_hex(8)}"
    file = os.open(temporary, _NEW, 0o600, dir_fd=folder)
    try:
        with os.fdopen(file, "wb") as new:
            new.write(data)
            new.flush()
            os.fchmod(new.fileno(), mode)
            os.fsync(new.fileno())
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


@contextlib.contextmanager
def refuse_os_errors(path: str) -> Iterator[None]:
    """Turn an OSError into BadInput, in words of our own: those of the system may name other paths."""
    try:
        yield
    except OSError as error:
        hint = "list the folder to see what is there"
        raise BadInput(describe_error(error), place=display_name(path), hint=hint) from None


_DESCRIPTIONS = {
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


OWN_FILE_PROBLEMS = frozenset((_DESCRIPTIONS[errno.ENOENT], _DESCRIPTIONS[errno.EACCES]))
"""What can go wrong with a file that somebody may read."""


def describe_error(error: Exception) -> str:
    """What went wrong, in a few words. The words of the system are used only where we have none."""
    number = getattr(error, "errno", 0)
    description = _DESCRIPTIONS.get(number)
    system_words = getattr(error, "strerror", None) or str(error)
    return description or system_words
