"""OpenAI's Agents SDK: ToolOutputTrimmer, which shortens large results of earlier turns. It has no budget.

It sees the whole history at each call and keeps nothing. The system text is the agent's instructions, apart
from the items. Run by the peer's own interpreter.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.peers.workers.serve import Given, Message


class Trim:
    outside = True

    def __init__(self, given: Given) -> None:
        self.given, self.trim = (
            given,
            import_module("agents.extensions.tool_output_trimmer").ToolOutputTrimmer(),
        )
        self.data = import_module("agents.run_config")
        self.items: list[dict[str, Any]] = []

    def add(self, messages: list[Message]) -> None:
        for message in messages:
            self.items += self._items(message)

    def cut(self) -> list[Message]:
        data = self.data.ModelInputData(input=self.items, instructions=None)
        sent = self.trim(self.data.CallModelData(model_data=data, agent=None, context=None)).input
        return self._back(sent)

    def _items(self, message: Message) -> list[dict[str, Any]]:
        """The items of a message; an answer begins with its text, be it empty, and so ends the one before."""
        text = self.given.words(message)
        if message["role"] == "tool":
            call, _ = self.given.answered(message)
            return [{"type": "function_call_output", "call_id": call, "output": text}]
        if message["role"] != "assistant":
            self.given.remember(message)
            return [{"role": message["role"], "content": text}]
        calls = self.given.calls(message)
        return [
            {"role": "assistant", "content": text},
            *({"type": "function_call", "call_id": c.id, "name": c.name, "arguments": c.raw} for c in calls),
        ]

    def _back(self, items: list[dict[str, Any]]) -> list[Message]:
        read: list[tuple[str, str, list[str]]] = []
        for item in items:
            if item.get("type") == "function_call":
                read[-1][2].append(item["call_id"])
            elif item.get("type") == "function_call_output":
                read.append(("tool", item["output"], [item["call_id"]]))
            else:
                role = "system" if item["role"] == "developer" else item["role"]
                read.append((role, item["content"], []))
        return [self.given.back(*each) for each in read]


PEERS = {"openai-agents": Trim}
