from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from lamina.stores import Store, Where, open_sqlite
from lamina.testing import Conformance, store

pytestmark = pytest.mark.filterwarnings("ignore::lamina.stores.sqlite.WalResetRisk")


@asynccontextmanager
async def opened(folder: str) -> AsyncIterator[Store]:
    async with open_sqlite(Path(folder) / "chats.db") as opened_store:
        yield opened_store


@pytest.mark.parametrize("case", store(opened), ids=str)
def test_sqlite(case: Conformance) -> None:
    case()


def test_records_of_more_conversations_than_a_statement_takes_values(tmp_path: Path) -> None:
    async def trial() -> None:
        async with open_sqlite(tmp_path / "chats.db") as opened_store:
            for name in ("n7", "n39999"):
                await opened_store.append(Where("team", name), [name.encode(), b"more"])
            names = [f"n{number}" for number in range(40_000)]
            assert await opened_store.bodies("team", names) == {
                "n7": [b"n7", b"more"],
                "n39999": [b"n39999", b"more"],
            }

    anyio.run(trial)
