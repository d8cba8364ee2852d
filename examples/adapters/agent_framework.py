"""Microsoft's Agent Framework in a small window: 40 tool calls in two programs of one stored session.

    pip install 'lamina-context[agent-framework]'
    python examples/adapters/agent_framework.py

The client is scripted, so no key is needed. Put yours in its place: `Agent(client=OpenAIChatClient(), …)`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if sys.path[0] == str(Path(__file__).resolve().parent):
    del sys.path[0]  # this folder has files with the names of frameworks

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
)

from lamina.adapters.agent_framework import LaminaChatMiddleware


def read_part(number: int) -> str:
    """Read a part of the manual."""
    return f"Part {number}. Press the key, wait for the lamp, release the key.\n" * 40


class ScriptedClient(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """Reads 20 parts in each turn, and then answers."""

    steps = 0

    async def _inner_get_response(self, *, messages: Sequence[Message], **_: Any) -> ChatResponse:
        self.steps += 1
        content = Content.from_text(f"Read. The last request had {len(messages)} messages.")
        if self.steps % 21:
            call_id = f"call_{self.steps}"
            content = Content.from_function_call(call_id, "read_part", arguments={"number": self.steps})
        return ChatResponse(messages=[Message("assistant", [content])])


def ask(path: Path, question: str) -> None:
    """What one program does: load the session, run the agent, and save the session."""
    session = AgentSession()
    if path.exists():
        session = AgentSession.from_dict(json.loads(path.read_text(encoding="utf-8")))
    lamina = LaminaChatMiddleware(budget=16_000)
    agent = Agent(client=ScriptedClient(), tools=[read_part, lamina.recall_tool], middleware=[lamina])
    response = asyncio.run(agent.run(question, session=session))
    print(response.text)
    print(f"{len(session.state['in_memory']['messages'])} messages are kept")
    path.write_text(json.dumps(session.to_dict()), encoding="utf-8")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        ask(Path(folder) / "session.json", "Read the first parts.")
        ask(Path(folder) / "session.json", "Read the others.")


if __name__ == "__main__":
    main()
