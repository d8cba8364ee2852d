from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lamina.stores.port import Store
from lamina.stores.postgres import open_postgres
from lamina.testing.conformance import Conformance
from lamina.testing.postgres import shared
from lamina.testing.stores import store


@asynccontextmanager
async def opened(_folder: str) -> AsyncIterator[Store]:
    async with open_postgres(shared().url) as kept:
        yield kept


@pytest.mark.parametrize("case", store(opened, many=2000), ids=str)
def test_postgres(case: Conformance) -> None:
    case()
