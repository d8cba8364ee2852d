"""Which addresses name a store, and what is said of the others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lamina.errors import BadInput, StoreError
from lamina.settings import Settings
from lamina.stores import open_store
from lamina.stores.address import open_default_store, resolve_key
from lamina.stores.sealed import generate, init_file
from tests.sessions.talking import awaited


@pytest.mark.parametrize(
    ("address", "message"),
    [("redis:chats", "no kind of store is called 'redis'"), ("", "the address is empty")],
)
@awaited
async def test_an_address_that_names_no_store_is_refused(address: str, message: str) -> None:
    with pytest.raises(BadInput, match=re.escape(message)):
        async with open_store(address):
            pass


@pytest.mark.parametrize("address", ["C:chats.db", "./a:b.db"])
@awaited
async def test_a_path_with_a_colon_is_a_path(
    address: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(str(tmp_path))
    async with open_store(address):
        pass


@awaited
async def test_a_folder_that_cannot_be_made_for_the_users_own_store_is_named(tmp_path: Path) -> None:
    in_the_way = tmp_path / "share"
    in_the_way.write_text("a file where the folder would be")
    settings = Settings(store=str(in_the_way / "lamina" / "conversations.db"))
    with pytest.raises(StoreError, match=re.escape(f"{in_the_way / 'lamina'}")) as caught:
        async with open_default_store(settings):
            pass
    assert "check its permissions, or name another store" in str(caught.value)


@awaited
async def test_a_key_that_is_given_seals_the_store_whatever_the_environment_says(tmp_path: Path) -> None:
    """If it were lost on the way, the store would be plain and nobody would notice."""
    key = generate()
    empty = Settings()
    assert await resolve_key(key, empty, {}) is key
    assert await resolve_key(key, empty, {"LAMINA_KEY": "00" * 32}) is key
    assert await resolve_key(None, empty, {}) is None
    path = tmp_path / "key"
    init_file(str(path))
    of_file = await resolve_key(path, empty, {})
    assert of_file is not None
    assert await resolve_key(None, Settings(key_file=str(path)), {}) == of_file
    assert await resolve_key(key, Settings(key_file=str(path)), {}) is key
