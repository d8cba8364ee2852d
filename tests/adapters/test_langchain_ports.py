"""LangChain's own suites for key-value stores, retrievers and tools, over lamina's parts and its own."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip(
    "langchain_tests", reason="langchain-tests is not installed: run `make adapters` to test it"
)

from langchain.tools import ToolRuntime
from langchain_core.stores import InMemoryByteStore
from langchain_core.tools import BaseTool
from langchain_tests.integration_tests import (
    BaseStoreAsyncTests,
    BaseStoreSyncTests,
    RetrieversIntegrationTests,
)
from langchain_tests.unit_tests import ToolsUnitTests

from lamina.adapters.langchain import LaminaMiddleware
from lamina.adapters.langchain_ports import LaminaByteStore, LaminaRetriever
from lamina.segments import note


class StoreValues:
    @pytest.fixture
    def three_values(self) -> tuple[bytes, bytes, bytes]:
        return b"one", b"", b"three"


class TestLaminaByteStore(StoreValues, BaseStoreSyncTests[bytes]):
    @pytest.fixture
    def kv_store(self) -> LaminaByteStore:
        return LaminaByteStore("memory:")


class TestLaminaByteStoreAsync(StoreValues, BaseStoreAsyncTests[bytes]):
    @pytest.fixture
    async def kv_store(self) -> LaminaByteStore:
        return LaminaByteStore("memory:")


class TestOfficialByteStore(StoreValues, BaseStoreSyncTests[bytes]):
    @pytest.fixture
    def kv_store(self) -> InMemoryByteStore:
        return InMemoryByteStore()


class TestOfficialByteStoreAsync(StoreValues, BaseStoreAsyncTests[bytes]):
    @pytest.fixture
    async def kv_store(self) -> InMemoryByteStore:
        return InMemoryByteStore()


async def find_notes(prompt: str, room: int | None) -> list[Any]:  # noqa: ARG001 - a source's
    return [note(f"{number}.md", f"{prompt}: {number}") for number in range(5)]


class TestLaminaRetriever(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self) -> type[LaminaRetriever]:
        return LaminaRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"source": find_notes}

    @property
    def retriever_query_example(self) -> str:
        return "limits"


class TestRecallTool(ToolsUnitTests):
    @property
    def tool_constructor(self) -> BaseTool:
        return LaminaMiddleware(budget=16_000).tools[0]

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        runtime: Any = ToolRuntime(
            state={}, context=None, config={}, stream_writer=print, tool_call_id=None, store=None
        )
        return {"key": "k1f2e3d4c5b6", "runtime": runtime}
