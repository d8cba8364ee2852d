"""Strands: the sliding window over messages, before each call, with its two answers to too many tokens.

It counts messages; tokens only tell when its compression ahead of a call and its recovery from a refused
request begin, which this calls as its loop does. Run by the peer's own interpreter.
"""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.peers.workers.serve import Given, Message

RETRIES = 100
"""Reductions after a refused request before the call is given up."""


class Sliding:
    outside = True

    def __init__(self, given: Given) -> None:
        self.given, self.agent = given, SimpleNamespace(messages=list[Any]())
        self.orders: set[str] = set()
        library = import_module("strands.agent.conversation_manager")
        self.window = library.SlidingWindowConversationManager(pin_first=1)
        self.overflow = import_module("strands.types.exceptions").ContextWindowOverflowException

    def add(self, messages: list[Message]) -> None:
        for message in messages:
            self._add(message)

    def cut(self) -> list[Message]:
        self.window.apply_management(self.agent)
        if self._tokens() > self.given.limit:
            self.window.reduce_context(self.agent)
        for _ in range(RETRIES):
            if self._tokens() <= self.given.spare:
                break
            self.window.reduce_context(self.agent, self.overflow("too long"))
        return self._sent()

    def _add(self, message: Message) -> None:
        """Add to the user's last message where results come in a row, as Bedrock takes them."""
        text, messages = self.given.words(message), self.agent.messages
        if message["role"] == "assistant":
            blocks = [{"text": text}] if text else []
            calls = self.given.calls(message)
            uses = [{"toolUse": {"toolUseId": c.id, "name": c.name, "input": c.arguments}} for c in calls]
            messages.append({"role": "assistant", "content": [*blocks, *uses]})
        elif message["role"] == "tool":
            call, _ = self.given.answered(message)
            block = {"toolResult": {"toolUseId": call, "status": "success", "content": [{"text": text}]}}
            if messages and any("toolResult" in each for each in messages[-1]["content"]):
                messages[-1]["content"].append(block)
            else:
                messages.append({"role": "user", "content": [block]})
        else:
            self.given.remember(message)
            if message["role"] != "user":
                self.orders.add(text)
            messages.append({"role": "user", "content": [{"text": text}]})

    def _tokens(self) -> int:
        return sum(self.given.tokens(message) for message in self._sent())

    def _sent(self) -> list[Message]:
        return [message for each in self.agent.messages for message in self._back(each)]

    def _back(self, message: Any) -> list[Message]:
        blocks = message["content"]
        if message["role"] == "assistant":
            text = "".join(block.get("text", "") for block in blocks)
            ids = [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block]
            return [self.given.back("assistant", text, ids)]
        return [
            self._result(block["toolResult"]) if "toolResult" in block else self._said(block)
            for block in blocks
        ]

    def _result(self, result: Any) -> Message:
        text = "".join(part.get("text", "") for part in result["content"])
        return self.given.back("tool", text, [result["toolUseId"]])

    def _said(self, block: Any) -> Message:
        return self.given.back("system" if block["text"] in self.orders else "user", block["text"])


PEERS = {"strands": Sliding}
