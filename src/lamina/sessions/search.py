"""The search index of a workspace in its store, beside the conversations: sealed where the store is sealed.

    async with open_search(store, workspace="team") as index:
        await index.replace("support-42", turns_of(session.log))     under the name of the conversation
        hits = await index.query("how many retries?")

What is searched is in memory; the store keeps the chunks and their vectors, as a conversation of its own for
each source, and nothing else is written anywhere. A source that has the name of a conversation goes with it:
`delete` and `shred` remove it, and a question that is asked afterwards, in whatever process, finds nothing of
it. What was replaced is out of date, and gone from the store when most of what a source keeps is, or when the
source is removed. Everything is read when the index is opened; one that many share in PostgreSQL, in plain
text, is `sources.search.postgres`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

import anyio
import msgspec
from anyio.to_thread import run_sync

from lamina.context.search.chunk_tables import ChunkChanges, digest_of
from lamina.context.search.chunks import Chunk
from lamina.context.search.index import TRIES, Embedder, Hit, Index, too_busy
from lamina.context.search.sqlite import SqliteShelf
from lamina.errors import BadInput, Conflict, StoreError
from lamina.stores.address import open_store
from lamina.stores.paging import every_conversation
from lamina.stores.port import SEARCH, RecordPage, Store, Where, search_place

VERSION = 1
SLACK = 64
"""Records that may be out of date besides as many as there are chunks, before a source is written anew."""


class IndexRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One record: the chunk that stands at place `nth` of a source from here on, and its vector."""

    v: int = VERSION
    nth: int
    chunk: Chunk
    vector: bytes | None = None


class Length(msgspec.Struct, frozen=True, kw_only=True):
    """The state: how many chunks a source has. `id` tells it from one of the same name before it."""

    v: int = VERSION
    id: str
    length: int


class IndexEntry(NamedTuple):
    chunk: Chunk
    vector: bytes | None


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """A source as this process knows it: its chunks, and the head of its records."""

    entries: tuple[IndexEntry, ...] = ()
    count: int = 0
    state: bytes = b""


@asynccontextmanager
async def open_search(
    store: Store | str | os.PathLike[str],
    *,
    workspace: str,
    key: Any = None,
    embedder: Embedder | None = None,
) -> AsyncIterator[Index]:
    """The index of a workspace in this store, or in the one at an address, sealed if a key is given.

    With an embedder it compares meaning besides words.
    """
    if isinstance(store, str | os.PathLike):
        async with (
            open_store(os.fspath(store), key=key) as opened,
            open_search(opened, workspace=workspace, embedder=embedder) as index,
        ):
            yield index
        return
    if search_place(Where(workspace, "source")) is None:
        raise BadInput(
            f"{workspace!r}", place="workspace", hint="give a shorter name, and none of lamina's own"
        )
    shelf = await run_sync(SqliteShelf, ":memory:")
    try:
        index = StoredIndex(shelf, embedder, store, workspace)
        await index.refresh()
        yield index
    finally:
        with anyio.CancelScope(shield=True):
            await run_sync(shelf.close)


class StoredIndex(Index):
    """An index whose chunks are kept in a store. Made by `open_search`."""

    def __init__(self, shelf: SqliteShelf, embedder: Embedder | None, store: Store, workspace: str) -> None:
        super().__init__(shelf, embedder)
        self._store = store
        self._workspace = f"{SEARCH}{workspace}"
        self._known: dict[str, Known] = {}

    async def refresh(self) -> None:
        """Takes over what others have added or removed since."""
        listed = every_conversation(self._store, self._workspace)
        counts = {each.conversation: each.count async for each in listed}
        async with self._lock:
            for source in self._known.keys() - counts.keys():
                await self._forget(source)
            for source, count in counts.items():
                if source not in self._known or self._known[source].count != count:
                    await self._load(source)

    async def query(
        self, text: str, *, most: int = 10, sources: Collection[str] | None = None
    ) -> tuple[Hit, ...]:
        """As `Index.query`. What is answered stands in the store at this moment."""
        for _ in range(TRIES):
            await self.refresh()
            hits = await super().query(text, most=most, sources=sources)
            stale = [source for source in {hit.source for hit in hits} if await self._is_stale(source)]
            if not stale:
                return hits
            async with self._lock:
                for source in stale:
                    await self._load(source)
        raise StoreError("others keep changing what was found", hint="try again")

    async def sources(self) -> dict[str, int]:
        await self.refresh()
        return await super().sources()

    async def beside(self, hit: Hit, reach: int = 1) -> tuple[Hit, ...]:
        await self.refresh()
        return await super().beside(hit, reach)

    async def remove(self, source: str) -> int:
        async with self._lock:
            await self._store.delete(self._where(source))
            removed = len(self._known.get(source, Known()).entries)
            await self._forget(source)
            return removed

    async def _put(self, source: str, chunks: Sequence[Chunk], *, after: bool) -> int:
        made: dict[str, bytes] = {}
        async with self._lock:
            for _ in range(TRIES):
                await self._load(source)
                known = self._known.get(source, Known())
                earlier = [entry.chunk for entry in known.entries] if after else []
                wanted = [*earlier, *chunks]
                plan = await self._threaded(partial(self._shelf.planned, source, wanted, after=False))
                vectors = await self._blobs(plan, made)
                entries = _entries(known, wanted, plan, vectors)
                await self._threaded(partial(self._shelf.write, source, plan, vectors))
                try:
                    self._known[source] = await self._write(source, known, entries)
                except (
                    Conflict
                ):  # another process was first: what it wrote is read, and the rest planned anew
                    await self._forget(source)
                    continue
                except BaseException:
                    with anyio.CancelScope(shield=True):
                        await self._forget(source)
                    raise
                return len(plan.new)
        raise too_busy(source)

    async def _write(self, source: str, known: Known, entries: tuple[IndexEntry, ...]) -> Known:
        """Keeps what has changed, or everything where most of what is kept is out of date."""
        if not entries:
            await self._store.delete(self._where(source))
            return Known()
        changed = [nth for nth, entry in enumerate(entries) if entry != _at(known.entries, nth)]
        if not changed and len(entries) == len(known.entries):
            return known
        if known.count + len(changed) > 2 * len(entries) + SLACK:
            await self._store.delete(self._where(source))
            known, changed = Known(), list(range(len(entries)))
        before = msgspec.json.decode(known.state, type=Length) if known.state else None
        length = Length(id=before.id if before else os.urandom(8).hex(), length=len(entries))
        state = msgspec.json.encode(length)
        pieces = [
            IndexRecord(nth=nth, chunk=entries[nth].chunk, vector=entries[nth].vector) for nth in changed
        ]
        head = await self._store.append(
            self._where(source),
            list(map(msgspec.json.encode, pieces)),
            expect=known.count,
            was=known.state,
            state=state,
        )
        return Known(entries=entries, count=head.count, state=head.state)

    async def _load(self, source: str) -> None:
        """Reads a source anew, unless it is as it was."""
        known = self._known.get(source)
        if known is not None and not await self._is_stale(source):
            return
        page = await self._store.read(self._where(source))
        if not page.head.count and not page.head.state:
            await self._forget(source)
            return
        entries = _read(page, source)
        wanted = [entry.chunk for entry in entries]
        plan = await self._threaded(partial(self._shelf.planned, source, wanted, after=False))
        vectors = [entries[nth].vector for nth, _ in plan.new]
        await self._threaded(partial(self._shelf.write, source, plan, vectors))
        self._known[source] = Known(entries=entries, count=page.head.count, state=page.head.state)

    async def _forget(self, source: str) -> None:
        self._known.pop(source, None)
        await self._threaded(partial(self._shelf.remove, source))

    async def _is_stale(self, source: str) -> bool:
        head = (await self._store.read(self._where(source), last=0)).head
        known = self._known.get(source, Known())
        return (head.count, head.state) != (known.count, known.state)

    def _where(self, source: str) -> Where:
        return Where(self._workspace, source)


def _at(entries: Sequence[IndexEntry], nth: int) -> IndexEntry | None:
    return entries[nth] if nth < len(entries) else None


def _entries(
    known: Known, wanted: Sequence[Chunk], plan: ChunkChanges, vectors: Sequence[bytes | None]
) -> tuple[IndexEntry, ...]:
    """The chunks with their vectors: those that are new, and those that a chunk like this had before."""
    before: dict[bytes, list[bytes | None]] = {}
    for entry in reversed(known.entries):
        before.setdefault(digest_of(entry.chunk), []).append(entry.vector)
    new = {nth: vector for (nth, _), vector in zip(plan.new, vectors, strict=True)}
    found = []
    for nth, chunk in enumerate(wanted):
        vector = new[nth] if nth in new else before[digest_of(chunk)].pop()
        found.append(IndexEntry(chunk, vector))
    return tuple(found)


def _read(page: RecordPage, source: str) -> tuple[IndexEntry, ...]:
    """The chunks of a source, from its records in their order."""
    try:
        length = msgspec.json.decode(page.head.state, type=Length)
        pieces = [msgspec.json.decode(record.body, type=IndexRecord) for record in page.records]
        if length.v != VERSION or any(piece.v != VERSION for piece in pieces):
            raise msgspec.ValidationError("a newer release wrote it")
        places = {piece.nth: IndexEntry(piece.chunk, piece.vector) for piece in pieces}
        return tuple(places[nth] for nth in range(length.length))
    except (msgspec.MsgspecError, KeyError, RecursionError) as error:
        hint = "an index can be made again: remove the source, and index it anew"
        raise BadInput(f"{source!r} cannot be read: {error}", place="index", hint=hint) from None
