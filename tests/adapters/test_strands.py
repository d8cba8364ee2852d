"""The agent of Strands over a scripted model, with lamina's conversation manager."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("strands.agent", reason="strands-agents is not installed: run `make adapters` to test it")

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.hooks import BeforeModelCallEvent
from strands.models import Model
from strands.session.file_session_manager import FileSessionManager

from lamina.adapters.chat_turns import write_tool
from lamina.adapters.strands import CODEC, LaminaConversationManager
from tests.adapters import over_wire
from tests.adapters.long_answer import ANSWER_TEXT, MARK, LongAnswer
from tests.adapters.long_session import (
    BUDGET,
    CALLS,
    SYSTEM,
    Answer,
    Script,
    check_counts,
    check_session,
    read_page,
    watch_fits,
)


class ScriptedModel(Model):
    """Answers as the script says, and records what it gets."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def update_config(self, **_: Any) -> None:
        pass

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(
        self,
        messages: Any,
        tool_specs: Any = None,
        system_prompt: Any = None,
        *,
        tool_choice: Any = None,
        **_: Any,
    ) -> AsyncIterator[Any]:
        turns = [{"role": "system", "content": system_prompt}]
        turns += [turn for message in messages for turn in CODEC.write(message)]
        tools = [
            write_tool(spec["name"], spec["description"], spec["inputSchema"]["json"])
            for spec in tool_specs or ()
        ]
        if tool_choice is not None:  # Strands asks once more, for the structured answer
            self.script.record(turns, tools)
            answer = Answer(
                self.script.sizes[-1],
                name=tool_choice["tool"]["name"],
                arguments=json.loads(ANSWER_TEXT),
                call_id="call_structured",
            )
        else:
            answer = self.script.answer(turns, tools)
        yield {"messageStart": {"role": "assistant"}}
        if answer.name:
            use = {"toolUseId": answer.call_id, "name": answer.name}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(answer.arguments)}}}}
        else:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": answer.text}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if answer.name else "end_turn"}}
        usage = {"inputTokens": answer.tokens, "outputTokens": 9, "totalTokens": answer.tokens + 9}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 0}}}


def play(folder: Path, script: Script, turns: Sequence[int], fitted: bool, **options: Any) -> None:
    manager: Any = NullConversationManager()
    tools = [tool(read_page)]
    if fitted:
        manager = LaminaConversationManager(budget=BUDGET)
        tools.append(manager.recall_tool)
    agent = Agent(
        model=ScriptedModel(script),
        agent_id="reader",
        system_prompt=SYSTEM,
        tools=tools,
        conversation_manager=manager,
        session_manager=FileSessionManager("manual", storage_dir=str(folder)),
        callback_handler=None,
    )
    for turn in turns:
        agent(script.begin(turn), **options)


def test_a_long_session(tmp_path: Path, record_property: Any) -> None:
    check_session(play, __name__, tmp_path, record_property)


def test_a_structured_answer_is_counted(tmp_path: Path) -> None:
    """Strands adds a tool for it, and a last question."""
    requests = check_counts(partial(play, structured_output_model=LongAnswer), tmp_path)
    assert MARK in json.dumps(requests[0])
    assert "structured output" in json.dumps(requests[-1])


def test_the_history_is_never_another_than_the_whole() -> None:
    """A hook that reads the messages while the model is called sees all of them."""
    script = Script()
    manager = LaminaConversationManager(budget=BUDGET)
    agent = Agent(
        model=ScriptedModel(script),
        tools=[tool(read_page), manager.recall_tool],
        conversation_manager=manager,
        callback_handler=None,
    )
    lengths: list[int] = []
    agent.hooks.add_callback(BeforeModelCallEvent, lambda event: lengths.append(len(event.agent.messages)))
    for turn in range(2):
        agent(script.begin(turn))
    assert lengths == sorted(lengths)
    assert len(agent.messages) > 4 * CALLS
    assert manager.ledger is not None


def test_system_text_may_be_blocks() -> None:
    script = Script()
    question = script.begin(0)
    script.end()
    manager = LaminaConversationManager(budget=BUDGET)
    system = [{"text": SYSTEM}, {"cachePoint": {"type": "default"}}, {"text": "Be careful. " * 400}]
    with watch_fits() as watch:
        Agent(
            model=ScriptedModel(script),
            system_prompt=system,
            conversation_manager=manager,
            callback_handler=None,
        )(question)
    assert watch.counts[0] > 800


def open_model(api: str, url: str) -> Model:
    """A model of Strands' own, whose API is at this address."""
    if api == "messages":
        models = pytest.importorskip("strands.models.anthropic")
        arguments = {"api_key": "none", "base_url": url, "max_retries": 0}
        anthropic_model: Model = models.AnthropicModel(
            client_args=arguments, model_id=over_wire.ANTHROPIC, max_tokens=900
        )
        return anthropic_model
    models = pytest.importorskip("strands.models.openai")
    arguments = {"api_key": "none", "base_url": f"{url}/v1", "max_retries": 0}
    model: Model = models.OpenAIModel(client_args=arguments, model_id=over_wire.OPENAI)
    return model


@pytest.mark.parametrize("api", ["chat", "messages"])
@pytest.mark.parametrize("mode", ["call", "invoke_async", "stream_async"])
def test_over_the_wire(api: str, mode: str, record_property: Any) -> None:
    def run(server: over_wire.StrictServer) -> None:
        manager = LaminaConversationManager(budget=over_wire.BUDGET)
        agent = Agent(
            model=open_model(api, server.url),
            system_prompt=SYSTEM,
            tools=[tool(read_page), manager.recall_tool],
            conversation_manager=manager,
            callback_handler=None,
        )
        for turn in range(over_wire.TURNS):
            question = server.script.begin(turn)
            match mode:
                case "call":
                    agent(question)
                case "invoke_async":
                    asyncio.run(agent.invoke_async(question))
                case "stream_async":
                    asyncio.run(read_stream(agent.stream_async(question)))

    over_wire.play_over_wire(f"{api}, {mode}", run, record_property)


async def read_stream(stream: AsyncIterator[Any]) -> None:
    async for _ in stream:
        pass
