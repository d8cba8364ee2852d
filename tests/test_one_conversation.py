"""A conversation that was begun at one door goes on at another, over the same store, with its prefix kept."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import openai
import pytest

import lamina
from lamina import Budget, Policy
from lamina.conversations.store import list_conversations, read_record
from lamina.stores import open_store
from lamina.wrapped import conversation
from tests.gateway.growing import chat_request
from tests.gateway.running import run_gateway, settings_for
from tests.gateway.upstream_stub import Stub, run_stub

WINDOW, RESERVE = 8_000, 500


def wrapped(url: str, store: Path, name: str, *, keep: Any = "lowered") -> Any:
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
    policy = Policy(budget=Budget(window=WINDOW, reserve=RESERVE), keep=keep)
    wrapped_client = lamina.wrap(client, policy=policy, store=store)
    return conversation(wrapped_client, name) if name else wrapped_client


async def ask(client: Any, steps: int, headers: dict[str, str] | None = None) -> None:
    request = chat_request(steps)
    await client.chat.completions.create(**request, extra_headers=headers or {})


def shared(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether a request has all messages of the one before it."""
    return bool(after["messages"][: len(before["messages"])] == before["messages"])


@pytest.mark.parametrize("name", ["", "support-42"], ids=["found", "named"])
def test_the_gateway_goes_on_where_a_wrapped_client_ended(name: str, tmp_path: Path) -> None:
    store = tmp_path / "chats.db"
    headers = {"x-lamina-conversation": name} if name else {}

    async def talk(stub: Stub) -> None:
        client = wrapped(stub.url, store, name)
        for steps in range(15):
            await ask(client, steps)
        await client.close()
        settings = settings_for(stub, store, upstream={"budget": Budget(window=WINDOW, reserve=RESERVE)})
        async with (
            run_gateway(settings) as gateway,
            openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="k") as plain,
        ):
            for steps in (15, 16):
                await ask(plain, steps, headers)
        again = wrapped(stub.url, store, name)
        await ask(again, 17)
        await again.close()

    async def main() -> list[dict[str, Any]]:
        async with run_stub() as stub:
            await talk(stub)
            return [seen.json for seen in stub.seen if seen.method == "POST"]

    sent = asyncio.run(main())
    assert len(sent) == 18
    assert len(sent[14]["messages"]) < len(chat_request(14)["messages"])  # it was cut before
    for before, after in pairwise(sent[14:]):
        assert shared(before, after)

    async def read() -> list[tuple[int, set[str]]]:
        async with open_store(str(store)) as opened:
            names = [kept.name async for kept in list_conversations(opened, "default")]
            records = [await read_record(opened, "default", name) for name in names]
            return [(len(r.calls), {call.request.door for call in r.calls}) for r in records]

    assert asyncio.run(read()) == [(18, {"wrap", "gateway"})]
