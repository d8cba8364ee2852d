"""What the tables of an index store of a chunk, and what a source's new chunks change in them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from lamina.context.search.chunks import Chunk
from lamina.context.search.words import fold_text


class ChunkRow(msgspec.Struct, frozen=True):
    """A chunk with its number in the index, its source and its place among the source's chunks."""

    id: int
    source: str
    nth: int
    chunk: Chunk


class Candidate(msgspec.Struct, frozen=True, array_like=True):
    """What ranking has to know about a chunk."""

    id: int
    speaker: str
    at: str
    sort: str


class Neighbour(msgspec.Struct, frozen=True, array_like=True):
    """A chunk near the chunk `of`: how far `away` it is, its size in characters, and the chunk itself."""

    of: int
    away: int
    size: int
    one: Candidate


class ChunkChanges(msgspec.Struct, frozen=True):
    """What a source's chunks change in the index."""

    gone: list[int]
    moved: list[tuple[int, int, str]]
    new: list[tuple[int, Chunk]]


def plan_replacement(stored: Iterable[tuple[bytes, int, int, str]], chunks: Sequence[Chunk]) -> ChunkChanges:
    """What to change so that a source has these chunks. A chunk that is already stored keeps its number.

    `stored` are the digest, number, `nth` and place of what the source has, in order.
    """
    by_digest: dict[bytes, list[tuple[int, int, str]]] = {}
    for digest, number, nth, place in stored:
        by_digest.setdefault(bytes(digest), []).append((number, nth, place))
    for equal_chunks in by_digest.values():
        equal_chunks.reverse()  # so that `pop` takes the first
    moved: list[tuple[int, int, str]] = []
    new: list[tuple[int, Chunk]] = []
    for nth, chunk in enumerate(chunks):
        equal_chunks = by_digest.get(digest_of(chunk), [])
        if not equal_chunks:
            new.append((nth, chunk))
            continue
        number, old_nth, old_place = equal_chunks.pop()
        if (old_nth, old_place) != (nth, chunk.place):
            moved.append((number, nth, chunk.place))
    gone: list[int] = []
    for equal_chunks in by_digest.values():  # those that are left
        gone += [number for number, _, _ in equal_chunks]
    return ChunkChanges(gone, moved, new)


def plan_addition(last: int | None, chunks: Sequence[Chunk]) -> ChunkChanges:
    """Add chunks after the last one that a source has."""
    first = 0
    if last is not None:
        first = last + 1
    return ChunkChanges([], [], list(enumerate(chunks, start=first)))


def digest_of(chunk: Chunk) -> bytes:
    """The digest of everything but the place: a chunk that only moved is the same chunk."""
    parts = (chunk.text, chunk.head, chunk.section, chunk.speaker, chunk.at, chunk.sort)
    return hashlib.sha256(msgspec.msgpack.encode(parts)).digest()[:16]


def index_text(chunk: Chunk) -> str:
    """The words of a chunk and of its head, identifiers in pieces."""
    if chunk.head:
        return fold_text(f"{chunk.head}\n{chunk.text}")
    return fold_text(chunk.text)


FIELDS = ("text", "place", "head", "section", "speaker", "at", "sort")
"""The fields of a chunk that are stored, in the order of `chunk_values`."""


def chunk_values(chunk: Chunk) -> tuple[str, ...]:
    """What is stored of a chunk, in the order of `FIELDS`."""
    return chunk.text, chunk.place, chunk.head, chunk.section, chunk.speaker, chunk.at, chunk.sort


def make_row(number: int, source: str, nth: int, values: Sequence[str]) -> ChunkRow:
    """A chunk as it was stored. Raises msgspec.ValidationError if somebody else wrote the values."""
    fields = dict(zip(FIELDS, values, strict=True))
    return ChunkRow(number, source, nth, msgspec.convert(fields, Chunk))
