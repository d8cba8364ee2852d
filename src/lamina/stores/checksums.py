"""Checksums of what a store holds: of each record, each head with its state, and each idempotency key.

They find damage: bytes that are not what was written, and rows in another place than the one they were
written to, since each checksum depends on the names of its conversation and on its place. They do not protect
against an attacker, who can change the checksum too. They are CRC-32, because every record that is read is
checked: SHA-256 made a read of the last fifty records three times as slow, and damage does not aim.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from lamina.errors import Damaged
from lamina.stores.port import Record, Where


class Checksums:
    """The checksums of one conversation. A field of variable length comes after its length, or last.

    The checksum of a record starts from its place, so the same body in two places always has two checksums.
    """

    __slots__ = ("_head", "_once", "_record", "_state")

    def __init__(self, where: Where) -> None:
        names = frame_fields(where.workspace.encode(), where.conversation.encode())
        self._record = zlib.crc32(b"lamina/record/1" + names)
        self._state = zlib.crc32(b"lamina/state/1" + names)
        self._head = zlib.crc32(b"lamina/head/1" + names)
        self._once = zlib.crc32(b"lamina/once/1" + names)

    def record(self, seq: int, body: bytes) -> int:
        return zlib.crc32(body, (self._record + seq) & 0xFFFF_FFFF)

    def state(self, state: bytes) -> int:
        return zlib.crc32(state, self._state)

    def head(self, count: int, state_sum: int) -> int:
        """The checksum of everything but the records."""
        return zlib.crc32(count.to_bytes(8) + state_sum.to_bytes(8), self._head)

    def once(self, key: bytes, digest: bytes, count: int) -> int:
        return zlib.crc32(frame_fields(key, digest) + count.to_bytes(8), self._once)


def file_sum(where: Where, name: str, content: bytes) -> str:
    """The checksum of a file that belongs to a conversation and is not a record: eight hex digits."""
    names = frame_fields(where.workspace.encode(), where.conversation.encode(), name.encode())
    start = zlib.crc32(b"lamina/file/1" + names)
    return f"{zlib.crc32(content, start):08x}"


def frame_fields(*fields: bytes) -> bytes:
    """Join fields, each after its length, so that no other fields give the same bytes."""
    return b"".join(len(field).to_bytes(8) + field for field in fields)


class HeadRow(msgspec.Struct, frozen=True):
    """The row of a conversation as it was read. In a damaged table it can hold anything.

    `has_uncounted`: there are records that it does not count. Then it is an old row, or one is not ours.
    """

    count: Any
    state: Any
    state_sum: Any
    sum: Any
    has_uncounted: bool = False


HEADLESS = "its head is gone, and its records are there"
UNCOUNTED = "there are more records than its head says"
WRONG_COUNT = "its number of records is not what was written"


def find_head_problem(where: Where, row: HeadRow) -> str:
    """What is not as it was written in the row of a conversation; "" if all of it is."""
    checksums = Checksums(where)
    if not is_head_intact(checksums, row.count, row.state_sum, row.sum):
        return WRONG_COUNT
    if not isinstance(row.state, bytes) or checksums.state(row.state) != row.state_sum:
        return "its state is not what was written"
    if row.has_uncounted:
        return UNCOUNTED
    return ""


def is_head_intact(checksums: Checksums, count: Any, state_sum: Any, checksum: Any) -> bool:
    """Whether a row has the checksum of what is in it. A negative number was never written."""
    if not isinstance(count, int) or not isinstance(state_sum, int) or count < 0 or state_sum < 0:
        return False
    return bool(checksums.head(count, state_sum) == checksum)


StoredRow = tuple[object, object, object]
"""Place, body and checksum of a record as they were read. In a damaged table they can be anything."""


def intact_records(where: Where, rows: Iterable[StoredRow]) -> list[Record]:
    """Those of the rows that are records as they were written."""
    checksums = Checksums(where)
    records: list[Record] = []
    for seq, body, checksum in rows:
        if not isinstance(seq, int) or not isinstance(body, bytes) or seq < 0:
            continue
        if checksums.record(seq, body) == checksum:
            records.append(Record(seq=seq, body=body))
    return records


def check_records(where: Where, places: Sequence[int], rows: Sequence[StoredRow]) -> tuple[Record, ...]:
    """The records at these places; raises Damaged if one is not what was written there."""
    checksums = Checksums(where)
    records: list[Record] = []
    # There may be fewer rows than places, or one more. After the loop it says which.
    for place, (seq, body, checksum) in zip(places, rows, strict=False):
        if seq != place:
            raise _damaged(where, f"record {place} is gone")
        if not isinstance(body, bytes):
            raise _damaged(where, f"record {place} is not what was written")
        if checksums.record(place, body) != checksum:
            raise _damaged(where, f"record {place} is not what was written")
        records.append(Record(seq=place, body=body))
    if len(rows) < len(places):
        raise _damaged(where, f"record {places[len(rows)]} is gone")
    if len(rows) > len(places):
        raise _damaged(where, UNCOUNTED)
    return tuple(records)


def _damaged(where: Where, problem: str) -> Damaged:
    return Damaged(problem, conversation=where.conversation)
