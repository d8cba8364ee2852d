"""smolagents in a small window: 40 tool calls in two programs of one stored memory.

    pip install 'lamina-context[smolagents]'
    python examples/adapters/smolagents.py

The model is scripted, so no key is needed. Put yours in its place: `model=OpenAIModel("gpt-5")`.
"""

from __future__ import annotations

import pickle
import sys
import tempfile
from pathlib import Path
from typing import Any

if sys.path[0] == str(Path(__file__).resolve().parent):
    del sys.path[0]  # this folder has files with the names of frameworks

from smolagents import ChatMessage, LogLevel, Model, tool
from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole

from lamina.adapters.smolagents import LaminaToolCallingAgent


@tool
def read_part(number: int) -> str:
    """Read a part of the manual.

    Args:
        number: The number of the part.

    """
    return f"Part {number}. Press the key, wait for the lamp, release the key.\n" * 40


class ScriptedModel(Model):
    """Reads 20 parts in each turn, and then answers."""

    steps = 0

    def generate(self, messages: list[Any], **_: Any) -> ChatMessage:
        self.steps += 1
        name = "read_part"
        arguments: dict[str, Any] = {"number": self.steps}
        if self.steps % 21 == 0:
            name = "final_answer"
            arguments = {"answer": f"Read. The last request had {len(messages)} messages."}
        function = ChatMessageToolCallFunction(name=name, arguments=arguments)
        call = ChatMessageToolCall(function=function, id=f"call_{self.steps}", type="function")
        return ChatMessage(role=MessageRole.ASSISTANT, content="I go on.", tool_calls=[call])


def ask(path: Path, question: str) -> None:
    """What one program does: load the memory, run the agent, and save the memory."""
    agent = LaminaToolCallingAgent(
        tools=[read_part],
        model=ScriptedModel(),
        budget=16_000,
        max_steps=30,
        verbosity_level=LogLevel.OFF,
    )
    if path.exists():
        agent.memory = pickle.loads(path.read_bytes())  # noqa: S301 - this program wrote it
    print(agent.run(question, reset=False))
    print(f"{len(agent.memory.steps)} steps are kept")
    path.write_bytes(pickle.dumps(agent.memory))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        ask(Path(folder) / "memory.pickle", "Read the first parts.")
        ask(Path(folder) / "memory.pickle", "Read the others.")


if __name__ == "__main__":
    main()
