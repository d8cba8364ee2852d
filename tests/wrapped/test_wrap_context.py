"""The context tool of a wrapped client: official SDKs, whole answers and streams, forks and rewinds."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest

import lamina
from lamina import Policy
from lamina.core.tokens import BYTES4
from tests.sessions.talking import awaited
from tests.wrapped.scripted_api import Call, Said, scripted_api
from tests.wrapped.test_wrap_recall import (
    BUDGET,
    FACT,
    Api,
    ask_events,
    ask_whole,
    close,
    each_api,
    flatten,
    prefixes_hold,
    user,
)

WAYS = pytest.mark.parametrize("ask", [ask_whole, ask_events], ids=["whole", "events"])


def wrap(api: Api, url: str) -> Any:
    module: Any = anthropic if api.name == "messages" else openai
    name = ("Async" if api.is_async else "") + ("Anthropic" if api.name == "messages" else "OpenAI")
    address = url if api.name == "messages" else f"{url}/v1"
    client = getattr(module, name)(base_url=address, api_key="none", max_retries=0)
    policy = Policy(counter=BYTES4, breakpoints="keep", context_tools=True)
    return lamina.wrap(client, budget=BUDGET, policy=policy)


def script_for(api: Api) -> Any:
    """A model that pins the fact as soon as it has the tool, and talks at length otherwise."""

    def script(request: dict[str, Any]) -> Said:
        last = flatten(api.turns(request)[-1])
        if "keep?" in last and "context" in flatten(request["tools"]):
            return ["I will.", Call("context", {"action": "pin", "what": FACT}, "p1")]
        if "pinned: " in last:
            return ["It stays."]
        if "Part 0?" in last:
            return [f"{FACT} " + "Go on. " * 40]
        return ["Go on. " * 240]

    return script


@WAYS
@each_api
@awaited
async def test_a_pin_is_answered_inside_the_call_and_holds_in_this_branch_alone(api: Api, ask: Any) -> None:
    with scripted_api(script_for(api)) as served:
        client = wrap(api, served.url)
        history: list[Any] = []
        for part in range(9):
            history.append(user(f"Part {part}?"))
            history += (await ask(api, client, history))[0]
        before_pin = list(history)
        start = len(served.requests)
        history.append(user("Will you keep?"))
        turns, text = await ask(api, client, history)
        assert text.endswith("It stays.")
        assert len(served.requests) == start + 2
        prefixes_hold(api, served.requests, start)
        history += turns
        for part in range(9, 18):
            history.append(user(f"Part {part}?"))
            history += (await ask(api, client, history))[0]
            assert FACT in flatten(served.requests[-1])
        assert '"context"' not in flatten(history)
        other = before_pin
        for part in range(20, 29):
            other.append(user(f"Part {part}?"))
            other += (await ask(api, client, other))[0]
        assert "p1" not in flatten(served.requests[-1])
        await close(client)
