"""Calls that a session answers itself: of the recall tool and the context tool.

The application never sees these calls. It has to answer all others.
"""

from __future__ import annotations

from collections.abc import Iterable

from lamina.core.values import Segment, ToolCall
from lamina.fitting.own_tools import ToolSituation, answer_call, find_own_tool
from lamina.sessions.forks import answer_child_recall
from lamina.sessions.request_builder import RequestBuilder
from lamina.sessions.setup import find_own_tools
from lamina.sessions.stored_conversation import StoredConversation


def is_own_call(call: ToolCall, builder: RequestBuilder) -> bool:
    """Whether the session itself answers this call."""
    return find_own_tool(find_own_tools(builder.setup), call.name) is not None


async def answer_own_calls(
    calls: Iterable[ToolCall], builder: RequestBuilder, stored: StoredConversation, situation: ToolSituation
) -> list[Segment]:
    """The results of those calls that the session answers."""
    own_tools = find_own_tools(builder.setup)
    results: list[Segment] = []
    if not own_tools:
        return results
    for call in calls:
        answer = await answer_child_recall(call, stored) or answer_call(own_tools, call, situation)
        if answer is not None:
            results.append(answer)
    return results
