"""The suite of the Claude Agent SDK for session stores, over lamina's stores, and what it does not ask."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "claude_agent_sdk", reason="claude-agent-sdk is not installed: run `make adapters` to test it"
)

from claude_agent_sdk import InMemorySessionStore
from claude_agent_sdk.testing import run_session_store_conformance

from lamina.adapters.claude_agent import LaminaSessionStore

KEY: Any = {"project_key": "shop", "session_id": "one"}


SUITE = "claude_agent_sdk session stores"


@pytest.mark.parametrize("kind", ["memory:", "files:"])
def test_the_suite_of_the_sdk(kind: str, tmp_path: Path, record_property: Any) -> None:
    numbers = count()

    def make_store() -> LaminaSessionStore:
        return LaminaSessionStore(f"{kind}{tmp_path / str(next(numbers))}")

    asyncio.run(run_session_store_conformance(make_store))
    record_property(f"{SUITE}, LaminaSessionStore {kind[:-1]}", "14/14 contracts")


def test_the_suite_over_its_own_store(record_property: Any) -> None:
    asyncio.run(run_session_store_conformance(InMemorySessionStore))
    record_property(f"{SUITE}, InMemorySessionStore (official)", "14/14 contracts")


def test_an_entry_that_comes_again_is_stored_once_and_all_is_there_after_a_restart(tmp_path: Path) -> None:
    entries: list[Any] = [
        {"type": "user", "uuid": "a", "message": {"content": "hi"}},
        {"type": "mode"},
        {"type": "mode"},
    ]

    async def use() -> list[Any] | None:
        address = str(tmp_path / "chats.db")
        first = LaminaSessionStore(address)
        await first.append(KEY, entries)
        await first.append(KEY, entries[:1])
        first.store.close()
        return await LaminaSessionStore(address).load(KEY)

    assert asyncio.run(use()) == entries


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    async def write() -> list[Any] | None:
        stores = [LaminaSessionStore(f"files:{tmp_path}", clock=lambda: 1.0) for _ in range(3)]
        appends = [
            store.append(KEY, [{"type": "user", "uuid": f"{number}-{step}"}])
            for number, store in enumerate(stores)
            for step in range(5)
        ]
        await asyncio.gather(*appends)
        assert (await stores[0].list_sessions("shop"))[0]["mtime"] == 1014
        return await stores[0].load(KEY)

    entries = asyncio.run(write())
    assert entries is not None
    assert len({entry["uuid"] for entry in entries}) == 15
