"""Writes of single files, wholly or not at all, the lock between processes, and the files of records.

    write_file(...); write_file(...); sync_folder(folder)

`write_file` makes a file appear with all its bytes on the disk. Only after `sync_folder` (`stores.syncing`)
it is certain that the file is still there after a power cut.

Each record is one JSON file, `yyyyMMddTHHmmssfffZ_{seq}_{role}.json`. One that is a JSON object is stored as
it is. A sealed one is an envelope, so that ten lines of any language open it with the key: `alg`, `iv`,
`ciphertext` and `tag` of AES-256-GCM, and `bound`, which begins its associated data. Any other record is
wrapped: `{"base64":"..."}`. The time in the name is for people. Nothing orders records by it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec

from lamina.errors import StoreError
from lamina.stores.syncing import sync_folder

READ_ONLY = frozenset((errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT))
"""The errors of a system where nothing can be written, or where there is no folder for locks."""

TEMPORARY_SUFFIX = ".tmp"
"""Ends the name of a file that is being written."""

NO_ROLE = "record"
"""Stands for the role in the name of a file whose record has none that can be read."""

_NAME = re.compile(r"([0-9]{8}T[0-9]{9}Z)_([0-9]{4,})_([a-z]+)\.json")  # "20250824T163625123Z_0000_user.json"
_ROLES = frozenset(("system", "user", "assistant", "tool"))
SEALED_HEAD, NONCE, TAG = 33, 12, 16
"""The parts of a sealed record: what it is bound to and its nonce before the text, its tag after it."""


class WrappedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file of a record that is no JSON object."""

    base64: bytes

    @property
    def body(self) -> bytes:
        return self.base64


class SealedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file of a record that encryption wrote."""

    alg: Literal["AES-256-GCM"]
    bound: bytes
    iv: bytes
    ciphertext: bytes
    tag: bytes

    @property
    def body(self) -> bytes:
        return self.bound + self.iv + self.ciphertext + self.tag


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


def record_file_name(seq: int, body: bytes, at: datetime) -> str:
    """The name of a new file: `yyyyMMddTHHmmssfffZ_{seq}_{role}.json`."""
    return f"{_format_time(at)}_{seq:04d}_{_role_of(body)}.json"


def rename_record_file(name: str, seq: int, body: bytes) -> str:
    """The name of the file that replaces another: a millisecond later, so that both can be there."""
    match = _NAME.fullmatch(name)
    if match is None:
        return name
    at = datetime.strptime(f"{match[1][:-1]}000", "%Y%m%dT%H%M%S%f").replace(tzinfo=UTC)
    return record_file_name(seq, body, at + timedelta(milliseconds=1))


def is_record_file(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def place_of(name: str) -> int:
    """The place of a record, from the name of its file."""
    return int(name.split("_")[1])


def list_record_files(folder: Path) -> set[str]:
    """The names of all files of records; none if there is no such folder."""
    try:
        return {path.name for path in folder.iterdir() if is_record_file(path.name)}
    except FileNotFoundError:
        return set()


def read_bytes(path: Path) -> bytes | None:
    """The content of a file, or None if there is no such file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def encode_body(body: bytes, *, sealed: bool = False) -> bytes:
    """A record as the content of its file; `sealed`: encryption wrote it."""
    if sealed and len(body) >= SEALED_HEAD + NONCE + TAG:
        text = SEALED_HEAD + NONCE
        pieces = (body[:SEALED_HEAD], body[SEALED_HEAD:text], body[text:-TAG], body[-TAG:])
        return msgspec.json.encode(SealedFile("AES-256-GCM", *pieces))
    if is_json_object(body) and decode_body(body) == body:
        return body
    return msgspec.json.encode(WrappedFile(body))


def decode_body(content: bytes) -> bytes:
    """The record in the content of its file. A damaged file gives other bytes, which the digest shows."""
    kinds: tuple[type[SealedFile | WrappedFile], ...] = (SealedFile, WrappedFile)
    for kind in kinds:
        try:
            return msgspec.json.decode(content, type=kind).body
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
    return content


def body_digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:32]


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
    return NO_ROLE


def is_json_object(body: bytes) -> bool:
    return _parse_object(body) is not None


def _parse_object(body: bytes) -> dict[str, Any] | None:
    """The JSON object in a record; None if it is something else."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return value
