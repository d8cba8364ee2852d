"""LangChain's ports over lamina: bytes in any lamina store, and any lamina source as a retriever.

store = LaminaByteStore("chats.db")             # a BaseStore[str, bytes], for caches and indexes
retriever = LaminaRetriever(source=project_files("."), k=4)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.stores import BaseStore

from lamina.adapters.store_thread import StoreThread
from lamina.context.port import Source
from lamina.core.wording import text_of
from lamina.stores.port import Store, Where

_PRESENT = b"\x01"
"""Stands before each value, since the state of a conversation that does not exist is empty."""


class LaminaByteStore(BaseStore[str, bytes]):
    """Values by key, within `workspace` of the store at `address`; see `lamina.adapters.store_thread`."""

    def __init__(
        self,
        address: str | Callable[[], AbstractAsyncContextManager[Store]],
        *,
        key: Any = None,
        workspace: str = "langchain",
    ) -> None:
        self.store = StoreThread(address, key=key)
        self._workspace = workspace

    def mget(self, keys: Sequence[str]) -> list[bytes | None]:
        return self.store.run(self._get, keys)

    async def amget(self, keys: Sequence[str]) -> list[bytes | None]:
        return await self.store.arun(self._get, keys)

    def mset(self, key_value_pairs: Sequence[tuple[str, bytes]]) -> None:
        self.store.run(self._set, key_value_pairs)

    async def amset(self, key_value_pairs: Sequence[tuple[str, bytes]]) -> None:
        await self.store.arun(self._set, key_value_pairs)

    def mdelete(self, keys: Sequence[str]) -> None:
        self.store.run(self._delete, keys)

    async def amdelete(self, keys: Sequence[str]) -> None:
        await self.store.arun(self._delete, keys)

    def yield_keys(self, *, prefix: str | None = None) -> Iterator[str]:
        yield from self.store.run(self._list, prefix or "")

    async def ayield_keys(self, *, prefix: str | None = None) -> AsyncIterator[str]:
        for name in await self.store.arun(self._list, prefix or ""):
            yield name

    async def _get(self, store: Store, keys: Sequence[str]) -> list[bytes | None]:
        values: list[bytes | None] = []
        for key in keys:
            state = (await store.read(Where(self._workspace, key), last=0)).head.state
            values.append(state.removeprefix(_PRESENT) if state else None)
        return values

    async def _set(self, store: Store, pairs: Sequence[tuple[str, bytes]]) -> None:
        for key, value in pairs:
            await store.append(Where(self._workspace, key), [], state=_PRESENT + value)

    async def _delete(self, store: Store, keys: Sequence[str]) -> None:
        for key in keys:
            await store.delete(Where(self._workspace, key))

    async def _list(self, store: Store, prefix: str) -> list[str]:
        names: list[str] = []
        while True:
            page = await store.list(self._workspace, after=names[-1] if names else "")
            if not page:
                return [name for name in names if name.startswith(prefix)]
            names += [each.conversation for each in page]


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
        async def find() -> list[Document]:
            return await self._aget_relevant_documents(query, run_manager=run_manager, k=k)

        return anyio.run(find)
