from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lamina.stores.port import Store
from lamina.stores.postgres import open_postgres
from lamina.testing.cases import Conformance
from lamina.testing.stores import store
from tests.servers.postgres import shared


@asynccontextmanager
async def opened(_folder: str) -> AsyncIterator[Store]:
    async with open_postgres(shared().url) as opened_store:
        yield opened_store


@asynccontextmanager
async def opened_alone(folder: str) -> AsyncIterator[Store]:
    """A schema of its own for each case: one that is sealed is closed to all others."""
    schema = f"case_{hashlib.sha256(folder.encode()).hexdigest()[:32]}"
    async with open_postgres(shared().url, schema=schema) as opened_store:
        yield opened_store


SEALING = store(opened_alone)[-3:]


@pytest.mark.parametrize("case", store(opened, many=2000, sealable=False), ids=str)
def test_postgres(case: Conformance) -> None:
    case()


@pytest.mark.parametrize("case", SEALING, ids=str)
def test_postgres_is_sealed_or_plain(case: Conformance) -> None:
    case()
