"""The folder of one conversation, as it is read.

    .head          how many groups and records there are, and the state
    .g00000007     one group: where it begins, the names and digests of its records
    .o3f9a...      one idempotency key: its digest and the count that it was answered with
    ..._user.json  the records

What the head does not count is not there. Each hidden file ends in a checksum, which is bound to its name and
its conversation; the sums of the records stand in their group. Conversations of an older release have none:
they are read as they are, and get them before the first write. Everything here is called under the lock of
the conversation, and nothing here writes: `write` does.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from lamina.errors import Damaged, StoreError
from lamina.stores.checksums import file_sum
from lamina.stores.files.sheet import body_of, digest, is_sheet
from lamina.stores.memory import check_digest
from lamina.stores.port import Once, Record, StoredHead, Where

VERSION = 2
FIRST_VERSION = 1
"""Without checksums."""

HEAD = ".head"
ANEW = ".new"
"""Ends the name of a file that a replacement has written and not yet moved over."""

T = TypeVar("T")

_SUMMED = re.compile(rb'(\{.*),"sum":"([0-9a-f]{8})"\}', re.DOTALL)
"""A hidden file: JSON whose last field is the checksum of all before it."""


class Sheet(msgspec.Struct, frozen=True, array_like=True):
    """One record of a group: the name of its file, and the digest of its body."""

    name: str
    digest: str

    def __post_init__(self) -> None:
        _check_inside((self.name,))


class AppendedGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one append has added. `once` is its idempotency key."""

    first: int
    sheets: tuple[Sheet, ...] = ()
    once: str | None = None


class IdempotencyEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An idempotency key, and the count of the first time. It counts if that group was committed."""

    digest: bytes
    group: int
    count: int


class HeadFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `.head` says.

    `moves` and `drops` are files of a replacement that has happened and may not have been moved over yet.
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
        _check_inside(self.moves + self.drops)

    @property
    def head(self) -> StoredHead:
        return StoredHead(count=self.count, state=self.state)


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """The files that a replacement is about to write."""

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_inside(self.names)


class ConversationFolder:
    """One conversation. `kept` is what its head said when this was made; None if there is none.

    `headless` leaves a head that may be damaged alone.
    """

    def __init__(self, folder: Path, where: Where, *, headless: bool = False) -> None:
        self.folder = folder
        self.where = where
        self.hold(None)
        if not headless:
            self.hold(self._found())

    def hold(self, kept: HeadFile | None) -> None:
        """Reads from now on what this head counts."""
        self.kept = kept
        self._moved = frozenset(kept.moves if kept else ())
        self._groups: dict[int, AppendedGroup] = {}

    @property
    def head(self) -> StoredHead:
        return self.kept.head if self.kept else StoredHead()

    def records(self, places: Sequence[int]) -> tuple[Record, ...]:
        return tuple(Record(seq=seq, body=self._body(seq)) for seq in places)

    def answered(self, once: Once) -> StoredHead | None:
        """What this key is answered with if it comes again."""
        earlier = self.load(once_name(once.key), IdempotencyEntry)
        if self.kept is None or earlier is None or earlier.group >= self.kept.groups:
            return None
        if self.group(earlier.group).once != once.key:
            return None
        check_digest(self.where, once, earlier.digest)
        return StoredHead(count=earlier.count, state=self.kept.state)

    def number(self, seq: int) -> int:
        """The group that holds this record."""
        groups = range(self.kept.groups if self.kept else 0)
        number = bisect_right(groups, seq, key=lambda each: self.group(each).first) - 1
        if number < 0 or seq >= self.group(number).first + len(self.group(number).sheets):
            raise self._damaged(f"no group names record {seq}")
        return number

    def group(self, number: int) -> AppendedGroup:
        if number not in self._groups:
            group = self.load(group_name(number), AppendedGroup)
            if group is None:
                raise self._damaged(f"group {number} is gone")
            self._groups[number] = group
        return self._groups[number]

    def load(self, name: str, of: type[T]) -> T | None:
        data = self._content(name)
        if data is None:
            return None
        return self._decoded(self._checked(data, name), of, name)

    def summed(self, name: str, value: msgspec.Struct) -> bytes:
        """A hidden file with its checksum."""
        body = msgspec.json.encode(value)[:-1]
        return b'%s,"sum":"%s"}' % (body, file_sum(self.where, name, body).encode())

    def whole_records(self) -> list[Record]:
        """What can still be read, group by group, as far as there are groups."""
        found: list[Record] = []
        number = 0
        while (self.folder / group_name(number)).exists():
            with suppress(Damaged):
                found += self._whole_records_of(self.group(number))
            number += 1
        return found

    def _whole_records_of(self, group: AppendedGroup) -> Iterator[Record]:
        for seq, sheet in enumerate(group.sheets, group.first):
            content = _bytes_of(self.folder / sheet.name)
            if content is not None and digest(body_of(content)) == sheet.digest:
                yield Record(seq=seq, body=body_of(content))

    def _found(self) -> HeadFile | None:
        data = self._content(HEAD)
        if data is None:
            self._check_nothing_lost()
            return None
        version = self._decoded(data, dict[str, msgspec.Raw], HEAD).get("v")
        if version is None:
            raise self._damaged(f"{HEAD!r} cannot be read")
        if bytes(version) not in (b"%d" % FIRST_VERSION, b"%d" % VERSION):
            hint = f"this release reads version {VERSION}; a newer one wrote it"
            raise StoreError("its version is another", conversation=self.where.conversation, hint=hint)
        kept = self._decoded(data, HeadFile, HEAD)
        if Where(kept.workspace, kept.conversation) != self.where:
            raise self._damaged("its folder is that of another conversation")
        self._checked(data, HEAD)
        if kept.v != FIRST_VERSION and not _SUMMED.fullmatch(data):
            raise self._damaged(f"{HEAD!r} has lost its checksum")
        self._check_newest(kept)
        return kept

    def _check_newest(self, kept: HeadFile) -> None:
        """A head of an earlier time has groups behind it. One alone is an append that was cut short."""
        second_behind = group_name(kept.groups + 1)
        if (self.folder / second_behind).exists():
            raise self._damaged(f"{HEAD!r} is of an earlier time: it does not count {second_behind!r}")

    def _checked(self, data: bytes, name: str) -> bytes:
        """A hidden file whose checksum holds. Only those of an older release have none."""
        parts = _SUMMED.fullmatch(data)
        if parts is not None:
            body, sum_ = parts[1], parts[2].decode()
            if file_sum(self.where, name, body) != sum_:
                raise self._damaged(f"{name!r} is not what was written")
            return data
        if self.kept is not None and self.kept.v != FIRST_VERSION:
            raise self._damaged(f"{name!r} has lost its checksum")
        return data

    def _check_nothing_lost(self) -> None:
        """Records without a head are not an empty conversation, unless its first append was cut short."""
        if not self.folder.is_dir():
            return
        there = {path.name for path in self.folder.iterdir() if is_sheet(path.name)}
        if not there:
            return
        begun = self.load(group_name(0), AppendedGroup)
        if there - {sheet.name for sheet in (begun.sheets if begun else ())}:
            raise self._damaged(f"there are records and no {HEAD!r}")

    def _body(self, seq: int) -> bytes:
        group = self.group(self.number(seq))
        sheet = group.sheets[seq - group.first]
        content = self._content(sheet.name)
        if content is None:
            raise self._damaged(f"{sheet.name!r} is gone")
        body = body_of(content)
        if digest(body) != sheet.digest:
            raise self._damaged(f"{sheet.name!r} is not what was written")
        return body

    def _content(self, name: str) -> bytes | None:
        anew = _bytes_of(self.folder / f"{name}{ANEW}") if name in self._moved else None
        return _bytes_of(self.folder / name) if anew is None else anew

    def _decoded(self, data: bytes, of: type[T], name: str) -> T:
        try:
            return msgspec.json.decode(data, type=of)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise self._damaged(f"{name!r} cannot be read") from None

    def _damaged(self, problem: str) -> Damaged:
        hint = "restore this folder from a backup, hidden files included"
        return Damaged(problem, conversation=self.where.conversation, hint=hint)


def group_name(number: int) -> str:
    return f".g{number:08d}"


def once_name(key: str) -> str:
    return f".o{hashlib.sha256(key.encode()).hexdigest()[:40]}"


def _check_inside(names: Sequence[str]) -> None:
    """What a file tells to read, move or remove can only be a file of this folder."""
    for name in names:
        if not is_sheet(name) and not re.fullmatch(r"\.g[0-9]{8,}|\.o[0-9a-f]{40}", name):
            raise ValueError("it names something else than a record, a group or a key")


def _bytes_of(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
