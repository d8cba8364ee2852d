from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lamina.stores import MemoryStore, Store
from lamina.testing import Conformance, store


@asynccontextmanager
async def opened(_folder: str) -> AsyncIterator[Store]:
    yield MemoryStore()


@pytest.mark.parametrize("case", store(opened, lasting=False), ids=str)
def test_memory(case: Conformance) -> None:
    case()
