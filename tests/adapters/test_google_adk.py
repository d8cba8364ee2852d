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

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.planners import PlanReActPlanner
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from lamina.adapters.google_adk import LaminaPlugin
from tests.adapters.long_answer import ANSWER_TEXT, MARK, LongAnswer
from tests.adapters.long_session import (
    BUDGET,
    SYSTEM,
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

    async def generate_content_async(
        self,
        llm_request: Any,
        stream: bool = False,  # noqa: ARG002 - ADK's
    ) -> AsyncIterator[LlmResponse]:
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
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def play(folder: Path, script: Script, turns: Sequence[int], fitted: bool, **options: Any) -> None:
    asyncio.run(ask(folder, script, turns, fitted, options))


async def ask(
    folder: Path, script: Script, turns: Sequence[int], fitted: bool, options: dict[str, Any]
) -> None:
    agent = LlmAgent(
        name="reader",
        model=ScriptedModel(model="gemini-3-pro", script=script),
        instruction=SYSTEM,
        **{"tools": [read_page], **options},
    )
    plugins = [LaminaPlugin(budget=BUDGET)] if fitted else []
    service = SqliteSessionService(db_path=str(folder / "sessions.db"))
    app = App(name="manual", root_agent=agent, plugins=plugins)
    runner = Runner(app=app, session_service=service, auto_create_session=True)
    for turn in turns:
        message = types.Content(role="user", parts=[types.Part(text=script.begin(turn))])
        async for _ in runner.run_async(user_id="one", session_id="two", new_message=message):
            pass


def test_a_long_session(tmp_path: Path, record_property: Any) -> None:
    check_session(play, __name__, tmp_path, record_property, dialect="gemini")


@pytest.mark.parametrize("tools", [[read_page], []])
def test_a_structured_answer_is_counted(tmp_path: Path, tools: list[Any]) -> None:
    """ADK has the schema in a tool, if the agent has other tools, and in the request's config if not."""
    with watch_fits() as watch:
        script = Script(watch, last_words=ANSWER_TEXT)
        script.end()
        asyncio.run(ask(tmp_path, script, [0], True, {"tools": tools, "output_schema": LongAnswer}))
    assert MARK in json.dumps(script.requests[0])
    assert_counted(script, count_requests(script.requests, dialect="gemini"))


def test_a_plan_is_counted(tmp_path: Path) -> None:
    requests = check_counts(partial(play, planner=PlanReActPlanner()), tmp_path, dialect="gemini")
    assert "/*PLANNING*/" in json.dumps(requests[0])
