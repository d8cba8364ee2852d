"""Capability 38, of system 004: trimming stands before each call. Its rows 35 to 37 are in tests/seeds."""

from __future__ import annotations

import json
from typing import Any

from lamina import Budget, fit_request
from lamina.agent import Agent, open_for
from lamina.clients.scripted import ScriptedClient
from lamina.stores.memory import MemoryStore
from tests.capabilities.walking import NO_SETTINGS, awaited


@awaited
async def test_38_a_hook_sees_each_request_before_it_is_sent_and_may_change_it() -> None:
    seen: list[int] = []

    async def before(session: Any, request: dict[str, Any]) -> dict[str, Any]:
        seen.append(len(session.log))
        return request | {"user": "ana"}

    client = ScriptedClient(["One.", "Two."])
    helper = Agent(client=client, before=(before,))
    async with open_for(helper, MemoryStore(), "chat", model="gpt-5", settings=NO_SETTINGS) as session:
        await helper.run(session, "1")
        await helper.run(session, "2")
    assert [request["user"] for request in client.requests] == ["ana", "ana"]
    assert len(seen) == 2


def test_38_trimming_stands_before_any_call_of_an_sdk() -> None:
    wire_log: list[dict[str, Any]] = [{"role": "user", "content": "Read them."}]
    ledger = None
    for number in range(20):
        function = {"name": "read", "arguments": json.dumps({"path": f"{number}.py"})}
        wire_log += [
            {"role": "assistant", "content": None,
             "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": "line of code\n" * 60},
        ]  # fmt: skip
        request = {"model": "gpt-4o", "messages": wire_log}
        fitted = fit_request(request, budget=Budget(window=4_000, reserve=500), ledger=ledger)
        ledger = json.loads(json.dumps(fitted.ledger.dump()))
        assert fitted.envelope.tokens <= 3_500
    assert fitted.ledger.cuts
    assert fitted.request["messages"][0] == wire_log[0]
