"""Checksums of what a store keeps: of each record, each head with its state, and each idempotency key.

They find damage: bytes that are not what was written, and rows that stand where they were not written, since
each sum is bound to the names of its conversation and to its place. They are no seal: whoever changes a byte
on purpose can make the sum fit. CRC-32, since every record that is read is summed: SHA-256 made a read of the
last fifty records three times as slow, and damage does not aim.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from lamina.errors import Damaged
from lamina.stores.port import Record, Where


class Sums:
    """The sums of one conversation. A field whose length can change stands behind its length, or last.

    The place of a record is what its sum starts from: the same body in two places has two sums, always.
    """

    __slots__ = ("_head", "_once", "_record", "_state")

    def __init__(self, where: Where) -> None:
        names = framed(where.workspace.encode(), where.conversation.encode())
        self._record = zlib.crc32(b"lamina/record/1" + names)
        self._state = zlib.crc32(b"lamina/state/1" + names)
        self._head = zlib.crc32(b"lamina/head/1" + names)
        self._once = zlib.crc32(b"lamina/once/1" + names)

    def record(self, seq: int, body: bytes) -> int:
        return zlib.crc32(body, (self._record + seq) & 0xFFFF_FFFF)

    def state(self, state: bytes) -> int:
        return zlib.crc32(state, self._state)

    def head(self, count: int, state_sum: int, *more: bytes) -> int:
        """Of everything about a conversation that is not in its records. `more` is what one store adds."""
        return zlib.crc32(count.to_bytes(8) + state_sum.to_bytes(8) + framed(*more), self._head)

    def once(self, key: bytes, digest: bytes, count: int) -> int:
        return zlib.crc32(framed(key, digest) + count.to_bytes(8), self._once)


def file_sum(where: Where, name: str, content: bytes) -> str:
    """Of a file that a store keeps beside the records of a conversation: eight hex digits."""
    names = (where.workspace.encode(), where.conversation.encode(), name.encode())
    return f"{zlib.crc32(content, zlib.crc32(b'lamina/file/1' + framed(*names))):08x}"


def framed(*fields: bytes) -> bytes:
    """Fields as bytes that only these fields give: each behind its length."""
    return b"".join(len(field).to_bytes(8) + field for field in fields)


Found = tuple[object, object, object]
"""A row of a damaged table can hold anything: place, body and sum, as they were read."""


def is_whole(sums: Sums, found: Found) -> bool:
    """Whether a row is a record as it was written."""
    seq, body, kept_sum = found
    if not isinstance(seq, int) or not isinstance(body, bytes) or seq < 0:
        return False
    return sums.record(seq, body) == kept_sum


def records_of(
    where: Where, meant: Sequence[int], found: Sequence[Found], sums: Sums | None
) -> tuple[Record, ...]:
    """The records at the places that were asked for; Damaged if one is not what was written there.

    Without `sums`, as in a store of an older release, only the places and the types can be looked at.
    """
    records: list[Record] = []
    for place, (seq, body, kept_sum) in zip(meant, found, strict=False):
        if seq != place:
            raise _damaged(where, f"record {place} is gone")
        if not isinstance(body, bytes) or (sums is not None and sums.record(place, body) != kept_sum):
            raise _damaged(where, f"record {place} is not what was written")
        records.append(Record(seq=place, body=body))
    if len(found) < len(meant):
        raise _damaged(where, f"record {meant[len(found)]} is gone")
    if len(found) > len(meant):
        raise _damaged(where, "there are more records than its head says")
    return tuple(records)


def _damaged(where: Where, problem: str) -> Damaged:
    return Damaged(problem, conversation=where.conversation)
