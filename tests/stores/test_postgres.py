from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from lamina.errors import Conflict
from lamina.stores import Store, Where, open_postgres
from lamina.testing import Conformance, store
from tests.servers.postgres import shared
from tests.sessions.talking import awaited


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


@awaited
async def test_an_append_to_a_conversation_that_its_caller_knows_is_one_statement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each statement is a round trip, and a gateway writes after every request."""
    here = Where("statements", "here")
    statements: list[object] = []
    execute = psycopg.AsyncCursor.execute

    async def count(cursor: Any, statement: Any, *given: Any, **options: Any) -> Any:
        statements.append(statement)
        return await execute(cursor, statement, *given, **options)

    async with open_postgres(shared().url) as opened_store:
        await opened_store.delete(here)
        monkeypatch.setattr(psycopg.AsyncCursor, "execute", count)
        await opened_store.append(here, [b"zero"], expect=0, was=b"", state=b"first")
        assert len(statements) == 4  # begin, lock, write, commit
        statements.clear()
        await opened_store.append(here, [b"one", b"two"], expect=1, was=b"first", state=b"second")
        assert len(statements) == 1
        for expect, was in ((1, b"second"), (3, b"first")):
            with pytest.raises(Conflict):
                await opened_store.append(here, [b"three"], expect=expect, was=was, state=b"third")
        page = await opened_store.read(here)
        assert [record.body for record in page.records] == [b"zero", b"one", b"two"]
        assert page.head.state == b"second"
        assert await opened_store.states("statements") == {"here": b"second"}
