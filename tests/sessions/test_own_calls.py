"""Which calls of a model the session answers itself, and which are left to the application."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lamina.stores import MemoryStore
from tests.sessions.talking import awaited, opened


def call_answer(name: str, **arguments: Any) -> dict[str, Any]:
    """An answer that calls one tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": "c1", "type": "function", "function": function}
    return {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": None, "tool_calls": [call]}}]
    }


@pytest.mark.parametrize("name", ["", "memory"])
@awaited
async def test_a_call_that_names_no_tool_of_the_session_is_left_to_the_application(name: str) -> None:
    async with opened(MemoryStore(), model="gpt-5") as session:
        await session.ask("Read it")
        recorded = await session.record(call_answer(name, path="a.md"))
        assert [call.id for call in recorded.calls] == ["c1"]
