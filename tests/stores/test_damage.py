"""Damaged tables: what is other than it was written raises, and is never read as something else."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from lamina import errors
from lamina.errors import StoreError
from lamina.stores import ListedConversation, RecordPage, StoredHead, open_postgres
from lamina.testing._store_trial import expect_error
from tests.servers.postgres import shared
from tests.sessions.talking import awaited
from tests.stores.damaged import HERE, ONCE, OTHER, Damaged, DamagedPostgres, DamagedSqlite

RECORDS = {
    "a body": "UPDATE record SET body = {bytes} WHERE {zero}",
    "an empty body": "UPDATE record SET body = '' WHERE {zero}",
    "a sum": "UPDATE record SET sum = sum + 1 WHERE {zero}",
    "a record that is gone": "DELETE FROM record WHERE {zero}",
    "a record elsewhere": "UPDATE record SET seq = 9 WHERE {zero}",
    "a record of another": (
        "UPDATE record SET (body, sum) = (SELECT body, sum FROM record WHERE {two}) WHERE {zero}"
    ),
    "a record of another place": (
        "UPDATE record SET (body, sum) = (SELECT body, sum FROM record WHERE {one}) WHERE {zero}"
    ),
}
HEADS = {
    "a smaller count": "UPDATE conversation SET count = 3 WHERE name = 'here'",
    "a larger count": "UPDATE conversation SET count = 5 WHERE name = 'here'",
    "a negative count": "UPDATE conversation SET count = -1 WHERE name = 'here'",
    "a state": "UPDATE conversation SET state = {bytes} WHERE name = 'here'",
    "the sum of a state": "UPDATE conversation SET state_sum = 0 WHERE name = 'here'",
    "a sum": "UPDATE conversation SET sum = 0 WHERE name = 'here'",
    "the head of another": (
        "UPDATE conversation SET (count, state_sum, sum, state) = "
        "(SELECT count, state_sum, sum, state FROM conversation WHERE name = 'other') WHERE name = 'here'"
    ),
}
KEYS = {
    "a digest": "UPDATE once SET digest = {bytes}",
    "a count": "UPDATE once SET count = 9",
    "a negative count": "UPDATE once SET count = -1",
    "a sum": "UPDATE once SET sum = 0",
}
SQLITE_RECORDS = {
    "a body that is text": "UPDATE record SET body = 'zero' WHERE {zero}",
    "no sum": "UPDATE record SET sum = '' WHERE {zero}",
}
SQLITE_HEADS = {
    "a count that is text": "UPDATE conversation SET count = 'four' WHERE name = 'here'",
    "a state that is text": "UPDATE conversation SET state = 'state' WHERE name = 'here'",
}
SQLITE_KEYS = {
    "a count that is text": "UPDATE once SET count = 'two'",
    "a digest that is text": "UPDATE once SET digest = 'x'",
}


@pytest.fixture
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Damaged]:
    if request.param == "sqlite":
        file = DamagedSqlite(tmp_path / "chats.db")
        anyio.run(file.fill)
        yield file
        return
    database = DamagedPostgres()
    anyio.run(database.fill)
    yield database
    database.drop()


def each_damage(both: dict[str, str], sqlite_only: dict[str, str]) -> pytest.MarkDecorator:
    """Each damage in each database that can have it."""
    cases = [("postgres", name, statement) for name, statement in both.items()]
    cases += [("sqlite", name, statement) for name, statement in (both | sqlite_only).items()]
    return pytest.mark.parametrize(
        ("damaged", "damage"),
        [pytest.param(kind, statement, id=f"{kind}-{name}") for kind, name, statement in cases],
        indirect=["damaged"],
    )


BOTH = pytest.mark.parametrize("damaged", ["sqlite", "postgres"], indirect=True)


@each_damage(RECORDS, SQLITE_RECORDS)
@awaited
async def test_a_damaged_record_is_named_and_the_others_can_be_read(damaged: Damaged, damage: str) -> None:
    damaged.change(damage)
    async with damaged.open() as store:
        for selection in ({}, {"last": 4}, {"at": [0, 2]}, {"limit": 1}):
            error = await expect_error(store.read(HERE, **selection), errors.Damaged)
            assert error.conversation == "here"
            assert error.whole == (1, 2, 3)
            assert "record 0" in str(error)
            assert "records 1 to 3 can be read" in str(error)
        records = (await store.read(HERE, at=[1, 2, 3])).records
        assert [record.body for record in records] == [b"one", b"two", b"three"]
        assert (await store.read(OTHER)).head == StoredHead(count=2, state=b"of another")
        assert (await store.append(OTHER, [b"c"])).count == 3


@BOTH
@awaited
async def test_a_record_behind_the_last_is_noticed(damaged: Damaged) -> None:
    damaged.change("INSERT INTO record VALUES ({more})")
    async with damaged.open() as store:
        for call in (store.read(HERE), store.read(HERE, last=1), store.append(HERE, [b"five"])):
            error = await expect_error(call, errors.Damaged)
            assert "there are more records than its head says" in str(error)
        assert len((await store.read(HERE, at=error.whole)).records) == 4
        assert (await store.append(OTHER, [b"c"])).count == 3, "the writer goes on"


@pytest.mark.parametrize("count", [0, 2])
@BOTH
@awaited
async def test_a_head_that_is_older_than_its_records_is_noticed(damaged: Damaged, count: int) -> None:
    """Whatever would read past the head, or write behind it, is refused; `count` is what the head says."""
    damaged.set_head_back(count)
    async with damaged.open() as store:
        for call in (
            store.read(HERE),
            store.read(HERE, last=1),
            store.read(HERE, limit=1),
            store.read(HERE, after=count),
            store.append(HERE, [b"four"]),
            store.append(HERE, [], state=b"later"),
            store.replace(HERE, {}, expect=count),
            store.list("w"),
        ):
            error = await expect_error(call, errors.Damaged)
            assert "there are more records than its head says" in str(error)
            assert error.conversation == "here"
        assert [record.body for record in await store.rescue(HERE)] == [b"zero", b"one", b"two", b"three"]
        assert (await store.read(OTHER)).head.count == 2
        assert await store.delete(HERE), "what is damaged can be deleted"
        assert list(await store.list("w")) == [ListedConversation(conversation="other", count=2)]


@each_damage(HEADS, SQLITE_HEADS)
@awaited
async def test_a_damaged_head_is_named_and_never_built_upon(damaged: Damaged, damage: str) -> None:
    damaged.change(damage)
    async with damaged.open() as store:
        for call in (
            store.read(HERE),
            store.read(HERE, last=0),
            store.append(HERE, [b"later"]),
            store.append(HERE, [b"zero", b"one"], once=ONCE),
            store.replace(HERE, {0: b"new"}, expect=4),
        ):
            error = await expect_error(call, errors.Damaged)
            assert error.conversation == "here"
            assert error.whole == (0, 1, 2, 3)
        if "SET state = " not in damage:  # a list reads no states
            assert (await expect_error(store.list("w"), errors.Damaged)).conversation == "here"
        assert list(await store.list("x")) == [ListedConversation(conversation="third", count=1)]
        assert (await store.read(OTHER)).head == StoredHead(count=2, state=b"of another")
        assert await store.delete(HERE), "what is damaged can be deleted"
        assert await store.read(HERE) == RecordPage()
        assert list(await store.list("w")) == [ListedConversation(conversation="other", count=2)]


@each_damage(KEYS, SQLITE_KEYS)
@awaited
async def test_a_damaged_key_is_not_answered(damaged: Damaged, damage: str) -> None:
    damaged.change(damage)
    async with damaged.open() as store:
        error = await expect_error(store.append(HERE, [b"zero", b"one"], once=ONCE), errors.Damaged)
        assert error.conversation == "here"
        assert (await store.read(HERE)).head.count == 4


@pytest.mark.parametrize("selection", [{}, {"last": 2}, {"last": 0}, {"at": [1]}, {"after": 3}])
@BOTH
@awaited
async def test_records_without_their_head_are_missed(damaged: Damaged, selection: dict[str, Any]) -> None:
    damaged.change("DELETE FROM conversation WHERE name = 'here'")
    async with damaged.open() as store:
        error = await expect_error(store.read(HERE, **selection), errors.Damaged)
        assert error.whole == (0, 1, 2, 3)
        for after in ("", "a"):
            error = await expect_error(store.list("w", after=after, limit=1), errors.Damaged)
            assert error.conversation == "here"
        rest = [ListedConversation(conversation="other", count=2)]
        assert list(await store.list("w", after="here")) == rest
        await expect_error(store.append(HERE, [b"anew"], expect=0), errors.Damaged)
        assert (await expect_error(store.read(HERE, **selection), errors.Damaged)).whole == (0, 1, 2, 3)
        assert await store.delete(HERE)
        assert await store.read(HERE) == RecordPage()
        assert list(await store.list("w")) == rest
        assert (await store.append(HERE, [b"anew"], expect=0)).count == 1


@pytest.mark.parametrize("damaged", ["postgres"], indirect=True)
@awaited
async def test_who_may_only_read_reads(damaged: DamagedPostgres) -> None:
    schema = damaged.schema
    reader = f"reader_{uuid.uuid4().hex}"
    with psycopg.connect(shared().url, autocommit=True) as link:
        link.execute(f'CREATE ROLE "{reader}"')
        link.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO "{reader}"')
        link.execute(f'GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO "{reader}"')

    async with open_postgres(f"{shared().url}&options=-crole%3D{reader}", schema=schema) as store:
        assert (await store.read(HERE)).head.count == 4
        assert len(await store.list("w")) == 2
        assert "permission denied" in str(await expect_error(store.append(HERE, [b"x"]), StoreError))
