"""Inspect's agent in a small window: a sample with 40 tool calls.

    pip install 'lamina-context[inspect-ai]'
    python examples/adapters/inspect_ai.py

The model is scripted, so no key is needed. Put yours in its place: `eval(task, model="openai/gpt-5")`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

if sys.path[0] == str(Path(__file__).resolve().parent):
    del sys.path[0]  # this folder has files with the names of frameworks

from inspect_ai import Task, eval  # noqa: A004 - Inspect's
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelAPI, ModelOutput, modelapi
from inspect_ai.tool import Tool, tool

from lamina.adapters.inspect_ai import LaminaCompaction, recall


@tool
def read_part() -> Tool:
    async def execute(number: int) -> str:
        """Read a part of the manual.

        Args:
            number: The number of the part.

        """
        return f"Part {number}. Press the key, wait for the lamp, release the key.\n" * 40

    return execute


@modelapi(name="scripted")
class ScriptedModel(ModelAPI):
    """Reads 40 parts, and then answers."""

    steps = 0

    async def count_text_tokens(self, text: str) -> int:
        return len(text) // 3

    async def generate(self, input: Any, **_: Any) -> ModelOutput:  # noqa: A002 - Inspect's
        self.steps += 1
        if self.steps > 40:
            return ModelOutput.from_content("scripted", f"Read. The last request had {len(input)} messages.")
        return ModelOutput.for_tool_call("scripted", "read_part", {"number": self.steps})


def main() -> None:
    agent = react(
        prompt=None,
        tools=[read_part(), recall()],
        compaction=LaminaCompaction(budget=16_000),
        submit=False,
    )
    task = Task(dataset=[Sample(input="Read all parts.")], solver=agent)
    with tempfile.TemporaryDirectory() as folder:
        [log] = eval(task, model="scripted/model", log_dir=folder, display="none")
        [sample] = log.samples or []
    print(sample.output.completion)
    compactions = [event for event in sample.events if event.event == "compaction"]
    print(f"{len(compactions)} compactions, {len(sample.messages)} messages are kept")


if __name__ == "__main__":
    main()
