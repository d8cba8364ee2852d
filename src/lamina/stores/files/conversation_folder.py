"""The folder of one conversation, as it is read: its hidden files, and the records.

Whatever `.head` does not count does not exist. Each hidden file ends in a checksum, which depends on its name
and its conversation; the digests of the records are in their group. Everything here is called under the lock
of the conversation, and nothing here writes: `commits` does.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from lamina.errors import Damaged, StoreError, advise_on_version
from lamina.stores.checks import check_digest
from lamina.stores.checksums import file_sum
from lamina.stores.files.disk import (
    HEAD,
    NEW_SUFFIX,
    VERSION,
    AppendedGroup,
    HeadFile,
    HeadVersion,
    IdempotencyEntry,
    body_digest,
    decode_body,
    group_name,
    is_record_file,
    once_name,
)
from lamina.stores.port import Once, Record, StoredHead, Where

T = TypeVar("T")

_CHECKSUMMED = re.compile(rb'(\{.*),"sum":"([0-9a-f]{8})"\}', re.DOTALL)
"""A hidden file: JSON whose last field is the checksum of all before it: `{"first":0,"sum":"0a1b2c3d"}`."""


_NO_HEAD = HeadFile(v=VERSION, workspace="", conversation="")
"""Counts nothing: the head of a conversation that nobody began, or whose head was not read."""


class ConversationFolder:
    """One conversation. `head_file` is its head; None if there is no such conversation.

    `headless` leaves the head unread, which may be damaged.
    """

    def __init__(self, folder: Path, where: Where, *, headless: bool = False) -> None:
        self.folder = folder
        self.where = where
        self.use_head(None)
        if not headless:
            self.use_head(self._load_head())

    def use_head(self, head_file: HeadFile | None) -> None:
        """Read from now on what this head counts."""
        self.head_file = head_file
        self._counted = head_file or _NO_HEAD
        self._moved = frozenset(self._counted.moves)
        self._groups: dict[int, AppendedGroup] = {}

    @property
    def head(self) -> StoredHead:
        """The number of records and the state; empty for a conversation that nobody began."""
        return self._counted.head

    @property
    def group_count(self) -> int:
        """How many groups were appended so far; the next one has this number."""
        return self._counted.groups

    def read_records(self, places: Sequence[int]) -> tuple[Record, ...]:
        return tuple(Record(seq=seq, body=self._read_body(seq)) for seq in places)

    def find_repeated(self, once: Once) -> StoredHead | None:
        """The answer to an idempotency key that was used before; None for a new key.

        An entry for a group that the head does not count was left by an interrupted append, and means
        nothing.
        """
        entry = self.load(once_name(once.key), IdempotencyEntry)
        if entry is None or entry.group >= self.group_count:
            return None
        if self.group(entry.group).once != once.key:
            return None
        check_digest(self.where, once, entry.digest)
        return StoredHead(count=entry.count, state=self.head.state)

    def group_number(self, seq: int) -> int:
        """The number of the group that holds this record."""
        numbers = range(self.group_count)
        number = bisect_right(numbers, seq, key=lambda each: self.group(each).first) - 1
        if number < 0:
            raise self._damaged(f"no group names record {seq}")
        group = self.group(number)
        if seq >= group.first + len(group.files):
            raise self._damaged(f"no group names record {seq}")
        return number

    def group(self, number: int) -> AppendedGroup:
        """One appended group, from memory or from its file. The head counts it, so its file must be there."""
        if number not in self._groups:
            group = self.load(group_name(number), AppendedGroup)
            if group is None:
                raise self._damaged(f"group {number} is gone")
            self._groups[number] = group
        return self._groups[number]

    def load(self, name: str, content_type: type[T]) -> T | None:
        """The content of a hidden file whose checksum is right; None if there is no such file."""
        data = self._read_content(name)
        if data is None:
            return None
        self._check_checksum(data, name)
        return self._decode(data, content_type, name)

    def encode_with_checksum(self, name: str, value: msgspec.Struct) -> bytes:
        """The content of a hidden file, with its checksum as the last field."""
        fields = msgspec.json.encode(value)[:-1]
        return b'%s,"sum":"%s"}' % (fields, file_sum(self.where, name, fields).encode())

    def intact_records(self) -> list[Record]:
        """The records that can still be read, group by group, as far as there are groups."""
        records: list[Record] = []
        number = 0
        while (self.folder / group_name(number)).exists():
            with suppress(Damaged):
                records += self._intact_records_of(self.group(number))
            number += 1
        return records

    def _intact_records_of(self, group: AppendedGroup) -> Iterator[Record]:
        """Yield the records of a group whose files hold what was written; others are passed over."""
        for seq, file in enumerate(group.files, group.first):
            content = _read_bytes(self.folder / file.name)
            if content is None:
                continue
            body = decode_body(content)
            if body_digest(body) == file.digest:
                yield Record(seq=seq, body=body)

    def _load_head(self) -> HeadFile | None:
        """Read and check the head; None for a conversation that nobody began.

        The version comes first: another release may mean something else by all other fields.
        """
        data = self._read_content(HEAD)
        if data is None:
            self._check_nothing_lost()
            return None
        self._check_version(data)
        head_file = self._decode(data, HeadFile, HEAD)
        if Where(head_file.workspace, head_file.conversation) != self.where:
            raise self._damaged("its folder is that of another conversation")
        self._check_checksum(data, HEAD)
        self._check_newest(head_file)
        return head_file

    def _check_version(self, data: bytes) -> None:
        """Raise if another release wrote the head, before anything else of it is believed."""
        version = self._decode(data, HeadVersion, HEAD).v
        if version != VERSION:
            hint = advise_on_version(version, VERSION)
            raise StoreError(f"it has version {version}", conversation=self.where.conversation, hint=hint)

    def _check_newest(self, head_file: HeadFile) -> None:
        """Raise if this head is an old copy: then there are groups that it does not count.

        One such group alone is an append that was interrupted.
        """
        uncounted = group_name(head_file.groups + 1)
        if (self.folder / uncounted).exists():
            raise self._damaged(f"{HEAD!r} is of an earlier time: it does not count {uncounted!r}")

    def _check_checksum(self, data: bytes, name: str) -> None:
        """Raise if the checksum of a hidden file is wrong.

        The sum covers the place and the name of the file, so a file that was copied from elsewhere has a
        wrong one.
        """
        match = _CHECKSUMMED.fullmatch(data)
        if match is None:
            raise self._damaged(f"{name!r} has lost its checksum")
        if file_sum(self.where, name, match[1]) != match[2].decode():
            raise self._damaged(f"{name!r} is not what was written")

    def _check_nothing_lost(self) -> None:
        """Raise if there are records and no head, unless a first append was interrupted.

        Without this check a lost head would make a long conversation look new, and the next append would
        overwrite it.
        """
        if not self.folder.is_dir():
            return
        uncounted = {path.name for path in self.folder.iterdir() if is_record_file(path.name)}
        if not uncounted:
            return
        first_group = self.load(group_name(0), AppendedGroup)
        if first_group is not None:
            uncounted -= {file.name for file in first_group.files}
        if uncounted:
            raise self._damaged(f"there are records and no {HEAD!r}")

    def _read_body(self, seq: int) -> bytes:
        """Read one body, and compare it with the digest that its group has of it."""
        group = self.group(self.group_number(seq))
        file = group.files[seq - group.first]
        content = self._read_content(file.name)
        if content is None:
            raise self._damaged(f"{file.name!r} is gone")
        body = decode_body(content)
        if body_digest(body) != file.digest:
            raise self._damaged(f"{file.name!r} is not what was written")
        return body

    def _read_content(self, name: str) -> bytes | None:
        """The bytes of a file. If a replacement has not moved its new file yet, the new file counts."""
        if name in self._moved:
            new_content = _read_bytes(self.folder / f"{name}{NEW_SUFFIX}")
            if new_content is not None:
                return new_content
        return _read_bytes(self.folder / name)

    def _decode(self, data: bytes, content_type: type[T], name: str) -> T:
        """Decode a hidden file. Anything else is damage, since only lamina writes these files."""
        try:
            return msgspec.json.decode(data, type=content_type)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise self._damaged(f"{name!r} cannot be read") from None

    def _damaged(self, problem: str) -> Damaged:
        """The error for this conversation, with what to do about it."""
        hint = "restore this folder from a backup, hidden files included"
        return Damaged(problem, conversation=self.where.conversation, hint=hint)


def _read_bytes(path: Path) -> bytes | None:
    """The content of a file, or None if there is no such file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
