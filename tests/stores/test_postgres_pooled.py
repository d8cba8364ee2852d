"""The store behind PgBouncer in transaction mode: every transaction may get another connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from lamina.errors import Conflict
from lamina.stores import Once, PostgresStore, Where, open_postgres
from tests.servers.pgbouncer import find_pgbouncer, pgbouncer
from tests.servers.postgres import shared

WRITERS = 6
GROUPS = 12


@pytest.fixture(scope="module")
def pooled() -> Iterator[str]:
    if find_pgbouncer() is None:
        pytest.skip("pgbouncer is not installed")
    with pgbouncer(shared()) as url:
        yield url


async def write_groups(store: PostgresStore, writer: int) -> None:
    """Groups of one conversation of its own, and of one that all writers share."""
    own = Where("w", f"own-{writer}")
    for number in range(GROUPS):
        await store.append(own, [f"{number}".encode()], expect=number, state=f"s{number}".encode())
        key = f"{writer}-{number}".encode()
        await store.append(Where("w", "common"), [key], once=Once(key=key.decode(), digest=b"d" * 32))


def test_many_writers_lose_and_double_nothing(pooled: str) -> None:
    async def main() -> list[bytes]:
        async with open_postgres(pooled, schema="pooled", connections=4) as store:
            await asyncio.gather(*(write_groups(store, writer) for writer in range(WRITERS)))
            with pytest.raises(Conflict):
                await store.append(Where("w", "own-0"), [b"late"], expect=3)
            for writer in range(WRITERS):
                page = await store.read(Where("w", f"own-{writer}"))
                assert [record.body for record in page.records] == [b"%d" % n for n in range(GROUPS)]
            assert await store.delete(Where("w", "own-1"))
            assert len(await store.list("w")) == WRITERS
            return [record.body for record in (await store.read(Where("w", "common"))).records]

    common = asyncio.run(main())
    assert sorted(common) == sorted(b"%d-%d" % (w, n) for w in range(WRITERS) for n in range(GROUPS))


def test_settings_reach_no_other_client_and_commits_wait_for_the_disk(pooled: str) -> None:
    async def main() -> str:
        async with open_postgres(pooled, schema="settings", connections=2) as store:
            await store.append(Where("w", "c"), [b"one"])
            async with store._pool.call() as call:  # noqa: SLF001 - what a write sees
                cursor = await call.connection.execute("SHOW synchronous_commit")
                row = await cursor.fetchone()
            assert row is not None
            return str(row[0])

    assert asyncio.run(main()) == "on"
    for _ in range(4):
        with psycopg.connect(pooled, autocommit=True, prepare_threshold=None) as other:
            path = other.execute("SHOW search_path").fetchone()
            commits = other.execute("SHOW synchronous_commit").fetchone()
        assert path == ('"$user", public',)
        assert commits == ("off",)  # the test server's own
