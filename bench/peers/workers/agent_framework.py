"""Microsoft's Agent Framework: truncation by tokens, oldest groups first.

What it leaves out is marked in the messages themselves, so it stays left out. Run by the peer's own
interpreter.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.peers.workers.serve import Given, Message


class Truncate:
    outside = False

    def __init__(self, given: Given) -> None:
        self.given, self.history = given, list[Any]()
        self.library = import_module("agent_framework")
        self.loop = asyncio.new_event_loop()
        self.strategy = self.library.TruncationStrategy(
            max_n=given.limit, compact_to=given.goal, tokenizer=self, preserve_first_user_group=True
        )

    def count_tokens(self, text: str) -> int:
        return self.given.count(text)

    def add(self, messages: list[Message]) -> None:
        self.history += map(self._told, messages)

    def cut(self) -> list[Message]:
        kept = self.library.apply_compaction(self.history, strategy=self.strategy, tokenizer=self)
        return [self._back(message) for message in self.loop.run_until_complete(kept)]

    def _told(self, message: Message) -> Any:
        content, text, role = self.library.Content, self.given.words(message), message["role"]
        if role == "tool":
            call, _ = self.given.answered(message)
            return self.library.Message("tool", [content.from_function_result(call, result=text)])
        parts = [content.from_text(text)] if text else []
        if role == "assistant":
            calls = self.given.calls(message)
            parts += [content.from_function_call(c.id, c.name, arguments=c.raw) for c in calls]
        else:
            self.given.remember(message)
        return self.library.Message("system" if role == "developer" else role, parts)

    def _back(self, message: Any) -> Message:
        results = [part for part in message.contents if part.type == "function_result"]
        if results:
            return self.given.back("tool", str(results[0].result), [results[0].call_id])
        text = "".join(part.text for part in message.contents if part.type == "text")
        ids = [part.call_id for part in message.contents if part.type == "function_call"]
        return self.given.back(str(getattr(message.role, "value", message.role)), text, ids)


PEERS = {"agent-framework": Truncate}
