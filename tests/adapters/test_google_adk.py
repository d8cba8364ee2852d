"""The agent of Google's ADK over a scripted model, with lamina's plugin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
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
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from lamina.adapters.google_adk import LaminaPlugin
from tests.adapters.long_session import BUDGET, SYSTEM, Script, check_session, read_page


class ScriptedModel(BaseLlm):
    """Answers as the script says, and records what it gets."""

    script: Any

    async def generate_content_async(
        self,
        llm_request: Any,
        stream: bool = False,  # noqa: ARG002 - ADK's
    ) -> AsyncIterator[LlmResponse]:
        contents = [each.model_dump(mode="json", exclude_none=True) for each in llm_request.contents]
        config = llm_request.config.model_dump(
            mode="json", exclude_none=True, include={"tools", "system_instruction"}
        )
        answer = self.script.answer(contents, (), field="contents", config=config, model="gemini-3-pro")
        part = types.Part(text=answer.text)
        if answer.name:
            call = types.FunctionCall(id=answer.call_id, name=answer.name, args=answer.arguments)
            part = types.Part(function_call=call, thought_signature=b"signed")  # Gemini 3 wants it back
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def play(folder: Path, script: Script, turns: Sequence[int], fitted: bool) -> None:
    asyncio.run(ask(folder, script, turns, fitted))


async def ask(folder: Path, script: Script, turns: Sequence[int], fitted: bool) -> None:
    agent = LlmAgent(
        name="reader",
        model=ScriptedModel(model="gemini-3-pro", script=script),
        instruction=SYSTEM,
        tools=[read_page],
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
