"""pydantic-ai's own agent over a scripted model, with lamina's capability."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "pydantic_ai.capabilities", reason="pydantic-ai is not installed: run `make adapters` to test it"
)

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model

from lamina.adapters.chat_turns import write_tool
from lamina.adapters.pydantic_ai import LEDGER, LaminaCapability
from lamina.adapters.pydantic_messages import CODEC
from tests.adapters.long_session import BUDGET, SYSTEM, Script, check_session, read_page


class ScriptedModel(Model):
    """Answers as the script says, and records what it gets."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script

    @property
    def model_name(self) -> str:
        return "scripted"

    @property
    def system(self) -> str:
        return "test"

    async def request(self, messages: Any, _: Any, model_request_parameters: Any) -> ModelResponse:
        turns: list[Any] = [{"role": "system", "content": SYSTEM}]
        turns += [turn for message in messages for turn in CODEC.write(message)]
        definitions = model_request_parameters.function_tools
        tools = [write_tool(each.name, each.description, each.parameters_json_schema) for each in definitions]
        answer = self.script.answer(turns, tools)
        if answer.name:
            return ModelResponse(parts=[ToolCallPart(answer.name, answer.arguments, answer.call_id)])
        return ModelResponse(parts=[TextPart(answer.text)])


def play(folder: Path, script: Script, turns: Sequence[int], fitted: bool) -> None:
    capabilities = [LaminaCapability(budget=BUDGET)] if fitted else []
    agent = Agent(ScriptedModel(script), instructions=SYSTEM, tools=[read_page], capabilities=capabilities)
    stored = folder / "messages.json"
    history = ModelMessagesTypeAdapter.validate_json(stored.read_bytes()) if stored.exists() else []
    for turn in turns:
        history = asyncio.run(agent.run(script.begin(turn), message_history=history)).all_messages()
    stored.write_bytes(ModelMessagesTypeAdapter.dump_json(history))


def test_a_long_session(tmp_path: Path, record_property: Any) -> None:
    check_session(play, __name__, tmp_path, record_property)
    history = (tmp_path / "whole" / "messages.json").read_text(encoding="utf-8")
    assert history.count(LEDGER) == 4  # one for each turn
