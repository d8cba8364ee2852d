"""Calls that a session answers itself: of the recall tool, the context tool and the memory tool.

The application never sees these calls. It has to answer all others.
"""

from __future__ import annotations

from collections.abc import Iterable

from lamina.conversations.memory_commands import MemoryAnswer
from lamina.conversations.memory_files import run_in_store
from lamina.conversations.memory_tool import read_arguments, write_result
from lamina.core.values import Segment, ToolCall
from lamina.fitting.own_tools import ToolSituation, answer_call, find_own_tool
from lamina.sessions.forks import answer_child_recall
from lamina.sessions.request_builder import RequestBuilder
from lamina.sessions.setup import find_own_tools
from lamina.sessions.stored_conversation import StoredConversation


def is_own_call(call: ToolCall, builder: RequestBuilder) -> bool:
    """Whether the session itself answers this call."""
    if _is_memory_call(call, builder):
        return True
    return find_own_tool(find_own_tools(builder.setup), call.name) is not None


async def answer_own_calls(
    calls: Iterable[ToolCall], builder: RequestBuilder, stored: StoredConversation, situation: ToolSituation
) -> list[Segment]:
    """The results of those calls that the session answers.

    One is answered after the other, since a command of the memory tool may read what the last one wrote.
    """
    own_tools = find_own_tools(builder.setup)
    results: list[Segment] = []
    for call in calls:
        answer: Segment | None = None
        if _is_memory_call(call, builder):
            answer = await _run_memory_command(call, stored)
        elif own_tools:
            answer = await answer_child_recall(call, stored) or answer_call(own_tools, call, situation)
        if answer is not None:
            results.append(answer)
    return results


def _is_memory_call(call: ToolCall, builder: RequestBuilder) -> bool:
    # Without a memory tool its name is "", and so is the name of a call that a model has left unnamed.
    return builder.memory_name != "" and call.name == builder.memory_name


async def _run_memory_command(call: ToolCall, stored: StoredConversation) -> Segment:
    arguments = read_arguments(call)
    if isinstance(arguments, MemoryAnswer):
        return write_result(call, arguments)
    answer = await run_in_store(stored.store, stored.where.workspace, arguments)
    return write_result(call, answer)
