"""Agents to test: sessions that look at nothing of this machine, small tools, short scripts."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from typing import Any

from lamina.agent import Action, Agent, open_for
from lamina.clients import CallEvent, UsageEvent
from lamina.core import ToolResult, text_of
from lamina.core.values import Budget, Segment
from lamina.dialects import Tool
from lamina.sessions import Session
from lamina.settings import Settings
from lamina.stores import MemoryStore
from lamina.testing import ScriptedAnswer
from lamina.testing.conformance import MODELS
from tests.sessions.talking import group_options

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
USED = UsageEvent(input=100, cached=60, output=10)


def calls(*names: str, said: str = "", **arguments: Any) -> ScriptedAnswer:
    """An answer that calls these tools, all with the same arguments."""
    json_arguments = json.dumps(arguments or {"path": "a.txt"})
    tool_calls = tuple(
        CallEvent(id=f"{name}-{i}", name=name, arguments=json_arguments) for i, name in enumerate(names)
    )
    return ScriptedAnswer(text=said, calls=tool_calls, used=USED)


def reading(text: str = "content", *, name: str = "read", **more: Any) -> Action:
    """A tool that gives this text."""

    async def run(arguments: dict[str, Any]) -> str:
        return f"{arguments['path']}: {text}"

    return Action(tool=Tool(name=name, description="Reads a file.", schema=SCHEMA), run=run, **more)


def opened(
    agent: Agent, store: MemoryStore | None = None, name: str = "a", **options: Any
) -> AbstractAsyncContextManager[Session]:
    usual: dict[str, Any] = {
        "model": MODELS[agent.client.dialect],
        "budget": Budget(window=30_000, reserve=1_000),
        "settings": Settings(),
        "clock": None,
        "persona": "",
    }
    return open_for(agent, store or MemoryStore(), name, **group_options(usual | options))


def results(session: Session) -> list[ToolResult]:
    return [part for one in session.log for part in one.parts if isinstance(part, ToolResult)]


def result_text(segment_or_result: Segment | ToolResult) -> str:
    if isinstance(segment_or_result, ToolResult):
        return text_of(segment_or_result.content)
    return text_of(segment_or_result.parts)
