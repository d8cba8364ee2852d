# ruff: noqa: S608 - the tables are the tests own, and so is every statement
"""Damaged tables: what is other than it was written raises, and is never read as something else."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, LiteralString

import anyio
import psycopg
import pytest

from lamina.errors import Damaged, StoreError
from lamina.stores.checksums import Checksums
from lamina.stores.port import ListedConversation, Once, RecordPage, Where
from lamina.stores.postgres import PostgresStore, open_postgres
from lamina.testing._store_trial import expect_error
from tests.servers.postgres import shared
from tests.stores.damaged_heads import misses_what_an_older_head_does_not_count, refuses_a_damaged_head

HERE, OTHER = Where("w", "here"), Where("w", "other")
ONCE = Once(key="turn", digest=b"digest")


@pytest.fixture
def schema() -> Iterator[str]:
    name = f"damage_{uuid.uuid4().hex}"
    yield name
    with psycopg.connect(shared().url, autocommit=True) as link:
        link.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')


def with_store(schema: str, work: Callable[[PostgresStore], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with open_postgres(shared().url, schema=schema) as store:
            return await work(store)

    return anyio.run(run)


def filled(schema: str) -> None:
    async def work(store: PostgresStore) -> None:
        await store.append(HERE, [b"zero", b"one"], once=ONCE, state=b"before")
        await store.append(HERE, [b"two", b"three"], state=b"state")
        await store.append(OTHER, [b"a", b"b"], state=b"of another")

    with_store(schema, work)


def changed(schema: str, *statements: LiteralString) -> None:
    with psycopg.connect(shared().url, autocommit=True) as link:
        link.execute(f'SET search_path TO "{schema}"')
        for statement in statements:
            link.execute(statement)


OF_ZERO: LiteralString = " WHERE conversation = 'here' AND seq = 0"
RECORDS: dict[str, LiteralString] = {
    "a body": "UPDATE record SET body = 'zerO'" + OF_ZERO,
    "an empty body": "UPDATE record SET body = ''" + OF_ZERO,
    "a sum": "UPDATE record SET sum = 12345678" + OF_ZERO,
    "a record that is gone": "DELETE FROM record" + OF_ZERO,
    "a record elsewhere": "UPDATE record SET seq = 9" + OF_ZERO,
    "a record of another": "UPDATE record SET (body, sum) = "
    "(SELECT body, sum FROM record WHERE conversation = 'other' AND seq = 0)" + OF_ZERO,
    "a record of another place": "UPDATE record SET (body, sum) = "
    "(SELECT body, sum FROM record WHERE conversation = 'here' AND seq = 1)" + OF_ZERO,
}
HEADS: dict[str, LiteralString] = {
    "a smaller count": "UPDATE conversation SET count = 3 WHERE name = 'here'",
    "a larger count": "UPDATE conversation SET count = 5 WHERE name = 'here'",
    "a negative count": "UPDATE conversation SET count = -1 WHERE name = 'here'",
    "a state": "UPDATE conversation SET state = 'stat' WHERE name = 'here'",
    "the sum of a state": "UPDATE conversation SET state_sum = -1 WHERE name = 'here'",
    "a sum": "UPDATE conversation SET sum = 0 WHERE name = 'here'",
    "the head of another": "UPDATE conversation SET (count, state_sum, sum, state) = "
    "(SELECT count, state_sum, sum, state FROM conversation WHERE name = 'other') WHERE name = 'here'",
}


@pytest.mark.parametrize("damage", RECORDS.values(), ids=RECORDS.keys())
def test_a_damaged_record_is_named_and_the_others_can_be_read(schema: str, damage: LiteralString) -> None:
    filled(schema)
    changed(schema, damage)

    async def work(store: PostgresStore) -> None:
        for selection in ({}, {"last": 4}, {"at": [0, 2]}, {"limit": 1}):
            error = await expect_error(store.read(HERE, **selection), Damaged)
            assert error.conversation == "here"
            assert error.whole == (1, 2, 3)
        assert len((await store.read(HERE, at=[1, 2, 3])).records) == 3
        assert (await store.append(OTHER, [b"c"])).count == 3

    with_store(schema, work)


def test_a_record_behind_the_last_is_no_record(schema: str) -> None:
    filled(schema)
    changed(schema, "INSERT INTO record VALUES ('w', 'here', 4, 'more', 12345678)")
    with_store(schema, lambda store: expect_error(store.read(HERE), Damaged))


@pytest.mark.parametrize("count", [0, 2])
def test_a_head_that_is_older_than_its_records_is_noticed(schema: str, count: int) -> None:
    filled(schema)
    sums = Checksums(HERE)
    state_sum = sums.state(b"before")
    statement = (
        "UPDATE conversation SET count = %s, state = 'before', state_sum = %s, sum = %s WHERE name = 'here'"
    )
    with psycopg.connect(shared().url, autocommit=True) as link:
        link.execute(f'SET search_path TO "{schema}"')
        link.execute(statement, (count, state_sum, sums.head(count, state_sum)))

    async def work(store: PostgresStore) -> None:
        await misses_what_an_older_head_does_not_count(store, HERE, count)
        assert len(await store.rescue(HERE)) == 4
        assert (await store.read(OTHER)).head.count == 2
        assert await store.delete(HERE), "what is damaged can be deleted"
        assert list(await store.list("w")) == [ListedConversation(conversation="other", count=2)]

    with_store(schema, work)


@pytest.mark.parametrize("damage", HEADS.values(), ids=HEADS.keys())
def test_a_damaged_head_is_named_and_never_built_upon(schema: str, damage: LiteralString) -> None:
    filled(schema)
    changed(schema, damage)

    async def work(store: PostgresStore) -> None:
        await refuses_a_damaged_head(store, HERE, OTHER, ONCE)
        if "SET state = " not in damage:
            assert (await expect_error(store.list("w"), Damaged)).conversation == "here"
        assert await store.delete(HERE), "what is damaged can be deleted"
        assert list(await store.list("w")) == [ListedConversation(conversation="other", count=2)]

    with_store(schema, work)


@pytest.mark.parametrize("selection", [{}, {"last": 2}, {"last": 0}, {"at": [1]}, {"after": 3}])
def test_records_without_their_head_are_missed(schema: str, selection: dict[str, Any]) -> None:
    filled(schema)
    changed(schema, "DELETE FROM conversation WHERE name = 'here'")

    async def work(store: PostgresStore) -> None:
        error = await expect_error(store.read(HERE, **selection), Damaged)
        assert error.whole == (0, 1, 2, 3)
        for after in ("", "a"):
            assert (await expect_error(store.list("w", after=after, limit=1), Damaged)).conversation == "here"
        assert list(await store.list("w", after="here")) == [
            ListedConversation(conversation="other", count=2)
        ]
        await expect_error(store.append(HERE, [b"anew"], expect=0), Damaged)
        assert (await expect_error(store.read(HERE, **selection), Damaged)).whole == (0, 1, 2, 3)
        assert await store.delete(HERE)
        assert await store.read(HERE) == RecordPage()
        assert list(await store.list("w")) == [ListedConversation(conversation="other", count=2)]
        assert (await store.append(HERE, [b"anew"], expect=0)).count == 1

    with_store(schema, work)


@pytest.mark.parametrize("column", ["digest = 'other'", "count = 9", "count = -1", "sum = 0"])
def test_a_damaged_key_is_not_answered(schema: str, column: LiteralString) -> None:
    filled(schema)
    changed(schema, "UPDATE once SET " + column)
    with_store(schema, lambda store: expect_error(store.append(HERE, [b"zero", b"one"], once=ONCE), Damaged))


def test_who_may_only_read_reads(schema: str) -> None:
    filled(schema)
    reader = f"reader_{uuid.uuid4().hex}"
    with psycopg.connect(shared().url, autocommit=True) as link:
        link.execute(f'CREATE ROLE "{reader}"')
        link.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO "{reader}"')
        link.execute(f'GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO "{reader}"')

    async def work() -> None:
        async with open_postgres(f"{shared().url}&options=-crole%3D{reader}", schema=schema) as store:
            assert (await store.read(HERE)).head.count == 4
            assert len(await store.list("w")) == 2
            assert "permission denied" in str(await expect_error(store.append(HERE, [b"x"]), StoreError))

    anyio.run(work)
