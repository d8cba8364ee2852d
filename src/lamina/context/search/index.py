"""The index: what can be searched, in memory or in a file of its own; add and ask in one process.

    async with open_index("search.db") as index:
        await index.replace("docs/spec.md", chunks_of("docs/spec.md", text))
        hits = await index.query("how many retries?")

One index belongs to one workspace: who may ask it may see everything in it. What stands in it can be made
again from its sources, so nothing of it is a record. All its work is done in a worker thread, one call at a
time. Where its chunks are kept is a shelf's matter: a file here, or PostgreSQL (`postgres`).
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
from lamina.context.search.sqlite import SqliteShelf
from lamina.context.search.vectors import packed
from lamina.core.text.characters import is_blank
from lamina.errors import BadInput, StoreError

Embedder = Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]]
"""Texts to vectors, one for each, all of one length."""

TRIES = 5
"""How often a source is planned anew, where another process changes it in between."""

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
    """Chunks by their source. Made by `open_index` or `open_postgres_index`."""

    def __init__(self, shelf: ChunkTables, embedder: Embedder | None) -> None:
        self._shelf, self._embedder = shelf, embedder
        self._lock = anyio.Lock()

    @property
    def notes(self) -> tuple[str, ...]:
        """What this index does without, and why: empty if nothing."""
        return self._shelf.notes

    async def replace(self, source: str, chunks: Sequence[Chunk]) -> int:
        """Makes these the chunks of a source, and says how many are new; what has not changed is kept."""
        return await self._put(source, chunks, after=False)

    async def add(self, source: str, chunks: Sequence[Chunk]) -> int:
        """Adds chunks after those that a source has."""
        return await self._put(source, chunks, after=True)

    async def remove(self, source: str) -> int:
        """Forgets a source, and says how many chunks it had."""
        async with self._lock:
            return await self._threaded(lambda: self._shelf.remove(source))

    async def query(
        self, text: str, *, most: int = 10, sources: Collection[str] | None = None
    ) -> tuple[Hit, ...]:
        """The chunks that answer a text best, best first; of all sources, or only of these."""
        wanted = None
        if self._embedder is not None and not is_blank(text):
            (wanted,) = packed(await _embedded(self._embedder, [text]))
        async with self._lock:
            return await self._threaded(lambda: self._query(text, wanted, most, sources))

    async def beside(self, hit: Hit, reach: int = 1) -> tuple[Hit, ...]:
        """A hit with its neighbours, at most so far from it, in their order."""
        row = ChunkRow(hit.id, hit.source, hit.nth, hit.chunk)
        async with self._lock:
            rows = await self._threaded(lambda: self._shelf.beside(row, reach))
        return tuple(_hit(one, ranking.Scored(id=one.id, score=hit.score)) for one in rows)

    async def sources(self) -> dict[str, int]:
        """Every source, and how many chunks it has."""
        async with self._lock:
            return await self._threaded(self._shelf.sources)

    async def _put(self, source: str, chunks: Sequence[Chunk], *, after: bool) -> int:
        made: dict[str, bytes] = {}
        async with self._lock:
            for _ in range(TRIES):
                plan = await self._threaded(lambda: self._shelf.planned(source, chunks, after=after))
                blobs = await self._blobs(plan, made)
                if await self._threaded(partial(self._shelf.write, source, plan, blobs)):
                    return len(plan.new)
        raise too_busy(source)

    async def _blobs(self, plan: ChunkChanges, made: dict[str, bytes]) -> Sequence[bytes | None]:
        """The vectors of what is new; `made` keeps them, should the plan have to be made again."""
        if self._embedder is None:
            return [None] * len(plan.new)
        texts = [embeddable(chunk) for _, chunk in plan.new]
        missing = list(dict.fromkeys(text for text in texts if text not in made))
        if missing:
            made.update(zip(missing, packed(await _embedded(self._embedder, missing)), strict=True))
        return [made[text] for text in texts]

    def _query(
        self, text: str, wanted: bytes | None, most: int, sources: Collection[str] | None
    ) -> tuple[Hit, ...]:
        people = mentions.named(text, self._shelf.speakers())
        words = ranking.by_words(self._shelf, text, without=people, sources=sources)
        near = None if wanted is None else self._shelf.near(wanted, ranking.DEPTH, sources, words)
        scored = ranking.ranked(self._shelf, text, words, near, people=people, most=max(most, 0))
        rows = self._shelf.rows([one.id for one in scored])
        return tuple(_hit(rows[one.id], one) for one in scored if one.id in rows)

    async def _threaded(self, work: Callable[[], T]) -> T:
        def guarded() -> T:
            with self._shelf.guarded():
                return work()

        return await run_sync(guarded)


@asynccontextmanager
async def open_index(
    path: str | PathLike[str] | None = None, *, embedder: Embedder | None = None
) -> AsyncIterator[Index]:
    """An index in the file at `path`, or in memory; with an embedder it compares meaning besides words."""
    async with opened(partial(SqliteShelf, ":memory:" if path is None else fspath(path)), embedder) as index:
        yield index


@asynccontextmanager
async def opened(make: Callable[[], ChunkTables], embedder: Embedder | None) -> AsyncIterator[Index]:
    """An index over the shelf that `make` gives, which is closed at the end."""
    shelf = await run_sync(make)
    try:
        yield Index(shelf, embedder)
    finally:
        with anyio.CancelScope(shield=True):
            await run_sync(shelf.close)


def too_busy(source: str) -> StoreError:
    problem = f"others keep changing {source!r}"
    return StoreError(problem, hint="nothing was written; try again, or let one process index a source")


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


def _hit(row: ChunkRow, scored: ranking.Scored) -> Hit:
    return Hit(
        id=row.id,
        source=row.source,
        nth=row.nth,
        chunk=row.chunk,
        score=scored.score,
        words=scored.words,
        vectors=scored.vectors,
    )
