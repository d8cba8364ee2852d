"""Writes of single files, wholly or not at all, and the lock between processes.

    write_file(...); write_file(...); sync_folder(folder)

`write_file` makes a file appear with all its bytes on the disk. Only after `sync_folder` (`stores.syncing`)
it is certain that the file is still there after a power cut.

The hidden files in the folder of a conversation hold JSON. The names of its fields are the format:

    .head          how many groups and records there are, and the state
    .g00000007     one group: where it begins, the names and digests of its records
    .o3f9a...      one idempotency key: its digest, and the count of the first time
    .begun         the files that a replacement is about to write

A record that is a JSON object is stored as it is, so that anyone can read it; any other record is wrapped:
`{"base64":"..."}`. The time in the name of its file is for people. Nothing orders records by it.
"""

from __future__ import annotations

import base64
import binascii
import errno
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from lamina.errors import StoreError
from lamina.stores.port import StoredHead
from lamina.stores.syncing import sync_folder

READ_ONLY = frozenset((errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT))
"""The errors of a system where nothing can be written, or where there is no folder for locks."""

TEMPORARY_SUFFIX = ".tmp"
"""Ends the name of a file that is being written."""

VERSION = 2

HEAD = ".head"
BEGUN = ".begun"
NEW_SUFFIX = ".new"
"""Ends the name of a file that a replacement has written and not yet moved over the old one."""

_GROUP_OR_KEY = re.compile(r"\.g[0-9]{8,}|\.o[0-9a-f]{40}")  # ".g00000007", ".o" and 40 hex digits

SEALED = "record"
"""Stands for the role in the name of a file whose record has none that can be read."""

_NAME = re.compile(r"([0-9]{8}T[0-9]{9}Z)_([0-9]{4,})_([a-z]+)\.json")  # "20250824T163625123Z_0000_user.json"
_ROLES = frozenset(("system", "user", "assistant", "tool"))
_WRAPPER_START = b'{"base64":"'
_WRAPPER_END = b'"}'


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
        # Not `lockf`: its locks are those of the whole process. Two threads would hold one at once, and
        # whoever closes another descriptor of the file gives it up for both.
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


def group_name(number: int) -> str:
    return f".g{number:08d}"


def once_name(key: str) -> str:
    return f".o{hashlib.sha256(key.encode()).hexdigest()[:40]}"


class RecordFile(msgspec.Struct, frozen=True, array_like=True):
    """One record of a group: the name of its file, and the digest of its body."""

    name: str
    digest: str

    def __post_init__(self) -> None:
        _check_names((self.name,))


class AppendedGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one append has added. `first` is the place of its first record, `once` its idempotency key."""

    first: int
    files: tuple[RecordFile, ...] = msgspec.field(default=(), name="sheets")
    once: str | None = None


class IdempotencyEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An idempotency key, and the count of the first time. It is valid if its group was committed."""

    digest: bytes
    group: int
    count: int


class HeadVersion(msgspec.Struct, frozen=True):
    """The version of `.head`, which is read before anything else of it."""

    v: int


class HeadFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of `.head`.

    `moves` and `drops` are files of a replacement that is committed. They may not have been moved yet.
    """

    v: int
    workspace: str
    conversation: str
    groups: int = 0
    count: int = 0
    state: bytes = b""
    moves: tuple[str, ...] = ()
    drops: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_names(self.moves + self.drops)

    @property
    def head(self) -> StoredHead:
        return StoredHead(count=self.count, state=self.state)


class PlannedFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `.begun`: the files that a replacement is about to write."""

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_names(self.names)


def _check_names(names: Sequence[str]) -> None:
    """Files are read, moved and removed by these names, so they must be names of files of this folder."""
    for name in names:
        if not is_record_file(name) and not _GROUP_OR_KEY.fullmatch(name):
            raise ValueError("it names something else than a record, a group or a key")


def record_file_name(seq: int, body: bytes, at: datetime) -> str:
    """The name of a new file: `yyyyMMddTHHmmssfffZ_{seq}_{role}.json`."""
    return _format_name(_format_time(at), seq, body)


def rename_record_file(name: str, seq: int, body: bytes) -> str:
    """The name of a file whose record gets another body: the time stays."""
    match = _NAME.fullmatch(name)
    if match is None:
        return name
    return _format_name(match[1], seq, body)


def is_record_file(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def encode_body(body: bytes) -> bytes:
    """A record as the content of its file."""
    if _parse_object(body) is not None and not body.startswith(_WRAPPER_START):
        return body
    return _WRAPPER_START + base64.b64encode(body) + _WRAPPER_END


def decode_body(content: bytes) -> bytes:
    """The record in the content of its file. A damaged file gives other bytes, which the digest shows."""
    if not content.startswith(_WRAPPER_START):
        return content
    try:
        return base64.b64decode(content[len(_WRAPPER_START) : -len(_WRAPPER_END)], validate=True)
    except binascii.Error:
        return content


def body_digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:32]


def _format_name(time: str, seq: int, body: bytes) -> str:
    return f"{time}_{seq:04d}_{_role_of(body)}.json"


def _format_time(at: datetime) -> str:
    """A time in UTC as file names have it, which sort by time: `20260131T093000123Z`."""
    at = at.astimezone(UTC)
    return f"{at.year:04d}{at:%m%dT%H%M%S}{at.microsecond // 1000:03d}Z"


def _role_of(body: bytes) -> str:
    """Who speaks in a record, for the name of its file; `sealed` if nobody can tell without a key."""
    record = _parse_object(body)
    match record:
        case {"segment": {"role": str(role)}} if role in _ROLES:
            return role
    return SEALED


def _parse_object(body: bytes) -> dict[str, Any] | None:
    """The JSON object in a record; None if it is something else."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return value
