"""Haystack's agent over a scripted generator, with lamina's hooks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("haystack.hooks", reason="haystack-ai is not installed: run `make adapters` to test it")

from haystack import component
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator, OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage, ImageContent, ReasoningContent, ToolCall
from haystack.tools import create_tool_from_function
from haystack.utils import Secret

from lamina.adapters.bridge import Turn
from lamina.adapters.chat_turns import write_output_format, write_tool
from lamina.adapters.haystack import CODEC, LEDGER, FitHook, make_hooks, recall_tool
from lamina.fitting import Policy
from tests.adapters import over_wire
from tests.adapters.long_answer import ANSWER_TEXT, MARK, LongAnswer
from tests.adapters.long_session import BUDGET, SYSTEM, Script, check_counts, check_session, read_page

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@component
class ScriptedGenerator:
    """Answers as the script says, and records what it gets."""

    model = "gpt-5"

    def __init__(self, script: Script, generation_kwargs: dict[str, Any] | None = None) -> None:
        self.script = script
        self.generation_kwargs = generation_kwargs or {}

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None, **_: Any) -> dict[str, Any]:
        turns = [turn for message in messages for turn in CODEC.write(message)]
        definitions = [write_tool(each.name, each.description, each.parameters) for each in tools or ()]
        output_format = write_output_format(self.generation_kwargs.get("response_format"))
        answer = self.script.answer(turns, definitions, model=self.model, **output_format)
        meta = {"usage": {"prompt_tokens": answer.tokens, "completion_tokens": 9}}
        if not answer.name:
            return {"replies": [ChatMessage.from_assistant(answer.text, meta=meta)]}
        call = ToolCall(tool_name=answer.name, arguments=answer.arguments, id=answer.call_id)
        return {"replies": [ChatMessage.from_assistant(tool_calls=[call], meta=meta)]}


def read(number: int) -> str:
    """Read a page."""
    return read_page(number)


def play(
    folder: Path, script: Script, turns: Sequence[int], fitted: bool, response_format: Any = None
) -> None:
    path = folder / "history.json"
    history = [ChatMessage.from_system(SYSTEM)]
    if path.exists():
        history = [ChatMessage.from_dict(each) for each in json.loads(path.read_text(encoding="utf-8"))]
    tools = [create_tool_from_function(read, name="read_page")]
    generator = ScriptedGenerator(script, {"response_format": response_format})
    hooks: dict[str, Any] = {}
    if fitted:
        tools.append(recall_tool)
        hooks = make_hooks(generator=generator, budget=BUDGET)
    agent = Agent(chat_generator=generator, tools=tools, hooks=hooks)
    for turn in turns:
        history = agent.run(messages=[*history, ChatMessage.from_user(script.begin(turn))])["messages"]
    assert sum(LEDGER in message.meta for message in history) == fitted * (max(turns) + 1)
    path.write_text(json.dumps([message.to_dict() for message in history]), encoding="utf-8")


def test_a_long_session(tmp_path: Path, record_property: Any) -> None:
    check_session(play, __name__, tmp_path, record_property)


def test_a_structured_answer_is_counted(tmp_path: Path) -> None:
    requests = check_counts(partial(play, response_format=LongAnswer), tmp_path, last_words=ANSWER_TEXT)
    assert MARK in json.dumps(requests[0])


def test_the_hooks_know_the_generators_model() -> None:
    (hook,) = make_hooks(generator=ScriptedGenerator(Script()))["before_llm"]
    assert hook.fitter.model == "gpt-5"
    again = FitHook.from_dict(FitHook(output_format={"response_format": {"type": "json"}}).to_dict())
    assert again.output_format == {"response_format": {"type": "json"}}


def test_what_is_not_lowered_in_a_reply_stays_its_own() -> None:
    reasoning = ReasoningContent("Let me see.", extra={"signature": "signed"})
    call = ToolCall("run", {"command": "long"}, id="one")
    message = ChatMessage.from_assistant("I run it.", tool_calls=[call], reasoning=reasoning)
    turn = CODEC.write(message)[0]
    turn["tool_calls"][0]["function"]["arguments"] = "{}"
    lowered = CODEC.read([Turn(wire=turn)], message)
    assert lowered.text == "I run it."
    assert lowered.reasoning is reasoning
    assert lowered.tool_call == ToolCall("run", {}, id="one")


def test_a_picture_beside_a_lowered_text_stays() -> None:
    picture = ImageContent(base64_image=PIXEL, mime_type="image/png")
    message = ChatMessage.from_user(content_parts=["A long text.", picture])
    turn = CODEC.write(message)[0]
    turn["content"][0] = {"type": "text", "text": "Short."}
    lowered = CODEC.read([Turn(wire=turn)], message)
    assert lowered.text == "Short."
    assert lowered.image.base64_image == PIXEL


def test_an_agent_with_the_hooks_can_be_serialized() -> None:
    hook = FitHook(model="gpt-5", budget=BUDGET, policy=Policy(recall="off"))
    restored = FitHook.from_dict(json.loads(json.dumps(hook.to_dict())))
    assert restored.fitter.budget == BUDGET
    assert restored.fitter.model == "gpt-5"
    assert not restored.fitter.recall


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("mode", ["run", "run_async", "stream"])
def test_over_the_wire(api: str, mode: str, record_property: Any) -> None:
    kinds = {"chat": OpenAIChatGenerator, "responses": OpenAIResponsesChatGenerator}

    def run(server: over_wire.StrictServer) -> None:
        generator = kinds[api](
            api_key=Secret.from_token("none"),
            model=over_wire.OPENAI,
            api_base_url=f"{server.url}/v1",
            max_retries=0,
            streaming_callback=print_nothing if mode == "stream" else None,
        )
        agent = Agent(
            chat_generator=generator,
            tools=[create_tool_from_function(read, name="read_page"), recall_tool],
            hooks=make_hooks(generator=generator, budget=over_wire.BUDGET),
        )
        history = [ChatMessage.from_system(SYSTEM)]
        for turn in range(over_wire.TURNS):
            history.append(ChatMessage.from_user(server.script.begin(turn)))
            if mode == "run_async":
                result = asyncio.run(agent.run_async(messages=history))
            else:
                result = agent.run(messages=history)
            history = result["messages"]

    over_wire.play_over_wire(f"{api}, {mode}", run, record_property)


def print_nothing(_: Any) -> None:
    """Take a piece of a stream."""
