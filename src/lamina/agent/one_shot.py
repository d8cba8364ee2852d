"""One-shot tools: a plan says what to look up, that is done first, and then the model answers once.

The plan is made by a call of its own, which is not recorded. The log has the results, as context before the
question.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from lamina.agent.actions import Action
from lamina.agent.profiles import PLANNING
from lamina.clients.events import CallEvent, Client, UsageEvent
from lamina.core.build import build
from lamina.core.values import Segment, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects import DIALECTS
from lamina.dialects.port import PlainHead
from lamina.dialects.sending import render_request
from lamina.dialects.usage import Usage
from lamina.segments import excerpt, system, user


class PlannedCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of a plan, and what making it cost."""

    calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None


Plan = Callable[[str], Awaitable[Sequence[ToolCall] | PlannedCalls]]
"""Says which tools must run before a prompt can be answered."""


class ModelPlan:
    """A plan that a model makes. It keeps no state from one plan to the next, so turns may share it."""

    def __init__(
        self, client: Client, model: str, actions: Sequence[Action], *, instructions: str = PLANNING
    ) -> None:
        self._client = client
        self._model = model
        self._actions = tuple(actions)
        self._instructions = instructions

    async def __call__(self, prompt: str) -> PlannedCalls:
        calls: list[ToolCall] = []
        usage = Usage()
        async with self._client.send(self._make_request(prompt)) as reply:
            async for event in reply:
                if isinstance(event, CallEvent):
                    call_id = event.id or f"plan-{len(calls)}"  # Ollama's own API has no ids
                    calls.append(ToolCall(id=call_id, name=event.name, arguments=event.arguments))
                elif isinstance(event, UsageEvent):
                    usage = Usage(
                        input=event.input, cached=event.cached, written=event.written, output=event.output
                    )
        return PlannedCalls(calls=tuple(calls), usage=usage)

    def _make_request(self, prompt: str) -> dict[str, Any]:
        dialect = DIALECTS[self._client.dialect]
        tools = tuple(action.tool for action in self._actions)
        head = dialect.head.write(PlainHead(model=self._model, tools=tools)).head
        return render_request(build([system(self._instructions), user(prompt)], head=head), dialect)


def make_context(call: ToolCall, result: Segment) -> Segment:
    """The result of a planned call as an excerpt, which names the tool and its arguments as the source."""
    part = result.parts[0]
    content = part.content if isinstance(part, ToolResult) else result.parts
    return excerpt(text_of(content), source=call.name, place=call.arguments, recover=None)
