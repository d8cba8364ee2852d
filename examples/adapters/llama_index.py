"""LlamaIndex's agent in a small window: 40 tool calls in two programs of one stored chat.

    pip install 'lamina-context[llama-index]'
    python examples/adapters/llama_index.py

The model is scripted, so no key is needed. Put yours in its place: `LaminaAgent(llm=OpenAI("gpt-5"), …)`.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if sys.path[0] == str(Path(__file__).resolve().parent):
    del sys.path[0]  # this folder has files with the names of frameworks

from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.storage.chat_store import SimpleChatStore

from lamina.adapters.llama_index import LaminaAgent, LaminaMemory


def read_part(number: int) -> str:
    """Read a part of the manual."""
    return f"Part {number}. Press the key, wait for the lamp, release the key.\n" * 40


class ScriptedModel:
    """Reads 20 parts in each turn, and then answers."""

    steps = 0

    def __call__(self, messages: Sequence[ChatMessage], **_: Any) -> ChatMessage:
        self.steps += 1
        if self.steps % 21 == 0:
            text = f"Read. The last request had {len(messages)} messages."
            return ChatMessage(role="assistant", content=text)
        call = ToolCallBlock(
            tool_call_id=f"call_{self.steps}", tool_name="read_part", tool_kwargs={"number": self.steps}
        )
        return ChatMessage(role="assistant", blocks=[call])


async def ask(path: str, question: str) -> None:
    """What one program does: open the chat store, run the agent, and end."""
    llm = MockFunctionCallingLLM(response_generator=ScriptedModel())
    store = SimpleChatStore.from_persist_path(path)
    memory = LaminaMemory.from_defaults(chat_store=store, budget=16_000)
    agent = LaminaAgent(llm=llm, tools=[read_part])
    response = await agent.run(question, memory=memory, max_iterations=30)
    print(response.response.content)
    print(f"{len(memory.get_all())} messages are kept")
    store.persist(path)


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        await ask(f"{folder}/chats.json", "Read the first parts.")
        await ask(f"{folder}/chats.json", "Read the others.")


if __name__ == "__main__":
    asyncio.run(main())
