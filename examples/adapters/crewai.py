"""CrewAI's agent in a small window: 40 tool calls in two programs of one stored chat.

    pip install 'lamina-context[crewai]'
    python examples/adapters/crewai.py

The model is scripted, so no key is needed. Put yours in its place: `Agent(llm="gpt-5", …)`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

if sys.path[0] == str(Path(__file__).resolve().parent):
    del sys.path[0]  # this folder has files with the names of frameworks

os.environ["CREWAI_DISABLE_TELEMETRY"] = "true"
os.environ["OTEL_SDK_DISABLED"] = "true"

from crewai import Agent
from crewai.events.utils.console_formatter import set_suppress_console_output
from crewai.llms.base_llm import BaseLLM
from crewai.tools import tool

from lamina.adapters.crewai import LaminaHooks


@tool
def read_part(number: int) -> str:
    """Read a part of the manual."""
    return f"Part {number}. Press the key, wait for the lamp, release the key.\n" * 40


class ScriptedLLM(BaseLLM):
    """Reads 20 parts in each turn, and then answers."""

    steps: int = 0

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        self.steps += 1
        if self.steps % 21 == 0:
            return f"Read. The last request had {len(messages)} messages."
        function = {"name": "read_part", "arguments": json.dumps({"number": self.steps})}
        return [{"id": f"call_{self.steps}", "type": "function", "function": function}]

    def supports_function_calling(self) -> bool:
        return True


def ask(path: Path, question: str) -> None:
    """What one program does: load the chat, run the agent, and save the chat."""
    chat: dict[str, Any] = {"messages": [], "ledgers": {}}
    if path.exists():
        chat = json.loads(path.read_text(encoding="utf-8"))
    with LaminaHooks(budget=16_000, ledgers=chat["ledgers"]) as lamina:
        agent = Agent(
            role="reader",
            goal="read",
            backstory="You read a manual.",
            llm=ScriptedLLM(model="scripted"),
            tools=[read_part, lamina.recall_tool],
            max_iter=30,
            respect_context_window=False,
        )
        result = agent.kickoff([*chat["messages"], {"role": "user", "content": question}])
    print(result.raw)
    messages = result.messages[1:]
    print(f"{len(messages)} messages are kept")
    path.write_text(json.dumps({"messages": messages, "ledgers": lamina.ledgers}), encoding="utf-8")


def main() -> None:
    set_suppress_console_output(True)
    with tempfile.TemporaryDirectory() as folder:
        ask(Path(folder) / "chat.json", "Read the first parts.")
        ask(Path(folder) / "chat.json", "Read the others.")


if __name__ == "__main__":
    main()
