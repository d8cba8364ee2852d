"""pydantic-ai's agent in a small window: 40 tool calls in two runs, with the history as JSON between them.

    pip install 'lamina-context[pydantic-ai]'
    python examples/adapters/pydantic_ai.py

The model is scripted, so no key is needed. Put yours in its place: `Agent("openai:gpt-5", …)`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.path[0] == str(Path(__file__).resolve().parent):
    del sys.path[0]  # this folder has files with the names of frameworks

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model

from lamina.adapters.pydantic_ai import LaminaCapability


def read_part(number: int) -> str:
    """Read a part of the manual."""
    return f"Part {number}. Press the key, wait for the lamp, release the key.\n" * 40


class ScriptedModel(Model):
    """Reads 20 parts in each turn, and then answers."""

    steps = 0
    model_name = "scripted"
    system = "scripted"

    async def request(self, messages: Any, *_: Any) -> ModelResponse:
        self.steps += 1
        if self.steps % 21 == 0:
            return ModelResponse(parts=[TextPart(f"Read. The last request had {len(messages)} messages.")])
        return ModelResponse(parts=[ToolCallPart("read_part", {"number": self.steps}, f"call_{self.steps}")])


def ask(question: str, stored: bytes) -> bytes:
    """What one program does: load the history, run the agent, and return the history to store."""
    agent = Agent(ScriptedModel(), tools=[read_part], capabilities=[LaminaCapability(budget=16_000)])
    history = ModelMessagesTypeAdapter.validate_json(stored)
    result = agent.run_sync(question, message_history=history)
    print(result.output)
    print(f"{len(result.all_messages())} messages are kept")
    return bytes(ModelMessagesTypeAdapter.dump_json(result.all_messages()))


def main() -> None:
    stored = ask("Read the first parts.", b"[]")
    ask("Read the others.", stored)


if __name__ == "__main__":
    main()
