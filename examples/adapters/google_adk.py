"""Google's ADK in a small window: 40 tool calls in two programs of one stored session.

    pip install 'lamina-context[google-adk]'
    python examples/adapters/google_adk.py

The model is scripted, so no key is needed. Put yours in its place: `LlmAgent(model="gemini-3-pro", …)`.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from lamina.adapters.google_adk import LaminaPlugin


def read_part(number: int) -> str:
    """Read a part of the manual."""
    return f"Part {number}. Press the key, wait for the lamp, release the key.\n" * 40


class ScriptedModel(BaseLlm):
    """Reads 20 parts in each turn, and then answers."""

    model: str = "scripted"
    steps: int = 0

    async def generate_content_async(
        self,
        llm_request: Any,
        stream: bool = False,  # noqa: ARG002, FBT001, FBT002 - ADK's
    ) -> AsyncIterator[LlmResponse]:
        self.steps += 1
        part = types.Part(text=f"Read. The last request had {len(llm_request.contents)} contents.")
        if self.steps % 21:
            call = types.FunctionCall(id=f"call_{self.steps}", name="read_part", args={"number": self.steps})
            part = types.Part(function_call=call)
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def ask(store: Path, question: str) -> None:
    """What one program does: open the session, run the agent, and end."""
    agent = LlmAgent(name="reader", model=ScriptedModel(), tools=[read_part])
    service = SqliteSessionService(db_path=str(store))
    app = App(name="manual", root_agent=agent, plugins=[LaminaPlugin(budget=16_000)])
    runner = Runner(app=app, session_service=service, auto_create_session=True)
    message = types.Content(role="user", parts=[types.Part(text=question)])
    async for event in runner.run_async(user_id="one", session_id="two", new_message=message):
        if event.is_final_response() and event.content is not None:
            print(event.content.parts[0].text)
    session = await service.get_session(app_name="manual", user_id="one", session_id="two")
    print(f"{len(session.events)} events are kept")


async def main() -> None:
    logging.disable()
    with tempfile.TemporaryDirectory() as folder:
        await ask(Path(folder) / "sessions.db", "Read the first parts.")
        await ask(Path(folder) / "sessions.db", "Read the others.")


if __name__ == "__main__":
    asyncio.run(main())
