"""What an index needs of the place that keeps its chunks: the port of SQLite's and PostgreSQL's tables.

A shelf is synchronous and is used by one thread at a time. It keeps chunks, finds words and compares
vectors; it does not fuse scores, makes no vectors and knows no question.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from lamina.context.search.chunks import Chunk
from lamina.context.search.words import folded


class ChunkRow(msgspec.Struct, frozen=True):
    """A chunk with its number in the index, its source and its place among the source's chunks."""

    id: int
    source: str
    nth: int
    chunk: Chunk


class Candidate(msgspec.Struct, frozen=True, array_like=True):
    """What ranking has to know of a chunk."""

    id: int
    speaker: str
    at: str
    sort: str


class Beside(msgspec.Struct, frozen=True, array_like=True):
    """A chunk near another one: how far from it, and how many characters long."""

    of: int
    away: int
    size: int
    one: Candidate


class ChunkChanges(msgspec.Struct, frozen=True):
    """What a source's chunks change in the index; `seen` are the numbers that it had when this was made."""

    gone: list[int]
    moved: list[tuple[int, int, str]]
    new: list[tuple[int, Chunk]]
    seen: list[int] | None = None


class ChunkTables(Protocol):
    """Chunks by their source, their words and their vectors. `sources` limits what is found to some."""

    @property
    def notes(self) -> tuple[str, ...]: ...

    def guarded(self) -> AbstractContextManager[None]:
        """Around every use: what the database raises becomes an error of lamina."""
        ...

    def planned(self, source: str, chunks: Sequence[Chunk], *, after: bool) -> ChunkChanges: ...

    def write(self, source: str, plan: ChunkChanges, vectors: Sequence[bytes | None]) -> bool:
        """Carries out a plan in one transaction; False if somebody else has changed the source since."""
        ...

    def remove(self, source: str) -> int: ...

    def sources(self) -> dict[str, int]: ...

    def speakers(self) -> list[str]: ...

    def rows(self, numbers: Sequence[int]) -> dict[int, ChunkRow]: ...

    def beside(self, row: ChunkRow, reach: int) -> list[ChunkRow]: ...

    def candidates(self, numbers: Collection[int]) -> list[Candidate]: ...

    def neighbours(self, numbers: Collection[int], reach: int) -> list[Beside]:
        """The chunks at most so far from these, of the same section."""
        ...

    def counts(self, words: Sequence[str], most: int) -> dict[str, int]:
        """How many chunks have each word, counted up to `most`."""
        ...

    def matches(
        self, words: Mapping[str, int], most: int, sources: Collection[str] | None
    ) -> list[tuple[int, float]]:
        """The chunks with any of the words by BM25, more is better; with each word its count."""
        ...

    def near(
        self, wanted: bytes, most: int, sources: Collection[str] | None, also: Collection[int]
    ) -> dict[int, float]:
        """The nearest chunks and those of `also`, from 0 (the farthest of all) to 1 (the nearest)."""
        ...

    def close(self) -> None: ...


def plan_of(there: Iterable[tuple[bytes, int, int, str]], chunks: Sequence[Chunk]) -> ChunkChanges:
    """What to change so that a source has these chunks; one that is already there keeps its number.

    `there` are the digest, number, `nth` and place of what it has, in order.
    """
    by_digest: dict[bytes, list[tuple[int, int, str]]] = {}
    seen: list[int] = []
    for digest, number, nth, place in there:
        by_digest.setdefault(bytes(digest), []).append((number, nth, place))
        seen.append(number)
    for same in by_digest.values():
        same.reverse()
    moved: list[tuple[int, int, str]] = []
    new: list[tuple[int, Chunk]] = []
    for nth, chunk in enumerate(chunks):
        same = by_digest.get(digest_of(chunk), [])
        if not same:
            new.append((nth, chunk))
            continue
        number, was, place = same.pop()
        if (was, place) != (nth, chunk.place):
            moved.append((number, nth, chunk.place))
    return ChunkChanges([number for rest in by_digest.values() for number, _, _ in rest], moved, new, seen)


def plan_after(last: int | None, chunks: Sequence[Chunk]) -> ChunkChanges:
    """Chunks behind the last one that a source has."""
    return ChunkChanges([], [], list(enumerate(chunks, start=0 if last is None else last + 1)))


def digest_of(chunk: Chunk) -> bytes:
    """Of everything but the place: a chunk that only moved is the same."""
    parts = (chunk.text, chunk.head, chunk.section, chunk.speaker, chunk.at, chunk.sort)
    return hashlib.sha256(msgspec.msgpack.encode(parts)).digest()[:16]


def searched(chunk: Chunk) -> str:
    """The words of a chunk, with those of what it stands under, identifiers in pieces."""
    return folded(f"{chunk.head}\n{chunk.text}" if chunk.head else chunk.text)


FIELDS = ("text", "place", "head", "section", "speaker", "at", "sort")
"""What is kept of a chunk, in the order of `values_of`."""


def values_of(chunk: Chunk) -> tuple[str, ...]:
    return chunk.text, chunk.place, chunk.head, chunk.section, chunk.speaker, chunk.at, chunk.sort


def row_of(number: int, source: str, nth: int, values: Sequence[str]) -> ChunkRow:
    return ChunkRow(number, source, nth, msgspec.convert(dict(zip(FIELDS, values, strict=True)), Chunk))
