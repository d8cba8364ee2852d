"""Long tool loops with a model that binds its thinking, against a server that enforces the binding."""

from __future__ import annotations

import json
import re
from typing import Any

import anthropic
import pytest

from lamina import Budget, BudgetExceeded
from lamina.core.tokens import STRICT
from lamina.dialects.anthropic.server import BINDING_BETA
from lamina.fitting import ServerHelp, wrap
from tests.fitting.scripted_api import Call, Said, Thought
from tests.servers.bound_thinking import BoundModel, bound_model

TOOLS = [{"name": "bash", "description": "Run a command.", "input_schema": {"type": "object"}}]
HANDLE = re.compile(r'recall[(=]\\*"([a-z0-9-]+)')
LINES = 120
WINDOW = 12_000


def read_step(request: dict[str, Any]) -> int:
    """How many commands the model has run, by the ids of its calls."""
    return max(map(int, re.findall(r"call_([0-9]+)", json.dumps(request["messages"][-3:]))), default=0)


def make_script(steps: int, *, recall_at: tuple[int, ...] = ()) -> Any:
    """A model that thinks, runs a command in each step, and recalls once at some of them."""

    def script(request: dict[str, Any]) -> Said:
        done = read_step(request)
        handles = HANDLE.findall(json.dumps(request["messages"]))
        recent = json.dumps(request["messages"][-3:])
        has_tool = any(tool["name"] == "recall" for tool in request["tools"])
        if done in recall_at and handles and has_tool and f"recall_{done}" not in recent:
            return [Thought(f"What was it? {done}"), Call("recall", {"key": handles[0]}, f"recall_{done}")]
        if done >= steps:
            return [Thought("I am done."), f"Done after {done}."]
        return [Thought(f"I go on with {done + 1}."), Call("bash", {"command": str(done)}, f"call_{done + 1}")]

    return script


def run_loop(create: Any, *, model: str = "claude-opus-5-5", **more: Any) -> tuple[str, list[Any]]:
    """What a client with a tool loop does: send everything, run the command, append its result."""
    messages: list[Any] = [{"role": "user", "content": "Run the commands."}]
    while True:
        answer = create(
            model=model, max_tokens=500, tools=TOOLS, messages=messages, thinking={"type": "adaptive"}, **more
        )
        content = [block.model_dump(mode="json", exclude_unset=True) for block in answer.content]
        messages.append({"role": "assistant", "content": content})
        calls = [block for block in content if block["type"] == "tool_use"]
        if not calls:
            return str(content[-1]["text"]), messages
        messages.append({"role": "user", "content": [write_result(call) for call in calls]})


def write_result(call: dict[str, Any]) -> dict[str, Any]:
    text = "".join(f"line {number} of {call['id']}\n" for number in range(LINES))
    return {"type": "tool_result", "tool_use_id": call["id"], "content": text}


def names_of(request: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in request["tools"]]


def check_recall_stays(model: BoundModel) -> None:
    """The recall tool came once and stayed, and with it came the switch."""
    offered = ["recall" in names_of(request) for request in model.requests]
    assert offered == sorted(offered)
    assert offered[-1]
    assert model.binding.switched == offered
    assert [BINDING_BETA in betas for betas in model.betas] == offered


@pytest.mark.parametrize("name", ["claude-opus-5-5", "claude-sonnet-5-5", "claude-fable-5-1"])
def test_a_wrapped_client_goes_through_a_loop_far_longer_than_the_window(name: str) -> None:
    with bound_model(make_script(30, recall_at=(14, 15, 28))) as model:
        bare = anthropic.Anthropic(base_url=model.url, api_key="none", max_retries=0)
        with wrap(bare, budget=Budget(window=WINDOW), counter=STRICT) as client:
            said, _ = run_loop(client.messages.create, model=name, extra_headers={BETAS: "mine-2026"})
    assert model.refused == []
    assert said == "Done after 30."
    check_recall_stays(model)
    assert all("mine-2026" in betas for betas in model.betas)
    recalled = [request for request in model.requests if "recall_28" in json.dumps(request["messages"][-1])]
    assert "of call_" in json.dumps(recalled[0]["messages"][-1]), "what was left out came back"


BETAS = "anthropic-beta"


def test_the_same_in_streams() -> None:
    with bound_model(make_script(20, recall_at=(14,))) as model:
        bare = anthropic.Anthropic(base_url=model.url, api_key="none", max_retries=0)
        with wrap(bare, budget=Budget(window=WINDOW), counter=STRICT) as client:

            def create(**request: Any) -> Any:
                with client.messages.stream(**request) as stream:
                    return stream.get_final_message()

            said, _ = run_loop(create)
    assert model.refused == []
    assert said == "Done after 20."
    check_recall_stays(model)
