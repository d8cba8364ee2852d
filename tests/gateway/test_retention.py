"""A gateway deletes what is beyond the limits of its settings, and nothing without them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from lamina.conversations.store import conversation_place, decode_state, list_conversations
from lamina.gateway import app
from lamina.stores.address import open_store
from tests.gateway.growing import messages_request
from tests.gateway.running import open_client, run_gateway, settings_for
from tests.gateway.test_record import post
from tests.gateway.upstream_stub import run_stub


async def age(store: Path, task: str) -> None:
    """Make the conversation with this title a year older."""
    async with open_store(str(store)) as opened:
        for kept in [kept async for kept in list_conversations(opened, "default")]:
            where = conversation_place("default", kept.name)
            source = (await opened.read(where, last=0)).head.state
            state = decode_state(source)
            if state.title == task:
                older = msgspec.structs.replace(state, updated=state.updated - 366 * 86_400)
                await opened.append(where, [], was=source, state=msgspec.json.encode(older))


@pytest.mark.parametrize(("days", "titles"), [(30, {"New."}), (None, {"Old.", "New."})])
def test_old_conversations_are_deleted(
    days: int | None, titles: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "gateway.db"
    monkeypatch.setattr(app, "FIRST_PRUNE", 0.05)

    async def main() -> set[str]:
        async with run_stub() as stub, open_client() as client:
            settings = settings_for(stub, store, keep="all", keep_days=days)
            async with run_gateway(settings_for(stub, store, keep="all")) as gateway:
                for task in ("Old.", "New."):
                    await post(client, gateway.url, messages_request(1, task=task))
            await age(store, "Old.")
            async with run_gateway(settings) as gateway:
                for _ in range(40):
                    await asyncio.sleep(0.05)
                    if gateway.events("pruned"):
                        break
        async with open_store(str(store)) as opened:
            return {kept.state.title async for kept in list_conversations(opened, "default")}

    assert asyncio.run(main()) == titles
