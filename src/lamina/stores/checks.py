"""Checksums of what a store keeps: of each record, each head with its state, and each idempotency key.

They find damage: bytes that are not what was written, and rows that stand where they were not written, since
each sum is bound to the names of its conversation and to its place. They are no seal: whoever changes a byte
on purpose can make the sum fit. SHA-256, because PostgreSQL can compute it, too, for tables of an older
release; eight bytes of it, because damage does not aim.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from lamina.errors import Damaged
from lamina.stores.port import Record, Where

SUM = 8
"""Bytes of a sum."""


class Sums:
    """The sums of one conversation. A field whose length can change stands behind its length, or last."""

    __slots__ = ("_names",)

    def __init__(self, where: Where) -> None:
        self._names = framed(where.workspace.encode(), where.conversation.encode())

    def record(self, seq: int, body: bytes) -> bytes:
        return _sum(b"lamina/record/1" + self._names + seq.to_bytes(8) + body)

    def state(self, state: bytes) -> bytes:
        return _sum(b"lamina/state/1" + self._names + state)

    def head(self, count: int, state_sum: bytes, *more: bytes) -> bytes:
        """Of everything about a conversation that is not in its records. `more` is what one store adds."""
        return _sum(b"lamina/head/1" + self._names + count.to_bytes(8) + framed(state_sum, *more))

    def once(self, key: bytes, digest: bytes, count: int) -> bytes:
        return _sum(b"lamina/once/1" + self._names + framed(key, digest) + count.to_bytes(8))


def file_sum(where: Where, name: str, content: bytes) -> bytes:
    """Of a file that a store keeps beside the records of a conversation."""
    names = (where.workspace.encode(), where.conversation.encode(), name.encode())
    return _sum(b"lamina/file/1" + framed(*names) + content)


def framed(*fields: bytes) -> bytes:
    """Fields as bytes that only these fields give: each behind its length."""
    return b"".join(len(field).to_bytes(8) + field for field in fields)


def _sum(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:SUM]


Found = tuple[object, object, object]
"""A row of a damaged table can hold anything: place, body and sum, as they were read."""


def is_whole(sums: Sums, found: Found) -> bool:
    """Whether a row is a record as it was written."""
    seq, body, kept_sum = found
    if not isinstance(seq, int) or not isinstance(body, bytes) or seq < 0:
        return False
    return sums.record(seq, body) == kept_sum


def first_problem(meant: Sequence[int], found: Iterable[Found], sums: Sums | None) -> str:
    """What is wrong with rows that should be the records at these places; empty if nothing is.

    Without `sums`, as in a store of an older release, only the places and the types can be looked at.
    """
    rows = list(found)
    places = [row[0] for row in rows]
    for number, place in enumerate(meant):
        if number >= len(places) or places[number] != place:
            return f"record {place} is gone"
        if not isinstance(rows[number][1], bytes):
            return f"record {place} is not what was written"
        if sums is not None and not is_whole(sums, rows[number]):
            return f"record {place} is not what was written"
    if len(rows) > len(meant):
        return f"record {places[len(meant)]!r} was never written there"
    return ""


def records_of(
    where: Where, meant: Sequence[int], found: Sequence[Found], sums: Sums | None
) -> tuple[Record, ...]:
    """The records at the places that were asked for; Damaged if one is not what was written there."""
    problem = first_problem(meant, found, sums)
    if problem:
        raise Damaged(problem, conversation=where.conversation)
    return tuple(Record(seq=seq, body=body) for seq, body, _ in found)  # type: ignore[arg-type]
