"""The index: what can be searched, in memory or in a file of its own; add and ask in one process.

    async with open_index("search.db") as index:
        await index.replace("docs/spec.md", chunks_of("docs/spec.md", text))
        hits = await index.query("how many retries?")

One index belongs to one workspace: who may ask it may see everything in it. What stands in it can be made
again from its sources, so nothing of it is a record. All its work is done in a worker thread, one call at a
time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from os import PathLike, fspath
from typing import TypeVar

import anyio
import msgspec
from anyio.to_thread import run_sync

from lamina.errors import BadInput
from lamina.sources.search import mentions, ranking, schema
from lamina.sources.search.chunks import Chunk
from lamina.sources.search.vectors import Vectors, packed

Embedder = Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]]
"""Texts to vectors, one for each, all of one length."""

T = TypeVar("T")


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk that was found: `score` ranks it, `words` and `vectors` say why, each from 0 to 1."""

    id: int
    source: str
    nth: int
    chunk: Chunk
    score: float
    words: float = 0.0
    vectors: float = 0.0


class Index:
    """Chunks by their source. Made by `open_index`."""

    def __init__(self, link: sqlite3.Connection, embedder: Embedder | None) -> None:
        self._link, self._embedder = link, embedder
        self._vectors: Vectors | None = None
        self._lock = anyio.Lock()

    async def replace(self, source: str, chunks: Sequence[Chunk]) -> int:
        """Makes these the chunks of a source, and says how many are new; what has not changed is kept."""
        return await self._put(source, chunks, after=False)

    async def add(self, source: str, chunks: Sequence[Chunk]) -> int:
        """Adds chunks after those that a source has."""
        return await self._put(source, chunks, after=True)

    async def remove(self, source: str) -> int:
        """Forgets a source, and says how many chunks it had."""
        async with self._lock:
            return await self._threaded(lambda: self._remove(source))

    async def query(
        self, text: str, *, most: int = 10, sources: Collection[str] | None = None
    ) -> tuple[Hit, ...]:
        """The chunks that answer a text best, best first; of all sources, or only of these."""
        wanted = None
        if self._embedder is not None and text.strip():
            (wanted,) = packed(await _embedded(self._embedder, [text]))
        async with self._lock:
            return await self._threaded(lambda: self._query(text, wanted, most, sources))

    async def beside(self, hit: Hit, reach: int = 1) -> tuple[Hit, ...]:
        """A hit with its neighbours, at most so far from it, in their order."""
        row = schema.Row(hit.id, hit.source, hit.nth, hit.chunk)
        async with self._lock:
            rows = await self._threaded(lambda: schema.beside(self._link, row, reach))
        return tuple(_hit(one, ranking.Scored(id=one.id, score=hit.score)) for one in rows)

    async def sources(self) -> dict[str, int]:
        """Every source, and how many chunks it has."""
        query = "SELECT source, count(*) FROM chunks GROUP BY source ORDER BY source"
        async with self._lock:
            return await self._threaded(lambda: dict(self._link.execute(query).fetchall()))

    async def _put(self, source: str, chunks: Sequence[Chunk], *, after: bool) -> int:
        async with self._lock:
            plan = await self._threaded(lambda: schema.planned(self._link, source, chunks, after=after))
            blobs: Sequence[bytes | None] = [None] * len(plan.new)
            if self._embedder is not None and plan.new:
                blobs = packed(await _embedded(self._embedder, [embeddable(one) for _, one in plan.new]))
            await self._threaded(lambda: self._write(source, plan, blobs))
        return len(plan.new)

    def _write(self, source: str, plan: schema.Plan, blobs: Sequence[bytes | None]) -> None:
        vectors = self._loaded()
        made = schema.write(self._link, source, plan, blobs)
        if vectors is not None:
            vectors.drop(plan.gone)
            vectors.add(made, [blob for blob in blobs if blob is not None])

    def _remove(self, source: str) -> int:
        gone = schema.numbers_of(self._link, source)
        self._write(source, schema.Plan(gone, [], []), [])
        return len(gone)

    def _query(
        self, text: str, wanted: bytes | None, most: int, sources: Collection[str] | None
    ) -> tuple[Hit, ...]:
        people = mentions.named(text, ranking.speakers(self._link))
        only = None if sources is None else msgspec.json.encode(sorted(sources)).decode()
        words = ranking.by_words(self._link, text, without=people, sources=only)
        vectors = self._loaded()
        near = None
        if vectors is not None and wanted is not None:
            among = (
                None if sources is None else [n for it in sources for n in schema.numbers_of(self._link, it)]
            )
            near = vectors.near(wanted, ranking.DEPTH, among, also=words)
        scored = ranking.ranked(self._link, text, words, near)[: max(most, 0)]
        rows = schema.rows_of(self._link, [one.id for one in scored])
        return tuple(_hit(rows[one.id], one) for one in scored)

    def _loaded(self) -> Vectors | None:
        """The vectors, read from the database the first time; None without an embedder."""
        if self._embedder is None or self._vectors is not None:
            return self._vectors
        vectors = Vectors()
        rows = self._link.execute("SELECT id, vector FROM chunks WHERE vector IS NOT NULL").fetchall()
        vectors.add([number for number, _ in rows], [blob for _, blob in rows])
        self._vectors = vectors
        return vectors

    async def _threaded(self, work: Callable[[], T]) -> T:
        try:
            return await run_sync(work)
        except sqlite3.Error as error:
            hint = "an index can be made again: remove its file"
            raise BadInput(str(error), place="index", hint=hint) from error


@asynccontextmanager
async def open_index(
    path: str | PathLike[str] | None = None, *, embedder: Embedder | None = None
) -> AsyncIterator[Index]:
    """An index in the file at `path`, or in memory; with an embedder it compares meaning besides words."""
    where = ":memory:" if path is None else fspath(path)
    link = await run_sync(schema.connect, where)
    try:
        yield Index(link, embedder)
    finally:
        with anyio.CancelScope(shield=True):
            await run_sync(link.close)


def embeddable(chunk: Chunk) -> str:
    """What of a chunk is embedded: who says it or what it stands under, and its text."""
    if chunk.speaker and chunk.speaker not in mentions.ROLES:
        return f"{chunk.speaker}: {chunk.text}"
    return f"{chunk.head}\n{chunk.text}" if chunk.head else chunk.text


async def _embedded(embedder: Embedder, texts: Sequence[str]) -> Sequence[Sequence[float]]:
    made = await embedder(texts)
    if len(made) != len(texts):
        problem = f"{len(made)} vectors for {len(texts)} texts"
        raise BadInput(problem, place="embedder", hint="it must give one vector for each text, in order")
    return made


def _hit(row: schema.Row, scored: ranking.Scored) -> Hit:
    return Hit(
        id=row.id, source=row.source, nth=row.nth, chunk=row.chunk, score=scored.score, words=scored.words,
        vectors=scored.vectors,
    )  # fmt: skip
