"""Which addresses name a store, and what is said of the others."""

from __future__ import annotations

import re

import pytest

from lamina.errors import BadInput
from lamina.stores.address import open_store
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
