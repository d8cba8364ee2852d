"""CrewAI's agent over a scripted model, with lamina's hooks."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if find_spec("crewai") is None:
    pytest.skip("crewai is not installed: run `make adapters` to test it", allow_module_level=True)
os.environ |= {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "OTEL_SDK_DISABLED": "true",
    "CREWAI_TRACING_ENABLED": "false",
}

from crewai import LLM, Agent, Crew, Task
from crewai.hooks import get_before_llm_call_hooks
from crewai.llms.base_llm import BaseLLM
from crewai.tools import tool
from crewai.utilities.pydantic_schema_utils import generate_model_description

from lamina.adapters.crewai import CODEC, LaminaHooks
from tests.adapters import long_session, over_wire
from tests.adapters.long_answer import ANSWER_TEXT, MARK, LongAnswer
from tests.adapters.long_session import (
    BUDGET,
    CALLS,
    SYSTEM,
    Answer,
    Script,
    assert_counted,
    check_session,
    count_requests,
    watch_fits,
)


@tool
def read_page(number: int) -> str:
    """Read a page."""
    return long_session.read_page(number)


class ScriptedLLM(BaseLLM):
    """Answers as the script says, and records what it gets."""

    script: Any = None

    def call(self, messages: Any, tools: Any = None, response_model: Any = None, **_: Any) -> Any:
        turns = [turn for message in messages for turn in CODEC.write(message)]
        head: dict[str, Any] = {}
        if response_model is not None:
            head["response_format"] = generate_model_description(response_model)
        answer: Answer = self.script.answer(turns, tools or (), **head)
        self._track_token_usage_internal({"prompt_tokens": answer.tokens, "completion_tokens": 9})
        if not answer.name:
            return answer.text
        function = {"name": answer.name, "arguments": json.dumps(answer.arguments)}
        return [{"id": answer.call_id, "type": "function", "function": function}]

    def supports_function_calling(self) -> bool:
        return True

    def get_context_window_size(self) -> int:
        return 10_000_000  # otherwise CrewAI puts long results into files with random names


def make_agent(script: Script, tools: list[Any]) -> Agent:
    llm = ScriptedLLM(model="scripted", script=script)
    options: dict[str, Any] = {"max_iter": CALLS + 5, "respect_context_window": False}
    return Agent(role="reader", goal="read", backstory=SYSTEM, llm=llm, tools=tools, **options)


def play(folder: Path, script: Script, turns: Sequence[int], fitted: bool) -> None:
    path = folder / "chat.json"
    saved: dict[str, Any] = {"history": [], "ledgers": {}}
    if path.exists():
        saved = json.loads(path.read_text(encoding="utf-8"))
    tools: list[Any] = [read_page]
    opened: Any = nullcontext()
    if fitted:
        opened = LaminaHooks(budget=BUDGET, ledgers=saved["ledgers"])
        tools.append(opened.recall_tool)
    with opened:
        for turn in turns:
            messages = [*saved["history"], {"role": "user", "content": script.begin(turn)}]
            saved["history"] = make_agent(script, tools).kickoff(messages).messages[1:]
    if fitted:
        saved["ledgers"] = opened.ledgers
    path.write_text(json.dumps(saved), encoding="utf-8")


def test_a_long_session(tmp_path: Path, record_property: Any) -> None:
    check_session(play, __name__, tmp_path, record_property)


@pytest.mark.parametrize("tools", [[], [read_page]])
def test_a_structured_answer_is_counted(tools: list[Any]) -> None:
    """CrewAI sends the schema with the request if the agent has no tools."""
    with watch_fits() as watch, LaminaHooks(budget=BUDGET):
        script = Script(watch, last_words=ANSWER_TEXT)
        question = script.begin(0)
        script.end()
        make_agent(script, tools).kickoff(question, response_format=LongAnswer)
    assert (MARK in json.dumps(script.requests[0])) == (not tools)
    assert_counted(script, count_requests(script.requests))


def test_the_tasks_of_a_crew_have_a_ledger_each() -> None:
    script = Script()
    with LaminaHooks(budget=BUDGET) as lamina:
        agent = make_agent(script, [read_page, lamina.recall_tool])
        for turn in range(2):
            task = Task(description=script.begin(turn), expected_output="a word", agent=agent)
            output = Crew(agents=[agent], tasks=[task]).kickoff()
            assert str(output) == f"Turn {turn} is read."
            assert len(output.tasks_output[0].messages) >= 2 * CALLS
    assert len(lamina.ledgers) == 2
    assert get_before_llm_call_hooks() == []


@pytest.mark.parametrize("api", ["chat", "messages"])
@pytest.mark.parametrize("mode", ["kickoff", "kickoff_async", "stream"])
def test_over_the_wire(api: str, mode: str, record_property: Any) -> None:
    def run(server: over_wire.StrictServer) -> None:
        settings: dict[str, Any] = {"api_key": "none", "max_retries": 0, "stream": mode == "stream"}
        if api == "messages":
            pytest.importorskip("anthropic")
            llm = LLM(
                model=f"anthropic/{over_wire.ANTHROPIC}", base_url=server.url, max_tokens=900, **settings
            )
        else:
            llm = LLM(model=f"openai/{over_wire.OPENAI}", base_url=f"{server.url}/v1", **settings)
        history: list[Any] = []
        with LaminaHooks(budget=over_wire.BUDGET) as lamina:
            options: dict[str, Any] = {"max_iter": 60, "respect_context_window": False}
            tools = [read_page, lamina.recall_tool]
            agent = Agent(role="reader", goal="read", backstory=SYSTEM, llm=llm, tools=tools, **options)
            for turn in range(over_wire.TURNS):
                messages = [*history, {"role": "user", "content": server.script.begin(turn)}]
                if mode == "kickoff_async":
                    result = asyncio.run(agent.kickoff_async(messages))
                else:
                    result = agent.kickoff(messages)
                history = result.messages[1:]

    over_wire.play_over_wire(f"{api}, {mode}", run, record_property)
