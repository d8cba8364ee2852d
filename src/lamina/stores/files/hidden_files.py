"""The hidden files in the folder of a conversation: their names, and what each holds as JSON.

    .head          how many groups and records there are, and the state
    .g00000007     one group: where it begins, the names and digests of its records
    .o3f9a...      one idempotency key: its digest, and the count of the first time
    .begun         the files that a replacement is about to write

The names of the JSON fields are part of the format. A field that is called otherwise here says its name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import msgspec

from lamina.stores.files.record_file import is_record_file
from lamina.stores.port import StoredHead

VERSION = 2

HEAD = ".head"
BEGUN = ".begun"
NEW_SUFFIX = ".new"
"""Ends the name of a file that a replacement has written and not yet moved over the old one."""

_GROUP_OR_KEY = re.compile(r"\.g[0-9]{8,}|\.o[0-9a-f]{40}")  # ".g00000007", ".o" and 40 hex digits


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
