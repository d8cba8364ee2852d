"""The agent of Google's ADK over a scripted model, with lamina's plugin."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "google.adk.plugins", reason="google-adk is not installed: run `make adapters` to test it"
)

from google import genai
from google.adk.agents import LlmAgent, ParallelAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.google_llm import Gemini
from google.adk.models.llm_response import LlmResponse
from google.adk.planners import PlanReActPlanner
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from lamina.adapters.google_adk import LaminaPlugin
from tests.adapters import over_wire
from tests.adapters.long_answer import ANSWER_TEXT, MARK, LongAnswer
from tests.adapters.long_session import (
    BUDGET,
    SYSTEM,
    TURNS,
    Script,
    assert_counted,
    check_counts,
    check_session,
    count_requests,
    read_page,
    watch_fits,
)


class ScriptedModel(BaseLlm):
    """Answers as the script says, and records what it gets."""

    script: Any
    pauses: int = 0

    async def generate_content_async(
        self,
        llm_request: Any,
        stream: bool = False,  # noqa: ARG002 - ADK's
    ) -> AsyncIterator[LlmResponse]:
        for _ in range(self.pauses * len(self.script.requests) % 23):
            await asyncio.sleep(0)  # so that other agents come between, each time at another place
        contents = [each.model_dump(mode="json", exclude_none=True) for each in llm_request.contents]
        seen_config = {"tools", "system_instruction"}
        config = llm_request.config.model_dump(mode="json", exclude_none=True, include=seen_config)
        if llm_request.config.response_schema is not None:
            config["response_schema"] = llm_request.config.response_schema.model_json_schema()
        answer = self.script.answer(contents, (), field="contents", config=config, model="gemini-3-pro")
        part = types.Part(text=answer.text)
        if answer.name:
            call = types.FunctionCall(id=answer.call_id, name=answer.name, args=answer.arguments)
            part = types.Part(function_call=call, thought_signature=b"signed")  # Gemini 3 wants it back
        usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=answer.tokens)
        yield LlmResponse(content=types.Content(role="model", parts=[part]), usage_metadata=usage)


def play(folder: Path, script: Script, turns: Sequence[int], fitted: bool, **options: Any) -> None:
    asyncio.run(ask(folder, script, turns, fitted, options))


async def ask(
    folder: Path, script: Script, turns: Sequence[int], fitted: bool, options: dict[str, Any]
) -> None:
    agent = make_agent(script, **options)
    plugins = [LaminaPlugin(budget=BUDGET)] if fitted else []
    service = SqliteSessionService(db_path=str(folder / "sessions.db"))
    app = App(name="manual", root_agent=agent, plugins=plugins)
    runner = Runner(app=app, session_service=service, auto_create_session=True)
    for turn in turns:
        await say(runner, script.begin(turn))


def make_agent(script: Script, *, name: str = "reader", pauses: int = 0, **options: Any) -> LlmAgent:
    model = ScriptedModel(model="gemini-3-pro", script=script, pauses=pauses)
    return LlmAgent(name=name, model=model, instruction=SYSTEM, **{"tools": [read_page], **options})


async def say(runner: Runner, text: str, **settings: Any) -> None:
    message = types.Content(role="user", parts=[types.Part(text=text)])
    async for _ in runner.run_async(user_id="one", session_id="two", new_message=message, **settings):
        pass


def test_a_long_session(tmp_path: Path, record_property: Any) -> None:
    check_session(play, __name__, tmp_path, record_property)


@pytest.mark.parametrize("tools", [[read_page], []])
def test_a_structured_answer_is_counted(tmp_path: Path, tools: list[Any]) -> None:
    """ADK has the schema in a tool, if the agent has other tools, and in the request's config if not."""
    with watch_fits() as watch:
        script = Script(watch, last_words=ANSWER_TEXT)
        script.end()
        asyncio.run(ask(tmp_path, script, [0], True, {"tools": tools, "output_schema": LongAnswer}))
    assert MARK in json.dumps(script.requests[0])
    assert_counted(script, count_requests(script.requests))


def test_a_plan_is_counted(tmp_path: Path) -> None:
    requests = check_counts(partial(play, planner=PlanReActPlanner()), tmp_path)
    assert "/*PLANNING*/" in json.dumps(requests[0])


def test_agents_that_run_in_parallel_have_a_ledger_each() -> None:
    """What an agent sends is the same whether others work beside it or not."""
    alone = [asyncio.run(ask_in_parallel([number]))[0] for number in range(3)]
    together = asyncio.run(ask_in_parallel(range(3)))
    for script, script_alone in zip(together, alone, strict=True):
        assert count_requests(script.requests).cuts >= 1
        assert script.requests == script_alone.requests


async def ask_in_parallel(numbers: Sequence[int]) -> list[Script]:
    """Ask agents of these numbers at once, as often as it takes for cuts. Each is slower than the last."""
    scripts = [Script() for _ in numbers]
    agents = [
        make_agent(script, name=f"reader_{number}", pauses=number + 3)
        for script, number in zip(scripts, numbers, strict=True)
    ]
    app = App(
        name="manual",
        root_agent=ParallelAgent(name="all", sub_agents=agents),
        plugins=[LaminaPlugin(budget=BUDGET)],
    )
    runner = Runner(app=app, session_service=InMemorySessionService(), auto_create_session=True)
    for turn in range(TURNS):
        (question, *_) = [script.begin(turn) for script in scripts]
        await say(runner, question)
    return scripts


@pytest.mark.parametrize("mode", [StreamingMode.NONE, StreamingMode.SSE])
def test_over_the_wire(mode: StreamingMode, record_property: Any) -> None:
    def run(server: over_wire.StrictServer) -> None:
        client = genai.Client(api_key="none", http_options=types.HttpOptions(base_url=server.url))
        model = Gemini(model=over_wire.GEMINI)
        model.api_client = client
        agent = LlmAgent(name="reader", model=model, instruction=SYSTEM, tools=[read_page])
        app = App(name="manual", root_agent=agent, plugins=[LaminaPlugin(budget=over_wire.BUDGET)])
        runner = Runner(app=app, session_service=InMemorySessionService(), auto_create_session=True)
        asyncio.run(ask_over_wire(runner, server.script, RunConfig(streaming_mode=mode)))

    over_wire.play_over_wire(f"gemini, {mode.name}", run, record_property)


async def ask_over_wire(runner: Runner, script: Script, config: RunConfig) -> None:
    for turn in range(over_wire.TURNS):
        await say(runner, script.begin(turn), run_config=config)
