"""Which calls of a model the session answers itself, and which are left to the application."""

from __future__ import annotations

import json
from typing import Any

from lamina.conversations.memory_files import load_files
from lamina.conversations.memory_tool import MEMORY
from lamina.core.values import ToolResult
from lamina.core.wording import text_of
from lamina.dialects.port import PlainHead
from lamina.stores.memory import MemoryStore
from tests.sessions.talking import awaited, opened

SERVED: dict[str, Any] = {
    "memory_tool": "lamina",
    "head": PlainHead(tools=(MEMORY,), output=200),
    "model": "gpt-5",
}


def call_answer(name: str, **arguments: Any) -> dict[str, Any]:
    """An answer that calls one tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": "c1", "type": "function", "function": function}
    return {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": None, "tool_calls": [call]}}]
    }


@awaited
async def test_a_call_without_a_name_is_left_to_the_application() -> None:
    async with opened(MemoryStore(), model="gpt-5") as session:
        await session.ask("Read it")
        recorded = await session.record(call_answer("", path="a.md"))
        assert [call.id for call in recorded.calls] == ["c1"]


@awaited
async def test_a_command_of_the_memory_tool_that_the_application_answered_is_not_run() -> None:
    store = MemoryStore()
    async with opened(store, **SERVED) as session:
        await session.ask("Remember tea")
        await session.record(call_answer("memory", command="create", path="/memories/a.md", file_text="tea"))
        await session.results({"c1": "The memory is full."})
        results = [part for one in session.log for part in one.parts if isinstance(part, ToolResult)]
        assert [text_of(result.content) for result in results] == ["The memory is full."]
    assert await load_files(store, "") == {}


@awaited
async def test_commands_of_the_memory_tool_run_in_the_order_of_their_calls() -> None:
    async with opened(MemoryStore(), **SERVED) as session:
        await session.ask("Remember tea")
        answer = call_answer("memory", command="create", path="/memories/a.md", file_text="tea")
        view = {"name": "memory", "arguments": json.dumps({"command": "view", "path": "/memories/a.md"})}
        answer["choices"][0]["message"]["tool_calls"].append(
            {"id": "c2", "type": "function", "function": view}
        )
        recorded = await session.record(answer)
        assert recorded.calls == ()
        await session.results()
        results = [part for one in session.log for part in one.parts if isinstance(part, ToolResult)]
        assert [result.id for result in results] == ["c1", "c2"]
        assert "tea" in text_of(results[1].content)
