"""LangChain's ports over lamina: bytes in any lamina store, and any lamina source as a retriever.

    store = LaminaByteStore("chats.db")             # a BaseStore[str, bytes], for caches and indexes
    retriever = LaminaRetriever(source=project_files("."), k=4)

`lamina.context` has the sources.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import anyio
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.stores import BaseStore

from lamina.adapters._store_thread import list_names, open_store_thread, run_both_ways
from lamina.context.port import Source
from lamina.core.wording import text_of
from lamina.stores.port import Store, Where
from lamina.stores.store_thread import StoreAddress, StoreThread

__all__ = ["LaminaByteStore", "LaminaRetriever"]

_PRESENT = b"\x01"
"""Stands before each value, since the state of a conversation that does not exist is empty."""


class LaminaByteStore(BaseStore[str, bytes]):
    """Values by key, within `workspace` of the store at `address`; see `lamina.stores.store_thread`."""

    def __init__(
        self,
        address: StoreAddress | StoreThread,
        *,
        key: Any = None,
        workspace: str = "langchain",
    ) -> None:
        self.store = open_store_thread(address, key=key)
        self._workspace = workspace

    async def _get(self, store: Store, keys: Sequence[str]) -> list[bytes | None]:
        """The value of each key, None for a key that was never set or was deleted."""
        values: list[bytes | None] = []
        for key in keys:
            state = (await store.read(Where(self._workspace, key), last=0)).head.state
            value = None
            if state:
                value = state.removeprefix(_PRESENT)
            values.append(value)
        return values

    async def _set(self, store: Store, key_value_pairs: Sequence[tuple[str, bytes]]) -> None:
        for key, value in key_value_pairs:
            await store.append(Where(self._workspace, key), [], state=_PRESENT + value)

    async def _delete(self, store: Store, keys: Sequence[str]) -> None:
        for key in keys:
            await store.delete(Where(self._workspace, key))

    async def _list(self, store: Store, prefix: str | None) -> list[str]:
        return await list_names(store, self._workspace, prefix=prefix or "")

    mget, amget = run_both_ways(_get)
    mset, amset = run_both_ways(_set)
    mdelete, amdelete = run_both_ways(_delete)

    def yield_keys(self, *, prefix: str | None = None) -> Iterator[str]:
        yield from self.store.run(self._list, prefix)

    async def ayield_keys(self, *, prefix: str | None = None) -> AsyncIterator[str]:
        for name in await self.store.arun(self._list, prefix):
            yield name


class LaminaRetriever(BaseRetriever):
    """Documents from a lamina source, such as files or a search index: at most `k` of them."""

    source: Source
    k: int = 4
    room: int | None = None

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: Any,  # noqa: ARG002 - LangChain's
        k: int | None = None,
    ) -> list[Document]:
        segments = list(await self.source(query, self.room))
        documents: list[Document] = []
        for segment in segments[: k or self.k]:
            metadata = {"key": segment.key, "kind": segment.kind}
            documents.append(Document(page_content=text_of(segment.parts), metadata=metadata))
        return documents

    def _get_relevant_documents(
        self, query: str, *, run_manager: Any, k: int | None = None
    ) -> list[Document]:
        """The same without `await`, in an event loop of its own."""

        async def find() -> list[Document]:
            return await self._aget_relevant_documents(query, run_manager=run_manager, k=k)

        return anyio.run(find)
