"""Which calls of a model the session answers itself, and which are left to the application."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lamina.core import ToolResult
from lamina.segments import call
from lamina.stores import MemoryStore
from tests.sessions.talking import awaited, opened


def call_answer(name: str, **arguments: Any) -> dict[str, Any]:
    """An answer that calls one tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    calls = [{"id": "c1", "type": "function", "function": function}]
    return {"choices": [{"index": 0, "message": {"role": "assistant", "content": None, "tool_calls": calls}}]}


@pytest.mark.parametrize("name", ["", "memory"])
@awaited
async def test_a_call_that_names_no_tool_of_the_session_is_left_to_the_application(name: str) -> None:
    async with opened(MemoryStore(), model="gpt-5") as session:
        await session.ask("Read it")
        recorded = await session.record(call_answer(name, path="a.md"))
        assert [call.id for call in recorded.calls] == ["c1"]


@pytest.mark.parametrize("own_first", [True, False])
@awaited
async def test_calls_of_one_id_are_told_apart_by_their_tools(own_first: bool) -> None:  # noqa: FBT001
    """Some servers give every call the same id."""
    recalls = call("recall", {"key": "nothing"}, id="x")
    reads = call("read_file", {"path": "a.md"}, id="x")
    async with opened(MemoryStore(), model="gpt-5", recall="tool") as session:
        await session.ask("Read it")
        await session.add(*([recalls, reads] if own_first else [reads, recalls]))
        await session.results({"x": "the file"})
        answers = [segment.parts[0] for segment in session.log if segment.kind == "tool_result"]
        assert session.calls == ()
        messages = (await session.request())["messages"]
    assert all(isinstance(part, ToolResult) for part in answers)
    names = ["recall", "read_file"] if own_first else ["read_file", "recall"]
    assert [part.name for part in answers if isinstance(part, ToolResult)] == names
    called = {each["id"]: each["function"]["name"] for each in messages[-3]["tool_calls"]}
    said = {called[message["tool_call_id"]]: message["content"] for message in messages[-2:]}
    assert said["read_file"] == "the file"
    assert "nothing has the key" in said["recall"]
