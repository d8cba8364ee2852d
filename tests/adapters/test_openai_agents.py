"""The agent of OpenAI's Agents SDK over a scripted model, with lamina's session."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents.memory", reason="openai-agents is not installed: run `make adapters` to test it")

from agents import Agent, Model, ModelResponse, Runner, SQLiteSession, Usage, function_tool
from agents.memory import Session
from agents.models.openai_responses import Converter
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from lamina.adapters.openai_agents import LaminaSession
from lamina.adapters.store_thread import StoreThread
from tests.adapters.long_session import BUDGET, SYSTEM, Answer, Script, check_session, read_page


class ScriptedModel(Model):
    """Answers as the script says, and records what it gets."""

    def __init__(self, script: Script) -> None:
        self.script = script

    async def get_response(self, system_instructions: Any, input: Any, **others: Any) -> ModelResponse:  # noqa: A002
        head: dict[str, Any] = {"instructions": system_instructions, "model": "gpt-5"}
        if others["output_schema"] is not None:
            head["text"] = Converter.get_response_format(others["output_schema"])
        tools = Converter.convert_tools(others["tools"], others["handoffs"]).tools
        answer = self.script.answer(input, tools, field="input", **head)
        return ModelResponse(output=[write_answer(answer)], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def write_answer(answer: Answer) -> Any:
    if answer.name:
        return ResponseFunctionToolCall(
            type="function_call",
            call_id=answer.call_id,
            name=answer.name,
            arguments=str(answer.arguments).replace("'", '"'),
        )
    text = ResponseOutputText(type="output_text", text=answer.text, annotations=[])
    return ResponseOutputMessage(
        id="msg", type="message", role="assistant", status="completed", content=[text]
    )


def play(folder: Path, script: Script, turns: Sequence[int], fitted: bool) -> None:
    agent = Agent(
        "reader", instructions=SYSTEM, tools=[function_tool(read_page)], model=ScriptedModel(script)
    )
    asyncio.run(ask(agent, folder, script, turns, fitted))


async def ask(agent: Any, folder: Path, script: Script, turns: Sequence[int], fitted: bool) -> None:
    if not fitted:
        session = SQLiteSession("manual", folder / "plain.db")
        for turn in turns:
            await Runner.run(agent, script.begin(turn), session=session, max_turns=60)
        return
    with StoreThread(str(folder / "chats.db")) as store:
        lamina_session = LaminaSession("manual", store, budget=BUDGET)
        for turn in turns:
            await Runner.run(
                lamina_session.equip(agent),
                script.begin(turn),
                session=lamina_session,
                run_config=lamina_session.run_config(tracing_disabled=True),
                max_turns=60,
            )


def test_a_long_session(tmp_path: Path, record_property: Any) -> None:
    check_session(play, __name__, tmp_path, record_property, dialect="openai_responses")


def test_it_keeps_items_as_their_own_session_does(tmp_path: Path) -> None:
    items: list[Any] = [{"role": "user", "content": str(number)} for number in range(5)]

    async def use(session: Any) -> list[Any]:
        seen: list[Any] = [await session.get_items(), await session.pop_item()]
        await session.add_items(items)
        seen += [await session.get_items(), await session.get_items(2), await session.get_items(0)]
        seen += [await session.pop_item(), await session.get_items()]
        await session.add_items(items[:1])
        seen.append(await session.get_items(10))
        await session.clear_session()
        seen.append(await session.get_items())
        return seen

    with StoreThread("memory:") as store:
        ours = LaminaSession("one", store)
        assert isinstance(ours, Session)
        assert asyncio.run(use(ours)) == asyncio.run(use(SQLiteSession("one", tmp_path / "theirs.db")))
