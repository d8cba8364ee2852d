"""Long tool loops with a model that binds its thinking, against a server that enforces the binding."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import anthropic
import pytest

from lamina import BudgetExceeded, Policy, wrap
from lamina.core.tokens import STRICT
from lamina.dialects.anthropic.server import BETAS, BINDING_BETA
from tests.servers.bound_thinking import BoundModel, bound_model
from tests.wrapped.scripted_api import Call, Said, Thought

TOOLS = [{"name": "bash", "description": "Run a command.", "input_schema": {"type": "object"}}]
REQUEST: dict[str, Any] = {
    "model": "claude-opus-5-5",
    "max_tokens": 500,
    "tools": TOOLS,
    "thinking": {"type": "adaptive"},
}
HANDLE = re.compile(r'recall[(=]\\*"([a-z0-9-]+)')
LINES = 60
STEPS = 16
WINDOW = 6_000


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
        return [
            Thought(f"I go on with {done + 1}."),
            Call("bash", {"command": str(done)}, f"call_{done + 1}"),
        ]

    return script


def write_result(call: dict[str, Any]) -> dict[str, Any]:
    text = "".join(f"line {number} of {call['id']}\n" for number in range(LINES))
    return {"type": "tool_result", "tool_use_id": call["id"], "content": text}


def run_loop(create: Any, *, write: Any = write_result, **more: Any) -> tuple[str, list[Any]]:
    """What a client with a tool loop does: send everything, run the command, append its result."""
    messages: list[Any] = [{"role": "user", "content": "Run the commands."}]
    while True:
        answer = create(**(REQUEST | more), messages=messages)
        content = [block.model_dump(mode="json", exclude_unset=True) for block in answer.content]
        messages.append({"role": "assistant", "content": content})
        calls = [block for block in content if block["type"] == "tool_use"]
        if not calls:
            return str(content[-1]["text"]), messages
        messages.append({"role": "user", "content": [write(call) for call in calls]})


def open_bare(model: BoundModel) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=model.url, api_key="none", max_retries=0)


def open_wrapped(model: BoundModel, *, window: int = 1_500, **more: Any) -> Any:
    return wrap(open_bare(model), policy=Policy(budget=window, counter=STRICT, **more))


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
    script = make_script(STEPS, recall_at=(9, 10, STEPS - 2))
    with bound_model(script) as model, open_wrapped(model, window=WINDOW) as client:
        said, _ = run_loop(client.messages.create, model=name, extra_headers={BETAS: "mine-2026"})
    assert model.refused == []
    assert said == f"Done after {STEPS}."
    check_recall_stays(model)
    assert all("mine-2026" in betas for betas in model.betas)
    recalled = [request for request in model.requests if "recall_14" in json.dumps(request["messages"][-1])]
    assert "of call_" in json.dumps(recalled[0]["messages"][-1]), "what was left out came back"


def test_the_same_in_streams() -> None:
    script = make_script(STEPS, recall_at=(STEPS - 2,))
    with bound_model(script) as model, open_wrapped(model, window=WINDOW) as client:

        def create(**request: Any) -> Any:
            with client.messages.stream(**request) as stream:
                return stream.get_final_message()

        said, _ = run_loop(create)
    assert model.refused == []
    assert said == f"Done after {STEPS}."
    check_recall_stays(model)


def test_a_server_that_refuses_the_switch_is_asked_again_without_it() -> None:
    """The loop goes on as far as the room allows without a cut, and the error then says why."""
    with bound_model(make_script(STEPS), knows_switch=False) as model, open_wrapped(model) as client:
        with pytest.raises(BudgetExceeded, match="model's thinking in the open tool loop") as caught:
            run_loop(client.messages.create)
        assert [problem for problem in model.refused if "block_binding" not in problem] == []
        assert len(model.refused) == 1, "the client remembers that the server refused it"
        assert "tools" not in dict(caught.value.segments)
        assert not any(model.binding.switched)


def test_the_fallback_leaves_out_earlier_thinking_and_keeps_what_the_server_wants() -> None:
    """With thoughts that are longer than the results, the loop goes on without them."""

    def script(request: dict[str, Any]) -> Said:
        done = read_step(request)
        if done >= 40:
            return ["Done."]
        thought = Thought(f"I think about {done}. " + "So it goes. " * 150)
        return [thought, Call("bash", {"command": str(done)}, f"call_{done + 1}")]

    def write_short_result(call: dict[str, Any]) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": call["id"], "content": "done"}

    with bound_model(script, knows_switch=False) as model, open_wrapped(model, window=WINDOW) as client:
        said, _ = run_loop(client.messages.create, write=write_short_result)
        cuts = client.fitted.ledger.cuts
    assert said == "Done."
    assert model.refused == ["thinking.adaptive.block_binding: Extra inputs are not permitted"]
    assert cuts
    assert len(model.binding.left_out) > 20


def test_thinking_from_before_the_ledger_was_lost_is_dropped_by_the_server() -> None:
    """It is bound to what was sent then. The next client knows only that the server refuses it."""
    with bound_model(make_script(STEPS)) as model:
        with open_wrapped(model, window=WINDOW) as client:
            _, messages = run_loop(client.messages.create)
        with open_wrapped(model, window=200_000) as client:
            for number in range(3):
                messages.append({"role": "user", "content": f"And now? {number}"})
                answer = client.messages.create(**REQUEST, messages=messages)
                content = [block.model_dump(mode="json", exclude_unset=True) for block in answer.content]
                messages.append({"role": "assistant", "content": content})
            reasons = [cut.reason for cut in client.fitted.ledger.cuts]
    assert len(model.refused) == 1
    assert "bound to a different conversation" in model.refused[0]
    assert reasons == ["the provider refused thinking that belongs to another past"]


def test_a_caller_who_wants_the_refusal_gets_it() -> None:
    thinking = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}
    with bound_model(make_script(STEPS)) as model:
        with open_wrapped(model, window=WINDOW) as client:
            _, messages = run_loop(client.messages.create)
        messages.append({"role": "user", "content": "And now?"})
        request = REQUEST | {"thinking": thinking, "extra_headers": {BETAS: BINDING_BETA}}
        with (
            open_wrapped(model, window=200_000) as client,
            pytest.raises(anthropic.BadRequestError, match="bound to a different conversation"),
        ):
            client.messages.create(**request, messages=messages)
    assert len(model.refused) == 1


def test_whoever_turns_the_switch_off_gets_the_error_that_names_thinking() -> None:
    thinking = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}
    with (
        bound_model(make_script(STEPS)) as model,
        open_wrapped(model) as client,
        pytest.raises(BudgetExceeded, match="thinking"),
    ):
        run_loop(client.messages.create, thinking=thinking, extra_headers={BETAS: BINDING_BETA})
    assert model.refused == []


def test_the_server_refuses_what_the_api_would_refuse() -> None:
    """The test server itself: a changed past, thinking that comes back, a gap, a latest message without."""
    with bound_model(make_script(STEPS)) as model, open_bare(model) as bare:
        with pytest.raises(StopAsyncIteration):
            run_loop(stop_after(bare.messages.create, 5))
        messages = model.requests[-1]["messages"]

        def send(changed: list[Any], **more: Any) -> str:
            before = len(model.refused)
            with suppress(anthropic.BadRequestError):
                bare.messages.create(
                    model="claude-opus-5-5",
                    max_tokens=9,
                    messages=changed,
                    **({"tools": TOOLS, "thinking": {"type": "adaptive"}} | more),
                )
            return " ".join(model.refused[before:])

        assert send(messages) == ""
        assert "messages.1.content.0" in send([{"role": "user", "content": "Run them."}, *messages[1:]])
        assert "bound to a different conversation" in send(messages, tools=[*TOOLS, TOOLS[0] | {"name": "b"}])
        assert "cannot be modified" in send([*messages[:-2], without_thinking(messages[-2]), messages[-1]])
        gap = [*messages[:3], without_thinking(messages[3]), *messages[4:]]
        assert "messages.5.content.0" in send(gap)
        assert send([without_thinking(message) for message in messages[:-2]] + messages[-2:]) == ""
        assert "messages.1.content.0" in send(messages), "what was left out comes back"
        switch = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
        assert "Extra inputs" in send(messages, thinking=switch)
        assert send(messages, thinking=switch, extra_headers={BETAS: BINDING_BETA}) == ""


def without_thinking(message: dict[str, Any]) -> dict[str, Any]:
    if isinstance(message["content"], str):
        return message
    return {**message, "content": [block for block in message["content"] if block["type"] != "thinking"]}


def stop_after(create: Any, calls: int) -> Any:
    numbers = iter(range(calls))

    def limited(**request: Any) -> Any:
        if next(numbers, None) is None:
            raise StopAsyncIteration
        return create(**request)

    return limited
