"""Searches the files of the workspace and the chats of the store, for `/search`, in an index in memory.

The index is filled at the first search of a run, and each later one reads only what changed: a file by its
size and time, a chat by its number of records. Nothing is written, so a sealed store stays sealed, and a chat
that was deleted is not found again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple, TypeVar

from anyio import to_thread

from lamina.context.memory import MEMORY
from lamina.context.search import Chunk, Hit, Index, chunks_of, open_index, turns_of
from lamina.core.values import Segment
from lamina.errors import BadInput, LaminaError
from lamina.segments import excerpt
from lamina.sessions.records import read_records
from lamina.stores.paging import every_conversation
from lamina.stores.port import Store, Where
from lamina.workspace.documents import text_in
from lamina.workspace.workspace import FolderItem, Workspace

FILES = "file"
CHATS = "chat"

LARGEST = 1_000_000
"""Bytes of a file that is searched."""

MOST_FILES = 5_000
"""Files that are searched. A workspace with more says so."""

MOST_HITS = 10


State = TypeVar("State")
"""By which a text is known to have changed: the size and time of a file, the records of a chat."""

ReadChunks = Callable[[str], Awaitable[Sequence[Chunk]]]
"""Reads the chunks of one file or chat."""


class FoundPassage(NamedTuple):
    """A passage that answers a search. `sort` is "file" or "chat", `name` the path or the session."""

    sort: str
    name: str
    place: str
    text: str

    def as_segment(self) -> Segment:
        """The passage as an attachment."""
        source = self.name
        if self.sort == CHATS:
            source = f"chat {self.name}"
        return excerpt(self.text, source=source, place=self.place)


class SearchedTexts:
    """What can be searched in one run of the chat."""

    def __init__(self, store: Store, workspace: str, space: Workspace, root: Path) -> None:
        """`space` is the folder at `root`. It reads the files; only their times are asked of the path."""
        self._store = store
        self._workspace = workspace
        self._space = space
        self._root = root
        self._open = AsyncExitStack()
        self._index: Index | None = None
        self._file_states: dict[str, tuple[int, int]] = {}
        self._chat_counts: dict[str, int] = {}

    async def find(self, query: str) -> tuple[list[FoundPassage], list[str]]:
        """The passages that answer a query best, best first; and notes on what was not searched."""
        if self._index is None:
            self._index = await self._open.enter_async_context(open_index())
        notes = await self._refresh_files(self._index)
        await self._refresh_chats(self._index)
        hits = await self._index.query(query, most=MOST_HITS)
        return [_describe_hit(hit) for hit in hits], notes

    async def close(self) -> None:
        await self._open.aclose()

    async def _refresh_files(self, index: Index) -> list[str]:
        """Read the files that changed since the last search, and drop those that are gone."""
        items = await to_thread.run_sync(self._list_files)
        notes = []
        if len(items) > MOST_FILES:
            notes.append(f"only the first {MOST_FILES:,} of {len(items):,} files were searched")
            items = items[:MOST_FILES]
        states = await to_thread.run_sync(self._states_of, items)
        await _refresh(index, FILES, self._file_states, states, self._read_file)
        return notes

    def _list_files(self) -> list[FolderItem]:
        readable = [item for item in self._space.walk() if not item.why]
        return [item for item in readable if item.size <= LARGEST]

    def _states_of(self, items: list[FolderItem]) -> dict[str, tuple[int, int]]:
        return {item.path: self._state_of(item) for item in items}

    def _state_of(self, item: FolderItem) -> tuple[int, int]:
        """The size and time of a file, by which it is known to have changed."""
        try:
            time = (self._root / item.path).stat().st_mtime_ns
        except OSError:
            time = 0
        return item.size, time

    async def _read_file(self, path: str) -> tuple[Chunk, ...]:
        return await to_thread.run_sync(self._read_chunks, path)

    def _read_chunks(self, path: str) -> tuple[Chunk, ...]:
        """The chunks of a file; none of one that is not text."""
        try:
            return chunks_of(path, text_in(path, self._space.read(path)))
        except BadInput:
            return ()

    async def _refresh_chats(self, index: Index) -> None:
        """Read the chats that changed since the last search, and drop those that were deleted."""
        counts: dict[str, int] = {}
        async for head in every_conversation(self._store, self._workspace):
            counts[head.conversation] = head.count
        counts.pop(MEMORY, None)  # the facts that are remembered are no chat
        await _refresh(index, CHATS, self._chat_counts, counts, self._read_chat)

    async def _read_chat(self, name: str) -> tuple[Chunk, ...]:
        """What was said in a chat; nothing of one that cannot be read."""
        try:
            page = await self._store.read(Where(self._workspace, name))
            return turns_of(read_records([record.body for record in page.records]).log)
        except LaminaError:
            return ()


async def _refresh(
    index: Index, sort: str, indexed: dict[str, State], states: Mapping[str, State], read: ReadChunks
) -> None:
    """Read anew what has another state than in the index, and drop what is gone.

    `indexed` changes with each step, so that a search which is interrupted has not read in vain.
    """
    for name in indexed.keys() - states.keys():
        await index.remove(f"{sort}:{name}")
        del indexed[name]
    for name, state in states.items():
        if indexed.get(name) != state:
            await index.replace(f"{sort}:{name}", await read(name))
            indexed[name] = state


def _describe_hit(hit: Hit) -> FoundPassage:
    sort, _, name = hit.source.partition(":")
    place = hit.chunk.place
    if sort == CHATS:
        place = hit.chunk.speaker
    return FoundPassage(sort, name, place, hit.chunk.text)
