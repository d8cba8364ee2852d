"""Haystack's agent in a small window: 40 tool calls in two programs of one stored history.

    pip install 'lamina-context[haystack]'
    python examples/adapters/haystack.py

The generator is scripted, so no key is needed. Put yours in its place: `OpenAIChatGenerator(model="gpt-5")`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

if sys.path[0] == str(Path(__file__).resolve().parent):
    del sys.path[0]  # this folder has files with the names of frameworks

from haystack import component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools import tool

from lamina.adapters.haystack import make_hooks, recall_tool


@tool
def read_part(number: Annotated[int, "The number of the part"]) -> str:
    """Read a part of the manual."""
    return f"Part {number}. Press the key, wait for the lamp, release the key.\n" * 40


@component
class ScriptedGenerator:
    """Reads 20 parts in each turn, and then answers."""

    steps = 0

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, Any]:  # noqa: ARG002
        self.steps += 1
        if self.steps % 21 == 0:
            text = f"Read. The last request had {len(messages)} messages."
            return {"replies": [ChatMessage.from_assistant(text)]}
        call = ToolCall("read_part", {"number": self.steps}, id=f"call_{self.steps}")
        return {"replies": [ChatMessage.from_assistant(tool_calls=[call])]}


def ask(path: Path, question: str) -> None:
    """What one program does: load the history, run the agent, and save the history."""
    history: list[ChatMessage] = []
    if path.exists():
        history = [ChatMessage.from_dict(each) for each in json.loads(path.read_text(encoding="utf-8"))]
    agent = Agent(
        chat_generator=ScriptedGenerator(),
        tools=[read_part, recall_tool],
        hooks=make_hooks(budget=16_000),
    )
    result = agent.run(messages=[*history, ChatMessage.from_user(question)])
    print(result["last_message"].text)
    print(f"{len(result['messages'])} messages are kept")
    messages = [message.to_dict() for message in result["messages"]]
    path.write_text(json.dumps(messages), encoding="utf-8")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        ask(Path(folder) / "history.json", "Read the first parts.")
        ask(Path(folder) / "history.json", "Read the others.")


if __name__ == "__main__":
    main()
