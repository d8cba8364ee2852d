from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from lamina.stores import Store, Where, open_sqlite
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


@pytest.mark.parametrize("driver", DRIVERS)
def test_records_of_more_conversations_than_a_statement_takes_values(driver: Driver, tmp_path: Path) -> None:
    async def trial() -> None:
        async with open_sqlite(tmp_path / "chats.db", driver=driver) as opened_store:
            for name in ("n7", "n39999"):
                await opened_store.append(Where("team", name), [name.encode(), b"more"])
            names = [f"n{number}" for number in range(40_000)]
            assert await opened_store.bodies("team", names) == {
                "n7": [b"n7", b"more"],
                "n39999": [b"n39999", b"more"],
            }

    anyio.run(trial)
