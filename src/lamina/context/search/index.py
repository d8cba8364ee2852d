"""The index: what can be searched, in memory or in a file of its own.

    async with open_index("search.db") as index:
        await index.replace("docs/spec.md", chunks_of("docs/spec.md", text))
        hits = await index.query("how many retries?")

One index belongs to one workspace: whoever may query it may see everything in it. It can be made again from
its sources, so nothing in it is a record. It runs in a worker thread, one call at a time. `ChunkTables` store
the chunks: in a file here, or in PostgreSQL (`postgres`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from os import PathLike, fspath
from typing import TypeVar

import anyio
import msgspec
from anyio.to_thread import run_sync

from lamina.context.search import mentions, ranking
from lamina.context.search.chunk_tables import ChunkChanges, ChunkRow, ChunkTables
from lamina.context.search.chunks import Chunk
from lamina.context.search.sqlite import MEMORY, SqliteChunkTables
from lamina.context.search.vectors import pack_vectors
from lamina.core.text.characters import is_blank
from lamina.errors import BadInput, StoreError

Embedder = Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]]
"""Texts to vectors, one for each, all of one length."""

TRIES = 5
"""How often a source is planned again, if another process changes it in between."""

T = TypeVar("T")


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk that answers a query. `score` ranks it; `words` and `vectors` say why, each from 0 to 1."""

    id: int
    source: str
    nth: int
    chunk: Chunk
    score: float
    words: float = 0.0
    vectors: float = 0.0


class Index:
    """Chunks by their source. Opened by `open_index` or `open_postgres_index`."""

    def __init__(self, shelf: ChunkTables, embedder: Embedder | None) -> None:
        self._shelf = shelf
        self._embedder = embedder
        self._lock = anyio.Lock()

    @property
    def notes(self) -> tuple[str, ...]:
        """What this index does without, and why; empty if nothing."""
        return self._shelf.notes

    async def replace(self, source: str, chunks: Sequence[Chunk]) -> int:
        """Make these the chunks of a source, and say how many are new. Unchanged chunks stay."""
        return await self._put(source, chunks, after=False)

    async def add(self, source: str, chunks: Sequence[Chunk]) -> int:
        """Add chunks after those that a source has."""
        return await self._put(source, chunks, after=True)

    async def remove(self, source: str) -> int:
        """Remove a source, and say how many chunks it had."""
        async with self._lock:
            return await self._threaded(lambda: self._shelf.remove(source))

    async def query(
        self, text: str, *, most: int = 10, sources: Collection[str] | None = None
    ) -> tuple[Hit, ...]:
        """The chunks that answer a text best, best first, of all sources or only of these."""
        vector = None
        if self._embedder is not None and not is_blank(text):
            (vector,) = pack_vectors(await _embed(self._embedder, [text]))
        async with self._lock:
            return await self._threaded(lambda: self._query(text, vector, most, sources))

    async def beside(self, hit: Hit, reach: int = 1) -> tuple[Hit, ...]:
        """A hit with its neighbours, at most `reach` away from it, in their order."""
        row = ChunkRow(hit.id, hit.source, hit.nth, hit.chunk)
        async with self._lock:
            rows = await self._threaded(lambda: self._shelf.beside(row, reach))
        return tuple(_make_hit(one, ranking.Scored(id=one.id, score=hit.score)) for one in rows)

    async def sources(self) -> dict[str, int]:
        """Every source, and how many chunks it has."""
        async with self._lock:
            return await self._threaded(self._shelf.sources)

    async def _put(self, source: str, chunks: Sequence[Chunk], *, after: bool) -> int:
        """Write chunks of a source. If another process was first, it plans again."""
        vectors_by_text: dict[str, bytes] = {}
        async with self._lock:
            for _ in range(TRIES):
                plan = await self._threaded(lambda: self._shelf.planned(source, chunks, after=after))
                vectors = await self._blobs(plan, vectors_by_text)
                if await self._threaded(partial(self._shelf.write, source, plan, vectors)):
                    return len(plan.new)
        raise source_is_busy(source)

    async def _blobs(self, plan: ChunkChanges, vectors_by_text: dict[str, bytes]) -> Sequence[bytes | None]:
        """The vectors of new chunks. `vectors_by_text` remembers them, in case the plan is made again."""
        if self._embedder is None:
            return [None] * len(plan.new)
        texts = [text_to_embed(chunk) for _, chunk in plan.new]
        missing = [text for text in dict.fromkeys(texts) if text not in vectors_by_text]
        if missing:  # an embedder may cost money, or refuse a request without a text
            vectors = pack_vectors(await _embed(self._embedder, missing))
            vectors_by_text.update(zip(missing, vectors, strict=True))
        return [vectors_by_text[text] for text in texts]

    def _query(
        self, text: str, vector: bytes | None, most: int, sources: Collection[str] | None
    ) -> tuple[Hit, ...]:
        """Score words and vectors, and fetch the chunks that rank best."""
        people = mentions.find_speakers(text, self._shelf.speakers())
        words = ranking.score_words(self._shelf, text, without=people, sources=sources)
        near = None
        if vector is not None:
            near = self._shelf.near(vector, ranking.DEPTH, sources, words)
        ranked = ranking.rank_chunks(self._shelf, text, words, near, people=people, most=max(most, 0))
        rows = self._shelf.rows([scored.id for scored in ranked])
        return tuple(_make_hit(rows[scored.id], scored) for scored in ranked if scored.id in rows)

    async def _threaded(self, use_tables: Callable[[], T]) -> T:
        """Run a call of the tables in a worker thread."""

        def use_guarded() -> T:
            with self._shelf.guarded():
                return use_tables()

        return await run_sync(use_guarded)


@asynccontextmanager
async def open_index(
    path: str | PathLike[str] | None = None, *, embedder: Embedder | None = None
) -> AsyncIterator[Index]:
    """An index in the file at `path`, or in memory. With an embedder it compares meaning besides words."""
    file = MEMORY if path is None else fspath(path)
    async with open_with_tables(partial(SqliteChunkTables, file), embedder) as index:
        yield index


@asynccontextmanager
async def open_with_tables(
    open_tables: Callable[[], ChunkTables], embedder: Embedder | None
) -> AsyncIterator[Index]:
    """An index over the tables that `open_tables` returns. They are closed at the end."""
    tables = await run_sync(open_tables)
    try:
        yield Index(tables, embedder)
    finally:
        with anyio.CancelScope(shield=True):
            await run_sync(tables.close)


def source_is_busy(source: str) -> StoreError:
    """The error for a source that others changed each time that it was to be written."""
    problem = f"others keep changing {source!r}"
    return StoreError(problem, hint="nothing was written; try again, or let one process index a source")


def text_to_embed(chunk: Chunk) -> str:
    """The text of a chunk that is embedded: who says it or its head, and its text."""
    if chunk.speaker and chunk.speaker not in mentions.ROLES:
        return f"{chunk.speaker}: {chunk.text}"
    if chunk.head:
        return f"{chunk.head}\n{chunk.text}"
    return chunk.text


async def _embed(embedder: Embedder, texts: Sequence[str]) -> Sequence[Sequence[float]]:
    """The vectors of some texts. Raises BadInput if the embedder leaves one out."""
    vectors = await embedder(texts)
    if len(vectors) != len(texts):
        problem = f"{len(vectors)} vectors for {len(texts)} texts"
        raise BadInput(problem, place="embedder", hint="it must give one vector for each text, in order")
    return vectors


def _make_hit(row: ChunkRow, scored: ranking.Scored) -> Hit:
    return Hit(
        id=row.id,
        source=row.source,
        nth=row.nth,
        chunk=row.chunk,
        score=scored.score,
        words=scored.words,
        vectors=scored.vectors,
    )
