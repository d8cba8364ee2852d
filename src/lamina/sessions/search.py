"""The search index of a workspace, kept in its store beside the conversations.

    async with open_search(store, workspace="team") as index:
        await index.replace("support-42", turns_of(session.log))     under the name of the conversation
        hits = await index.query("how many retries?")

The index itself is in memory. The store has the chunks and their vectors, as one conversation for each
source, and nothing is written anywhere else. So the index is sealed if the store is. A source with the name
of a conversation goes with it: `delete` removes both, and a later question, in any process, finds
nothing of it. Records of chunks that were replaced stay until most records of a source are out of date, or
until the source is removed. Everything is read when the index is opened.
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
from lamina.context.search.index import Embedder, Hit, Index
from lamina.context.search.sqlite import SqliteChunkTables
from lamina.errors import BadInput, Conflict, StoreError
from lamina.stores.address import open_store
from lamina.stores.checks import check_workspace
from lamina.stores.paging import every_conversation
from lamina.stores.port import SEARCH, OwnName, RecordPage, Store, Where, search_place

VERSION = 1
TRIES = 5
"""How often a source is planned again, if another process changes it in between."""

SLACK = 64
"""How many records may be out of date, besides as many as there are chunks, before a source is rewritten."""


class IndexRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One record: from here on, the source has this chunk, with its vector, at place `nth`."""

    v: int = VERSION
    nth: int
    chunk: Chunk
    vector: bytes | None = None


class Length(msgspec.Struct, frozen=True, kw_only=True):
    """The state: how many chunks a source has. `id` tells it from an earlier source of the same name."""

    v: int = VERSION
    id: str
    length: int


class IndexEntry(NamedTuple):
    chunk: Chunk
    vector: bytes | None


class LoadedSource(msgspec.Struct, frozen=True, kw_only=True):
    """A source as this process has read it: its chunks, and the head of its records."""

    entries: tuple[IndexEntry, ...] = ()
    count: int = 0
    state: bytes = b""


EMPTY_SOURCE = LoadedSource()


@asynccontextmanager
async def open_search(
    store: Store | str | os.PathLike[str],
    *,
    workspace: str,
    key: Any = None,
    embedder: Embedder | None = None,
) -> AsyncIterator[Index]:
    """Open the index of a workspace in this store, or in the one at an address, sealed if a key is given.

    With an embedder the index compares meaning besides words.
    """
    if isinstance(store, str | os.PathLike):
        async with (
            open_store(os.fspath(store), key=key) as opened_store,
            open_search(opened_store, workspace=workspace, embedder=embedder) as index,
        ):
            yield index
        return
    check_workspace(workspace)
    if search_place(Where(workspace, "source")) is None:
        raise BadInput(f"{workspace!r}", place="workspace", hint="give a shorter name")
    chunk_table = await run_sync(SqliteChunkTables, ":memory:")
    try:
        index = StoredIndex(chunk_table, embedder, store, workspace)
        await index.refresh()
        yield index
    finally:
        with anyio.CancelScope(shield=True):
            await run_sync(chunk_table.close)


class StoredIndex(Index):
    """An index whose chunks are kept in a store. Made by `open_search`."""

    def __init__(
        self, chunk_table: SqliteChunkTables, embedder: Embedder | None, store: Store, workspace: str
    ) -> None:
        super().__init__(chunk_table, embedder)
        self._store = store
        self._workspace = OwnName(f"{SEARCH}{workspace}")
        self._loaded: dict[str, LoadedSource] = {}

    async def refresh(self) -> None:
        """Take over what other processes added or removed.

        A list tells how many records a source has, and not which: to read the head of each would cost as many
        calls as there are sources. So a source that was removed and indexed anew with as many records is
        noticed only when `query` meets something old of it.
        """
        conversations = every_conversation(self._store, self._workspace)
        counts = {item.conversation: item.count async for item in conversations}
        async with self._lock:
            for source in self._loaded.keys() - counts.keys():
                await self._forget(source)
            for source, count in counts.items():
                if source not in self._loaded or self._loaded[source].count != count:
                    await self._load(source)

    async def query(
        self, text: str, *, most: int = 10, sources: Collection[str] | None = None
    ) -> tuple[Hit, ...]:
        """Answer as `Index.query` does, but only with what is in the store at this moment."""
        for _ in range(TRIES):
            await self.refresh()
            hits = await super().query(text, most=most, sources=sources)
            hit_sources = {hit.source for hit in hits}
            # Another process may have deleted a source since the refresh: nothing of it is returned.
            stale = [source for source in hit_sources if await self._is_stale(source)]
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
            removed = len(self._loaded.get(source, EMPTY_SOURCE).entries)
            await self._forget(source)
            return removed

    async def _put(self, source: str, chunks: Sequence[Chunk], *, after: bool) -> int:
        """Index chunks of a source, after its other chunks or in their place. Returns how many are new.

        They are written to the index in memory first. If the store refuses them, the source is read again.
        """
        vector_cache: dict[str, bytes] = {}
        async with self._lock:
            for _ in range(TRIES):
                await self._load(source)
                loaded = self._loaded.get(source, EMPTY_SOURCE)
                all_chunks = list(chunks)
                if after:
                    all_chunks = [entry.chunk for entry in loaded.entries] + all_chunks
                plan = await self._threaded(partial(self._tables.planned, source, all_chunks, after=False))
                vectors = await self._blobs(plan, vector_cache)
                entries = _pair_vectors(loaded, all_chunks, plan, vectors)
                await self._threaded(partial(self._tables.write, source, plan, vectors))
                try:
                    self._loaded[source] = await self._write(source, loaded, entries)
                except Conflict:
                    # Another process was first: what it wrote is read, and the rest is planned anew.
                    await self._forget(source)
                    continue
                except BaseException:
                    # The index in memory has chunks that the store does not have.
                    with anyio.CancelScope(shield=True):
                        await self._forget(source)
                    raise
                return len(plan.new)
        problem = f"others keep changing {source!r}"
        hint = "nothing was written; try again, or let one process index a source"
        raise StoreError(problem, hint=hint)

    async def _write(
        self, source: str, loaded: LoadedSource, entries: tuple[IndexEntry, ...]
    ) -> LoadedSource:
        """Store what has changed, or everything if most of what is stored is out of date."""
        if not entries:
            await self._store.delete(self._where(source))
            return EMPTY_SOURCE
        changed = _list_changed(loaded.entries, entries)
        if not changed and len(entries) == len(loaded.entries):
            return loaded
        if loaded.count + len(changed) > 2 * len(entries) + SLACK:
            # If the process dies before the append, the source is gone from the index: index it again.
            await self._store.delete(self._where(source))
            loaded = EMPTY_SOURCE
            changed = list(range(len(entries)))
        records = [
            IndexRecord(nth=nth, chunk=entries[nth].chunk, vector=entries[nth].vector) for nth in changed
        ]
        length = Length(id=_source_id(loaded), length=len(entries))
        head = await self._store.append(
            self._where(source),
            list(map(msgspec.json.encode, records)),
            expect=loaded.count,
            was=loaded.state,
            state=msgspec.json.encode(length),
        )
        return LoadedSource(entries=entries, count=head.count, state=head.state)

    async def _load(self, source: str) -> None:
        """Read a source again, unless it is as it was."""
        if source in self._loaded and not await self._is_stale(source):
            return
        page = await self._store.read(self._where(source))
        if page.head.is_empty:
            await self._forget(source)
            return
        entries = _read_entries(page, source)
        chunks = [entry.chunk for entry in entries]
        plan = await self._threaded(partial(self._tables.planned, source, chunks, after=False))
        vectors = [entries[nth].vector for nth, _ in plan.new]
        await self._threaded(partial(self._tables.write, source, plan, vectors))
        self._loaded[source] = LoadedSource(entries=entries, count=page.head.count, state=page.head.state)

    async def _forget(self, source: str) -> None:
        self._loaded.pop(source, None)
        await self._threaded(partial(self._tables.remove, source))

    async def _is_stale(self, source: str) -> bool:
        head = (await self._store.read(self._where(source), last=0)).head
        loaded = self._loaded.get(source, EMPTY_SOURCE)
        return (head.count, head.state) != (loaded.count, loaded.state)

    def _where(self, source: str) -> Where:
        return Where(self._workspace, source)


def _source_id(loaded: LoadedSource) -> str:
    """The id of a stored source, or a new one."""
    if not loaded.state:
        return os.urandom(8).hex()
    return msgspec.json.decode(loaded.state, type=Length).id


def _list_changed(old_entries: Sequence[IndexEntry], entries: Sequence[IndexEntry]) -> list[int]:
    """The places of entries that are new or not as they were.

    Entries are compared place by place, since the store has one record for each place.
    """
    changed: list[int] = []
    for nth, entry in enumerate(entries):
        if nth >= len(old_entries) or entry != old_entries[nth]:
            changed.append(nth)
    return changed


def _pair_vectors(
    loaded: LoadedSource, chunks: Sequence[Chunk], plan: ChunkChanges, vectors: Sequence[bytes | None]
) -> tuple[IndexEntry, ...]:
    """The chunks with their vectors. A chunk that is not new has the vector of an equal one before.

    Equal chunks may be there several times. Each takes one of the old vectors.
    """
    old_vectors: dict[bytes, list[bytes | None]] = {}
    for entry in reversed(loaded.entries):
        old_vectors.setdefault(digest_of(entry.chunk), []).append(entry.vector)
    new_vectors = {nth: vector for (nth, _), vector in zip(plan.new, vectors, strict=True)}
    entries: list[IndexEntry] = []
    for nth, chunk in enumerate(chunks):
        if nth in new_vectors:
            entries.append(IndexEntry(chunk, new_vectors[nth]))
        else:
            entries.append(IndexEntry(chunk, old_vectors[digest_of(chunk)].pop()))
    return tuple(entries)


def _read_entries(page: RecordPage, source: str) -> tuple[IndexEntry, ...]:
    """Read the chunks of a source from its records, in their order."""
    try:
        length = msgspec.json.decode(page.head.state, type=Length)
        versions = {length.v}
        entries: dict[int, IndexEntry] = {}
        for stored in page.records:
            record = msgspec.json.decode(stored.body, type=IndexRecord)
            versions.add(record.v)
            entries[record.nth] = IndexEntry(record.chunk, record.vector)
        if versions != {VERSION}:
            raise msgspec.ValidationError("another version of lamina wrote it")
        return tuple(entries[nth] for nth in range(length.length))
    except (msgspec.MsgspecError, KeyError, RecursionError) as error:
        hint = "an index can be made again: remove the source, and index it anew"
        raise BadInput(f"{source!r} cannot be read: {error}", place="index", hint=hint) from None
