from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from lamina.stores import Store, open_sqlite
from lamina.stores.sqlite.drivers import Driver
from lamina.testing import Conformance, store

pytestmark = pytest.mark.filterwarnings("ignore::lamina.stores.sqlite.WalResetRisk")

DRIVERS: tuple[Driver, ...] = ("sqlite3", "apsw") if importlib.util.find_spec("apsw") else ("sqlite3",)


@asynccontextmanager
async def opened(folder: str, *, driver: Driver) -> AsyncIterator[Store]:
    async with open_sqlite(Path(folder) / "chats.db", driver=driver) as opened_store:
        yield opened_store


@pytest.mark.parametrize(
    "case",
    [case for driver in DRIVERS for case in store(partial(opened, driver=driver), name=driver)],
    ids=str,
)
def test_sqlite(case: Conformance) -> None:
    case()
