"""A store that hangs: one request waits for it once, and who asks whether it is there is answered sooner."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lamina.fitting.policy import Policy
from lamina.gateway import conversation_store
from lamina.gateway.config import GatewaySettings
from lamina.gateway.conversation_store import LAST_TRY, READY_SECONDS, GatewayStore, StoreGone


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each call waits for a store that hangs. The clock moves by that much, and nobody waits."""
    seconds: list[float] = []

    async def wait(tasks: Any, **limit: float) -> tuple[set[Any], set[Any]]:
        seconds.append(limit["timeout"])
        for task in tasks:
            task.cancel()
        return set(), set(tasks)

    monkeypatch.setattr("lamina.gateway.conversation_store.asyncio.wait", wait)
    monkeypatch.setattr(conversation_store, "monotonic", lambda: 1_000 + sum(seconds))
    return seconds


def test_all_calls_of_one_request_wait_as_long_as_one_may(waits: list[float]) -> None:
    async def main() -> None:
        store = GatewayStore(GatewaySettings(policy=Policy(keep="nothing")))
        with store.wait_once():
            for _ in range(3):
                with pytest.raises(StoreGone):
                    await store.load_family("default", "family")
        assert waits == [5.0, LAST_TRY, LAST_TRY]
        with pytest.raises(StoreGone):
            await store.load("default", "name")
        assert waits[-1] == 5.0

    asyncio.run(main())


def test_whether_the_store_is_there_is_said_before_a_health_check_gives_up(waits: list[float]) -> None:
    async def main() -> None:
        store = GatewayStore(GatewaySettings(policy=Policy(keep="nothing")))
        assert not await store.is_ready()
        assert waits == [READY_SECONDS]
        assert READY_SECONDS < 3

    asyncio.run(main())
