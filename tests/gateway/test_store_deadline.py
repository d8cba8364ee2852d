"""A store that hangs: one request waits for it once, and who asks whether it is there is answered sooner."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from lamina.errors import StoreError
from lamina.fitting import Policy
from lamina.gateway import GatewaySettings
from lamina.relay import store_access
from lamina.relay.store_access import LAST_TRY, READY_SECONDS, GatewayStore, StoreGone
from lamina.stores import SqliteStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def answers() -> list[str]:
    """Empty as long as the store hangs."""
    return []


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch, answers: list[str]) -> list[float]:
    """How long each call waits for a store that hangs. The clock moves by that much, and nobody waits."""
    seconds: list[float] = []

    real_wait = asyncio.wait

    async def wait(tasks: Any, **limit: float) -> tuple[set[Any], set[Any]]:
        if answers:
            return await real_wait(tasks)
        seconds.append(limit["timeout"])
        for task in tasks:
            task.cancel()
        return set(), set(tasks)

    monkeypatch.setattr("lamina.relay.store_access.asyncio.wait", wait)
    monkeypatch.setattr(store_access, "monotonic", lambda: 1_000 + sum(seconds))
    return seconds


async def test_all_calls_of_one_request_wait_as_long_as_one_may(
    waits: list[float], answers: list[str]
) -> None:
    """And so do those after it, as long as the store has not answered again."""
    store = GatewayStore(GatewaySettings(policy=Policy(keep="nothing")))
    with store.wait_once():
        for _ in range(3):
            with pytest.raises(StoreGone):
                await store.load_head("default", "name")
    with pytest.raises(StoreGone):
        await store.load("default", "name")
    assert waits == [5.0, LAST_TRY, LAST_TRY, LAST_TRY]
    answers.append("from now on")
    assert await store.load("default", "name") is None
    answers.clear()
    with pytest.raises(StoreGone):
        await store.load("default", "name")
    assert waits[-1] == 5.0
    await store.close()


async def test_a_request_that_waits_for_others_gives_the_store_no_less_time(
    waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under load, its turn came after five seconds, and a store that took half a second counted as gone."""
    store = GatewayStore(GatewaySettings(policy=Policy(keep="nothing")))
    with store.wait_once():
        monkeypatch.setattr(store_access, "monotonic", lambda: 1_005 + sum(waits))
        with pytest.raises(StoreGone):
            await store.load_head("default", "name")
    assert waits == [5.0]
    await store.close()


def test_a_store_that_is_missing_or_full_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite would go on in a file that was deleted, and what is full can still be read."""
    folder = tmp_path / "kept"

    async def refuse(*_: object) -> None:
        raise StoreError("the disk is full")

    async def main() -> list[bool]:
        folder.mkdir()
        store = GatewayStore(GatewaySettings(store=str(folder / "gateway.db")))
        ready = [await store.is_ready()]
        shutil.rmtree(folder)
        ready.append(await store.is_ready())
        folder.mkdir()
        ready.append(await store.is_ready())
        with monkeypatch.context() as patch:
            patch.setattr(SqliteStore, "_append_group", refuse)
            ready.append(await store.is_ready())
        ready.append(await store.is_ready())
        await store.close()
        return ready

    assert asyncio.run(main()) == [True, False, True, False, True]


async def test_whether_the_store_is_there_is_said_before_a_health_check_gives_up(waits: list[float]) -> None:
    store = GatewayStore(GatewaySettings(policy=Policy(keep="nothing")))
    assert not await store.is_ready()
    assert waits == [READY_SECONDS]
    assert READY_SECONDS < 3
