"""The folder of one conversation: its records, a file each, and a hidden file that says which count.

    20250824T163625123Z_0000_user.json      one record
    .head          the state, the names and digests of the records in their order, the idempotency keys
    .begun         the files that a write is about to make or to remove

Whatever `.head` does not name does not exist. It ends in a checksum, which depends on the conversation.
Replacing that one file is the commit: an append first names its files in `.begun`, writes them, and then the
head. A replaced record gets a file of another name, and the old one is removed after the commit. Each step is
on the disk before the next one begins. Whoever comes after a crash removes what `.begun` names and the head
does not. A file that neither names means that the head is an old copy, and nothing of it is removed.

Everything here is called under the lock of the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace as replace_fields

from lamina.errors import Damaged, StoreError
from lamina.stores.checked import NewGroup, Replacement
from lamina.stores.checks import check_digest
from lamina.stores.checksums import file_sum
from lamina.stores.files.disk import (
    body_digest,
    decode_body,
    encode_body,
    is_json_object,
    is_record_file,
    list_record_files,
    make_folder,
    place_of,
    read_bytes,
    record_file_name,
    remove_file,
    rename_record_file,
    write_file,
)
from lamina.stores.port import Once, Record, StoredHead, Where, Within
from lamina.stores.syncing import sync_folder

HEAD = ".head"
BEGUN = ".begun"

_CHECKSUMMED = re.compile(rb'(\{.*),"sum":"([0-9a-f]{8})"\}', re.DOTALL)
"""A head: JSON whose last field is the checksum of all before it: `{"workspace":"team","sum":"0a1b2c3d"}`."""


class RecordFile(msgspec.Struct, frozen=True, array_like=True):
    """One record: the name of its file, and the digest of its body."""

    name: str
    digest: str

    def __post_init__(self) -> None:
        if not is_record_file(self.name):  # it is read and removed by this name
            raise ValueError("it names something else than a record")


class FirstTime(msgspec.Struct, frozen=True, array_like=True):
    """What became of an idempotency key when it came first: its digest, and the count after it."""

    digest: bytes
    count: int


class HeadFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of `.head`."""

    workspace: str
    conversation: str
    state: bytes = b""
    files: tuple[RecordFile, ...] = ()
    once: Mapping[str, FirstTime] = {}

    @property
    def head(self) -> StoredHead:
        return StoredHead(count=len(self.files), state=self.state)


class ConversationFolder:
    """One conversation. `head_file` is its head; None if there is no such conversation."""

    def __init__(self, folder: Path, where: Where) -> None:
        self.folder = folder
        self.where = where
        self.head_file = self._load_head()

    @property
    def head(self) -> StoredHead:
        """The number of records and the state; empty for a conversation that nobody began."""
        if self.head_file is None:
            return StoredHead()
        return self.head_file.head

    def read_records(self, places: Sequence[int]) -> tuple[Record, ...]:
        if self.head_file is None:
            return ()
        return tuple(self._read_record(seq, self.head_file.files[seq]) for seq in places)

    def append_group(self, group: NewGroup, at: datetime) -> StoredHead:
        """Append a group of records; `at` is the time in the names of its files."""
        previous = self.head_file
        if previous is None:
            names = (str(self.where.workspace), self.where.conversation)
            previous = HeadFile(workspace=names[0], conversation=names[1])
        if group.once is not None and group.once.key in previous.once:
            return self._repeated_head(previous, group.once)
        head = group.head_after(self.head)
        if self.head_file is None:
            make_folder(self.folder.parent)
            make_folder(self.folder)
        self._recover()
        bodies: dict[str, bytes] = {}
        for seq, body in enumerate(group.records, self.head.count):
            bodies[record_file_name(seq, body, at)] = body
        once = dict(previous.once)
        if group.once is not None:
            once[group.once.key] = FirstTime(group.once.digest, head.count)
        new_files = tuple(RecordFile(name, body_digest(body)) for name, body in bodies.items())
        new_head = replace_fields(previous, files=previous.files + new_files, state=head.state, once=once)
        self._write(new_head, bodies, dropped=())
        return head

    def replace_records(self, replacement: Replacement) -> StoredHead:
        if self.head_file is None:
            replacement.raise_missing()
        head = replacement.head_after(self.head)
        self._recover()
        files = list(self.head_file.files)
        bodies: dict[str, bytes] = {}
        dropped: list[str] = []
        for seq, body in replacement.bodies.items():
            old_name = files[seq].name
            new_name = rename_record_file(old_name, seq, body)
            files[seq] = RecordFile(new_name, body_digest(body))
            bodies[new_name] = body
            dropped.append(old_name)
        self._write(replace_fields(self.head_file, files=tuple(files), state=head.state), bodies, dropped)
        return head

    def _repeated_head(self, head_file: HeadFile, once: Once) -> StoredHead:
        first = head_file.once[once.key]
        check_digest(self.where, once, first.digest)
        return StoredHead(count=first.count, state=head_file.state)

    def _write(self, head_file: HeadFile, bodies: Mapping[str, bytes], dropped: Sequence[str]) -> None:
        """Write files and commit the head that names them, then remove the files that it names no more."""
        if bodies:
            write_file(self.folder, BEGUN, msgspec.json.encode([*bodies, *dropped]))
            sync_folder(self.folder)
            for name, body in bodies.items():
                is_sealed = isinstance(self.where.workspace, Within)
                write_file(self.folder, name, encode_body(body, sealed=is_sealed))
            sync_folder(self.folder)
        fields = msgspec.json.encode(head_file)[:-1]
        checksum = file_sum(self.where, HEAD, fields).encode()
        write_file(self.folder, HEAD, b'%s,"sum":"%s"}' % (fields, checksum))
        sync_folder(self.folder)
        for name in dropped:
            remove_file(self.folder, name)
        if bodies:
            remove_file(self.folder, BEGUN)
        if dropped:
            sync_folder(self.folder)
        self.head_file = head_file

    def _recover(self) -> None:
        """Remove what a write has left that was interrupted."""
        begun = _read_begun(self.folder)
        if not begun:
            return
        for name in begun - _counted(self.head_file):
            remove_file(self.folder, name)
        sync_folder(self.folder)
        remove_file(self.folder, BEGUN)

    def _load_head(self) -> HeadFile | None:
        """Read and check the head; None for a conversation that nobody began."""
        data = read_bytes(self.folder / HEAD)
        head_file = None
        if data is not None:
            head_file = _parse_head(data, self.where)
        self._check_nothing_uncounted(head_file)
        return head_file

    def _check_nothing_uncounted(self, head_file: HeadFile | None) -> None:
        """Raise if there are records that the head does not count: it is gone, or an old copy.

        Without this a long conversation would look new, and an append would go over it.
        """
        uncounted = list_record_files(self.folder) - _counted(head_file)
        if uncounted:
            uncounted -= _read_begun(self.folder)
        if not uncounted:
            return
        if head_file is None:
            raise _damaged(self.where, f"there are records and no {HEAD!r}")
        raise _damaged(self.where, f"{HEAD!r} is of an earlier time: it does not count {min(uncounted)!r}")

    def _read_record(self, seq: int, file: RecordFile) -> Record:
        """Read one record, and compare it with the digest in the head."""
        content = read_bytes(self.folder / file.name)
        if content is None:
            raise _damaged(self.where, f"{file.name!r} is gone")
        body = decode_body(content)
        if body_digest(body) != file.digest:
            raise _damaged(self.where, f"{file.name!r} is not what was written")
        return Record(seq=seq, body=body)


def find_intact_records(folder: Path, where: Where) -> list[Record]:
    """The records that are what was written; of a damaged head, all files that hold a record."""
    digests: dict[str, str] = {}
    with suppress(StoreError):
        head_file = _parse_head(read_bytes(folder / HEAD) or b"", where)
        digests = {file.name: file.digest for file in head_file.files}
    records: dict[int, Record] = {}
    for name in sorted(list_record_files(folder)):
        content = read_bytes(folder / name) or b""
        body = decode_body(content)
        # Without its digest a file that was not cut off, nor written by anybody else, is JSON.
        if digests.get(name, body_digest(body)) == body_digest(body) and is_json_object(content):
            seq = place_of(name)
            records[seq] = Record(seq=seq, body=body)
    return [records[seq] for seq in sorted(records)]


def _parse_head(data: bytes, where: Where) -> HeadFile:
    """A head, if it is of this conversation."""
    try:
        head_file = msgspec.json.decode(data, type=HeadFile)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise _damaged(where, f"{HEAD!r} cannot be read") from None
    if Where(head_file.workspace, head_file.conversation) != where:
        raise _damaged(where, "its folder is that of another conversation")
    match = _CHECKSUMMED.fullmatch(data)
    if match is None or file_sum(where, HEAD, match[1]) != match[2].decode():
        raise _damaged(where, f"{HEAD!r} is not what was written")
    return head_file


def _damaged(where: Where, problem: str) -> Damaged:
    hint = "restore this folder from a backup, hidden files included"
    return Damaged(problem, conversation=where.conversation, hint=hint)


def _counted(head_file: HeadFile | None) -> set[str]:
    if head_file is None:
        return set()
    return {file.name for file in head_file.files}


def _read_begun(folder: Path) -> set[str]:
    """The files that a write has begun to make or to remove; none if that was finished."""
    data = read_bytes(folder / BEGUN)
    if data is None:
        return set()
    try:
        names = msgspec.json.decode(data, type=set[str])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return set()  # so what it named counts as damage
    return {name for name in names if is_record_file(name)}
