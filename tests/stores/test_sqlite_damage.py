# ruff: noqa: ASYNC240 - nothing else runs in the event loops of these tests
"""Damaged SQLite files: what is other than it was written raises, and is never read as something else.

Damaged rows of single tables are in `test_damage`, with those of PostgreSQL.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from lamina.errors import Damaged, LaminaError, StoreError
from lamina.stores import ListedConversation, Where, open_sqlite
from lamina.testing._store_trial import expect_error
from tests.sessions.talking import awaited
from tests.stores.damaged import HERE, DamagedSqlite

PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


@pytest.fixture
def damaged(path: Path) -> DamagedSqlite:
    database = DamagedSqlite(path)
    anyio.run(database.fill)
    return database


LOST = {
    "a conversation that is gone": "DELETE FROM conversation WHERE name = 'here'",
    "another name": "UPDATE conversation SET name = 'herd' WHERE name = 'here'",
    "a name that comes later": "UPDATE conversation SET name = 'zzz' WHERE name = 'here'",
    "another workspace": "UPDATE conversation SET workspace = 'a' WHERE name = 'here'",
}


@pytest.mark.parametrize("damage", LOST.values(), ids=LOST.keys())
@awaited
async def test_a_conversation_that_is_lost_is_missed(damaged: DamagedSqlite, damage: str) -> None:
    damaged.change(damage)
    async with damaged.open() as store:
        for call in (
            store.read(HERE),
            store.append(HERE, [b"anew"], expect=0),
            store.list("w"),
            store.list("w", limit=1),
        ):
            assert (await expect_error(call, Damaged)).conversation == "here"


@awaited
async def test_the_end_of_a_list_that_is_lost_is_missed(damaged: DamagedSqlite) -> None:
    damaged.change("DELETE FROM conversation WHERE name = 'other'")
    async with damaged.open() as store:
        assert (await expect_error(store.list("w"), Damaged)).conversation == "other"
        assert (await expect_error(store.list("w", after="here"), Damaged)).conversation == "other"
        assert list(await store.list("w", limit=1)) == [ListedConversation(conversation="here", count=4)]


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


@awaited
async def test_a_file_that_lost_its_version_is_damaged(damaged: DamagedSqlite) -> None:
    damaged.change("PRAGMA user_version=0")
    with pytest.raises(Damaged):
        async with damaged.open():
            pass


@awaited
async def test_a_file_that_was_cut_to_nothing_is_no_new_store(damaged: DamagedSqlite, path: Path) -> None:
    path.write_bytes(b"")
    with pytest.raises(Damaged, match="is empty"):
        async with damaged.open():
            pass
    assert path.read_bytes() == b""


@awaited
async def test_a_new_file_whose_making_was_cut_short_is_made_again(path: Path) -> None:
    damaged = DamagedSqlite(path)
    path.write_bytes(b"")
    new = path.with_name("chats.db-new")
    new.write_bytes(b"")
    async with damaged.open() as store:
        await store.append(HERE, [b"x"])
    assert not new.exists()
    path.write_bytes(b"")
    with pytest.raises(StoreError):
        async with damaged.open():
            pass


@awaited
async def test_another_letter_in_the_name_of_a_workspace_hides_no_other_conversation(path: Path) -> None:
    """A name is in its row and in the index. Each place in turn gets a letter that sorts last."""
    damaged = DamagedSqlite(path)
    places = [Where("space-a", name) for name in ("first", "second", "third")]
    places += [Where("space-b", name) for name in ("first", "second")]

    async with damaged.open() as store:
        for where in places:
            await store.append(where, [b"body"])
    whole = path.read_bytes()
    damaged_places = [at for at in range(len(whole)) if whole.startswith(b"space-athird", at)]
    assert len(damaged_places) > 1
    for at in damaged_places:
        path.write_bytes(whole[: at + 6] + b"z" + whole[at + 7 :])
        with suppress(Damaged):
            async with damaged.open() as store:
                assert [item.conversation for item in await store.list("space-b")] == ["first", "second"]
