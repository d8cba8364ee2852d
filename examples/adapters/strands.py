"""Strands' agent in a small window: 40 tool calls in two programs of one stored session.

    pip install 'lamina-context[strands]'
    python examples/adapters/strands.py

The model is scripted, so no key is needed. Leave `model=` out for the default one.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

if sys.path[0] == str(Path(__file__).resolve().parent):
    del sys.path[0]  # this folder has files with the names of frameworks

from strands import Agent, tool
from strands.models import Model
from strands.session.file_session_manager import FileSessionManager

from lamina.adapters.strands import LaminaConversationManager


@tool
def read_part(number: int) -> str:
    """Read a part of the manual."""
    return f"Part {number}. Press the key, wait for the lamp, release the key.\n" * 40


class ScriptedModel(Model):
    """Reads 20 parts in each turn, and then answers."""

    steps = 0

    def update_config(self, **_: Any) -> None:
        """Change nothing."""

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:
        self.steps += 1
        is_last = self.steps % 21 == 0
        yield {"messageStart": {"role": "assistant"}}
        if is_last:
            yield {"contentBlockStart": {"start": {}}}
            text = f"Read. The last request had {len(messages)} messages."
            yield {"contentBlockDelta": {"delta": {"text": text}}}
        else:
            use = {"toolUseId": f"call_{self.steps}", "name": "read_part"}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            arguments = json.dumps({"number": self.steps})
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": arguments}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if is_last else "tool_use"}}


def ask(folder: str, question: str) -> None:
    """What one program does: open the session, run the agent, and end."""
    manager = LaminaConversationManager(budget=16_000)
    agent = Agent(
        model=ScriptedModel(),
        agent_id="reader",
        tools=[read_part, manager.recall_tool],
        conversation_manager=manager,
        session_manager=FileSessionManager("manual", storage_dir=folder),
        callback_handler=None,
    )
    print(str(agent(question)).rstrip("\n"))
    print(f"{len(agent.messages)} messages are kept")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        ask(folder, "Read the first parts.")
        ask(folder, "Read the others.")


if __name__ == "__main__":
    main()
