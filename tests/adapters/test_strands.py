"""The agent of Strands over a scripted model, with lamina's conversation manager."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("strands.agent", reason="strands-agents is not installed: run `make adapters` to test it")

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models import Model
from strands.session.file_session_manager import FileSessionManager

from lamina.adapters.chat_turns import write_tool
from lamina.adapters.strands import CODEC, LaminaConversationManager
from tests.adapters.long_session import BUDGET, SYSTEM, Script, check_session, read_page


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
        self, messages: Any, tool_specs: Any = None, system_prompt: Any = None, **_: Any
    ) -> AsyncIterator[Any]:
        turns = [{"role": "system", "content": system_prompt}]
        turns += [turn for message in messages for turn in CODEC.write(message)]
        tools = [
            write_tool(spec["name"], spec["description"], spec["inputSchema"]["json"])
            for spec in tool_specs or ()
        ]
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


def play(folder: Path, script: Script, turns: Sequence[int], fitted: bool) -> None:
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
        agent(script.begin(turn))


def test_a_long_session(tmp_path: Path, record_property: Any) -> None:
    check_session(play, __name__, tmp_path, record_property)
