"""LlamaIndex: Memory, which moves the oldest messages out of its queue when that is full.

It holds messages in a database in memory. Its agents hold the system text apart. Arguments of calls are not
counted by it. Run by the peer's own interpreter.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.peers.workers.serve import Given, Message


class Memory:
    outside = True

    def __init__(self, given: Given) -> None:
        self.given = given
        self.library = import_module("llama_index.core.base.llms.types")
        self.loop = asyncio.new_event_loop()
        self.new: list[Any] = []
        self.memory = import_module("llama_index.core.memory").Memory.from_defaults(
            session_id="lab",
            token_limit=given.limit,
            chat_history_token_ratio=1.0,
            token_flush_size=given.limit - given.goal,
            tokenizer_fn=lambda text: range(given.count(text)),
        )

    def add(self, messages: list[Message]) -> None:
        self.new = [self._told(message) for message in messages]

    def cut(self) -> list[Message]:
        return self.loop.run_until_complete(self._cut())

    async def _cut(self) -> list[Message]:
        await self.memory.aput_messages(self.new)
        return [self._back(message) for message in await self.memory.aget()]

    def _told(self, message: Message) -> Any:
        library, text, role = self.library, self.given.words(message), message["role"]
        more: dict[str, Any] = {}
        blocks = [library.TextBlock(text=text)] if text else []
        if role == "assistant":
            calls = self.given.calls(message)
            blocks += [
                library.ToolCallBlock(tool_call_id=c.id, tool_name=c.name, tool_kwargs=c.arguments)
                for c in calls
            ]
        elif role == "tool":
            call, name = self.given.answered(message)
            more = {"tool_call_id": call, "name": name}
        else:
            self.given.remember(message)
        role = "system" if role == "developer" else role
        return library.ChatMessage(role=role, blocks=blocks, additional_kwargs=more)

    def _back(self, message: Any) -> Message:
        text = "\n".join(block.text for block in message.blocks if block.block_type == "text")
        ids = [block.tool_call_id for block in message.blocks if block.block_type == "tool_call"]
        if message.role.value == "tool":
            ids = [message.additional_kwargs["tool_call_id"]]
        return self.given.back(message.role.value, text, ids)


PEERS = {"llama-index": Memory}
