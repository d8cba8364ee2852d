"""Damaged SQLite files: what is other than it was written raises, and is never read as something else."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.errors import Damaged, LaminaError, StoreError
from lamina.stores.checked import NewGroup
from lamina.stores.checksums import Checksums
from lamina.stores.port import ListedConversation, Once, RecordPage, StoredHead, Where
from lamina.stores.sqlite import SqliteStore, open_sqlite, tables
from lamina.stores.sqlite.schema import make_tables
from lamina.testing._store_trial import expect_error
from tests.stores.damaged_heads import misses_what_an_older_head_does_not_count, refuses_a_damaged_head

HERE, OTHER, THIRD = Where("w", "here"), Where("w", "other"), Where("x", "third")
ONCE = Once(key="turn", digest=b"digest")
PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


def with_store(path: Path, work: Callable[[SqliteStore], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with open_sqlite(path) as store:
            return await work(store)

    return anyio.run(run)


def filled(path: Path) -> None:
    async def work(store: SqliteStore) -> None:
        await store.append(HERE, [b"zero", b"one"], once=ONCE, state=b"before")
        await store.append(HERE, [b"two", b"three"], state=b"state")
        await store.append(OTHER, [b"a", b"b"], state=b"of another")
        await store.append(THIRD, [b"x"])

    with_store(path, work)


def changed(path: Path, *statements: str) -> None:
    """What a damaged disk gives: rows that nobody wrote."""
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        for statement in statements:
            raw.execute(statement)


RECORDS = {
    "a body": "UPDATE record SET body = x'7a65726f21' WHERE seq = 0 AND conversation = 1",
    "a body that is text": "UPDATE record SET body = 'zero' WHERE seq = 0 AND conversation = 1",
    "an empty body": "UPDATE record SET body = x'' WHERE seq = 0 AND conversation = 1",
    "a sum": "UPDATE record SET sum = sum + 1 WHERE seq = 0 AND conversation = 1",
    "no sum": "UPDATE record SET sum = '' WHERE seq = 0 AND conversation = 1",
    "a record that is gone": "DELETE FROM record WHERE seq = 0 AND conversation = 1",
    "a record elsewhere": "UPDATE record SET seq = 9 WHERE seq = 0 AND conversation = 1",
    "a record of another": "UPDATE record SET (body, sum) = "
    "(SELECT body, sum FROM record WHERE seq = 0 AND conversation = 2) WHERE seq = 0 AND conversation = 1",
    "a record of another place": "UPDATE record SET (body, sum) = "
    "(SELECT body, sum FROM record WHERE seq = 1 AND conversation = 1) WHERE seq = 0 AND conversation = 1",
}
MORE = "INSERT INTO record VALUES (1, 4, x'6d6f7265', 0)"
HEADS = {
    "a smaller count": "UPDATE conversation SET count = 3 WHERE name = 'here'",
    "a larger count": "UPDATE conversation SET count = 5 WHERE name = 'here'",
    "a negative count": "UPDATE conversation SET count = -1 WHERE name = 'here'",
    "a count that is text": "UPDATE conversation SET count = 'four' WHERE name = 'here'",
    "a state": "UPDATE conversation SET state = x'00' WHERE name = 'here'",
    "a state that is text": "UPDATE conversation SET state = 'state' WHERE name = 'here'",
    "the sum of a state": "UPDATE conversation SET state_sum = 0 WHERE name = 'here'",
    "another one that comes next": "UPDATE conversation SET next_name = 'z' WHERE name = 'here'",
    "nothing that comes next": "UPDATE conversation SET next_workspace = NULL, next_name = NULL "
    "WHERE name = 'here'",
    "half of what comes next": "UPDATE conversation SET next_name = NULL WHERE name = 'here'",
    "the head of another": "UPDATE conversation "
    "SET (count, next_workspace, next_name, state_sum, sum, state) = "
    "(SELECT count, next_workspace, next_name, state_sum, sum, state FROM conversation WHERE name = 'other') "
    "WHERE name = 'here'",
}
LOST = {
    "a conversation that is gone": "DELETE FROM conversation WHERE name = 'here'",
    "another name": "UPDATE conversation SET name = 'herd' WHERE name = 'here'",
    "a name that comes later": "UPDATE conversation SET name = 'zzz' WHERE name = 'here'",
    "another workspace": "UPDATE conversation SET workspace = 'a' WHERE name = 'here'",
}


@pytest.mark.parametrize("damage", RECORDS.values(), ids=RECORDS.keys())
def test_a_damaged_record_is_named_and_the_others_can_be_read(path: Path, damage: str) -> None:
    filled(path)
    changed(path, damage)

    async def work(store: SqliteStore) -> None:
        for selection in ({}, {"last": 4}, {"at": [0, 2]}, {"limit": 1}):
            error = await expect_error(store.read(HERE, **selection), Damaged)
            assert error.conversation == "here"
            assert error.whole == (1, 2, 3)
            assert "record 0" in str(error)
            assert "records 1 to 3 can be read" in str(error)
        records = (await store.read(HERE, at=[1, 2, 3])).records
        assert [record.body for record in records] == [b"one", b"two", b"three"]
        assert (await store.read(OTHER)).head == StoredHead(count=2, state=b"of another")
        assert (await store.append(OTHER, [b"c"])).count == 3

    with_store(path, work)


def test_a_record_behind_the_last_is_noticed(path: Path) -> None:
    filled(path)
    changed(path, MORE)

    async def work(store: SqliteStore) -> None:
        for call in (store.read(HERE), store.read(HERE, last=1), store.append(HERE, [b"five"])):
            error = await expect_error(call, Damaged)
            assert "there are more records than its head says" in str(error)
        assert len((await store.read(HERE, at=error.whole)).records) == 4
        assert (await store.append(OTHER, [b"c"])).count == 3, "the writer goes on"

    with_store(path, work)


@pytest.mark.parametrize("count", [0, 2])
def test_a_head_that_is_older_than_its_records_is_noticed(path: Path, count: int) -> None:
    """As after a write of one page that the disk acknowledged and lost: a head that was right once."""

    async def begin(store: SqliteStore) -> None:
        await store.append(HERE, [b"zero", b"one"][:count], state=b"before")

    async def go_on(store: SqliteStore) -> None:
        await store.append(HERE, [b"zero", b"one", b"two", b"three"][count:], state=b"state")
        await store.append(OTHER, [b"a"])

    async def work(store: SqliteStore) -> None:
        await misses_what_an_older_head_does_not_count(store, HERE, count)
        assert [record.body for record in await store.rescue(HERE)] == [b"zero", b"one", b"two", b"three"]
        assert (await store.read(OTHER)).head.count == 1
        assert await store.delete(HERE), "what is damaged can be deleted"
        assert [each.conversation for each in await store.list("w")] == ["other"]

    with_store(path, begin)
    columns = "count, state_sum, sum, state"
    with closing(sqlite3.connect(path)) as raw:
        row = raw.execute(f"SELECT {columns} FROM conversation WHERE name = 'here'").fetchone()  # noqa: S608
    with_store(path, go_on)
    with closing(sqlite3.connect(path)) as raw, raw:
        [(after, name)] = raw.execute(
            "SELECT next_workspace, next_name FROM conversation WHERE name = 'here'"
        )
        sum_ = Checksums(HERE).head(count, row[1], after.encode(), name.encode())
        values = (row[0], row[1], sum_, row[3])
        raw.execute(f"UPDATE conversation SET ({columns}) = (?, ?, ?, ?) WHERE name = 'here'", values)  # noqa: S608
    with_store(path, work)


@pytest.mark.parametrize("damage", HEADS.values(), ids=HEADS.keys())
def test_a_damaged_head_is_named_and_never_built_upon(path: Path, damage: str) -> None:
    filled(path)
    changed(path, damage)

    async def work(store: SqliteStore) -> None:
        await refuses_a_damaged_head(store, HERE, OTHER, ONCE)
        assert await store.delete(HERE), "what is damaged can be deleted"
        assert await store.read(HERE) == RecordPage()
        assert [each.conversation for each in await store.list("w")] == ["other"]

    with_store(path, work)


@pytest.mark.parametrize(
    "damage", [each for name, each in HEADS.items() if "state" not in name or "sum" in name]
)
def test_a_list_with_a_damaged_head_names_it(path: Path, damage: str) -> None:
    filled(path)
    changed(path, damage)

    async def work(store: SqliteStore) -> None:
        error = await expect_error(store.list("w"), Damaged)
        assert error.conversation == "here"
        assert list(await store.list("x")) == [ListedConversation(conversation="third", count=1)]

    with_store(path, work)


@pytest.mark.parametrize("damage", LOST.values(), ids=LOST.keys())
def test_a_conversation_that_is_lost_is_missed(path: Path, damage: str) -> None:
    filled(path)
    changed(path, damage)

    async def work(store: SqliteStore) -> None:
        for call in (
            store.read(HERE),
            store.append(HERE, [b"anew"], expect=0),
            store.delete(HERE),
            store.list("w"),
            store.list("w", limit=1),
        ):
            assert (await expect_error(call, Damaged)).conversation in ("here", "herd", "zzz")

    with_store(path, work)


def test_the_beginning_of_the_chain_is_missed(path: Path) -> None:
    filled(path)
    changed(path, "DELETE FROM conversation WHERE id = 0")

    async def work(store: SqliteStore) -> None:
        assert "first entry is gone" in str(await expect_error(store.read(Where("a", "none")), Damaged))
        assert (await store.read(HERE)).head.count == 4

    with_store(path, work)


def test_the_end_of_a_list_that_is_lost_is_missed(path: Path) -> None:
    filled(path)
    changed(path, "DELETE FROM conversation WHERE name = 'other'")

    async def work(store: SqliteStore) -> None:
        assert (await expect_error(store.list("w"), Damaged)).conversation == "other"
        assert (await expect_error(store.list("w", after="here"), Damaged)).conversation == "other"
        assert list(await store.list("w", limit=1)) == [ListedConversation(conversation="here", count=4)]

    with_store(path, work)


@pytest.mark.parametrize(
    "column", ["digest = x'00'", "count = 9", "count = 'two'", "sum = 0", "digest = 'x'"]
)
def test_a_damaged_key_is_not_answered(path: Path, column: str) -> None:
    filled(path)
    changed(path, f"UPDATE once SET {column}")  # noqa: S608 - it stands above

    async def work(store: SqliteStore) -> None:
        error = await expect_error(store.append(HERE, [b"zero", b"one"], once=ONCE), Damaged)
        assert error.conversation == "here"
        assert (await store.read(HERE)).head.count == 4

    with_store(path, work)


NAMES = st.sampled_from(["", "a", "b", "ab", "é", "\U0001f989", "z"])


@given(st.lists(st.tuples(st.booleans(), NAMES, NAMES.filter(bool)), max_size=40))
def test_the_chain_holds_whatever_is_made_and_deleted(steps: list[tuple[bool, str, str]]) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as raw:
        _check_chain(_with_tables(raw), steps)


def _check_chain(link: Any, steps: list[tuple[bool, str, str]]) -> None:
    there: set[Where] = set()
    for makes, workspace, name in steps:
        where = Where(workspace, name)
        if makes:
            head = tables.append_group(link, NewGroup(where=where, records=(b"x",)))
            there.add(where)
            assert head.count > 0
        else:
            assert tables.delete_conversation(link, where) == (where in there)
            there.discard(where)
    for workspace in ("", "a", "b", "ab", "é", "\U0001f989", "z"):
        own = sorted(where.conversation for where in there if where.workspace == workspace)
        for limit in (1, 2, 9):
            for after in ("", *own, "b"):
                listed = tables.list_conversations(link, workspace, after=after, limit=limit)
                assert [each.conversation for each in listed] == [name for name in own if name > after][
                    :limit
                ]
    chain = link.run("SELECT workspace, name, next_workspace, next_name FROM conversation")
    following = {(workspace, name): (after, next_) for workspace, name, after, next_ in chain}
    walked = [("", "")]
    while following[walked[-1]] != (None, None):
        walked.append(following[walked[-1]])
    assert [Where(*each) for each in walked[1:]] == sorted(there)


def _with_tables(raw: sqlite3.Connection) -> Any:
    """A connection in which the tables are made."""

    class InMemory:
        def run(self, sql: str, values: Any = ()) -> list[Any]:
            return raw.execute(sql, values).fetchall()

        def many(self, sql: str, rows: Any) -> None:
            raw.executemany(sql, rows)

        def inside(self) -> bool:
            return raw.in_transaction

    link: Any = InMemory()
    link.run("PRAGMA foreign_keys=1")
    make_tables(link)
    return link


def test_a_damaged_file_is_told_in_our_own_words(tmp_path: Path) -> None:
    """Whatever byte of the first page is another, what is raised is lamina's own."""

    async def trial() -> Counter[str]:
        async with open_sqlite(tmp_path / "whole.db") as store:
            for _ in range(20):
                await store.append(HERE, [b"x" * 300])
        whole = await anyio.Path(tmp_path / "whole.db").read_bytes()
        outcomes: Counter[str] = Counter()
        for at in range(100, PAGE, 61):
            path = tmp_path / f"{at}.db"
            await anyio.Path(path).write_bytes(whole[:at] + bytes([whole[at] ^ 0xA5]) + whole[at + 1 :])
            try:
                async with open_sqlite(path) as store:
                    page = await store.read(HERE)
                    await store.append(HERE, [b"y"])
            except LaminaError:
                outcomes["typed"] += 1
            else:
                assert len(page.records) == 20
        return outcomes

    assert anyio.run(trial)["typed"] > 5


# Files as a whole.


def test_a_file_that_lost_its_version_is_damaged(path: Path) -> None:
    filled(path)
    changed(path, "PRAGMA user_version=0")
    with pytest.raises(Damaged):
        with_store(path, lambda store: store.read(HERE))


def test_a_file_that_was_cut_to_nothing_is_no_new_store(path: Path) -> None:
    filled(path)
    path.write_bytes(b"")
    with pytest.raises(Damaged, match="is empty"):
        with_store(path, lambda store: store.read(HERE))
    assert path.read_bytes() == b""


def test_a_new_file_whose_making_was_cut_short_is_made_again(path: Path) -> None:
    path.write_bytes(b"")
    new = path.with_name("chats.db-new")
    new.write_bytes(b"")
    with_store(path, lambda store: store.append(HERE, [b"x"]))
    assert not new.exists()
    path.write_bytes(b"")
    with pytest.raises(StoreError):
        with_store(path, lambda store: store.read(HERE))


def test_another_letter_in_the_name_of_a_workspace_hides_no_other_conversation(path: Path) -> None:
    """A name is in its row and in the index. Each place in turn gets a letter that sorts last."""
    places = [Where("space-a", name) for name in ("first", "second", "third")]
    places += [Where("space-b", name) for name in ("first", "second")]

    async def write(store: SqliteStore) -> None:
        for where in places:
            await store.append(where, [b"body"])

    async def list_b(store: SqliteStore) -> list[str]:
        return [item.conversation for item in await store.list("space-b")]

    with_store(path, write)
    whole = path.read_bytes()
    damaged_places = [at for at in range(len(whole)) if whole.startswith(b"space-athird", at)]
    assert len(damaged_places) > 1
    for at in damaged_places:
        path.write_bytes(whole[: at + 6] + b"z" + whole[at + 7 :])
        try:
            assert with_store(path, list_b) == ["first", "second"]
        except Damaged:
            continue
