"""One-shot tools: what must be looked up is planned first and done, and then the model answers, once.

The plan is a call of its own that is not kept: the log has the results, as context before the question.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from lamina.agent.actions import Action, Care, by_name, carried_out
from lamina.agent.outcome import Hear, Ran
from lamina.agent.persona import PLANNING
from lamina.clients.events import Called, CallUsage, Client
from lamina.core.build import build
from lamina.core.values import Segment, ToolCall, ToolResult
from lamina.core.wording import text_of
from lamina.dialects import DIALECTS
from lamina.dialects.port import PlainHead, Usage
from lamina.dialects.sending import rendered
from lamina.segments import excerpt, system, user


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """The calls of a plan, and what making it took."""

    calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None


Plan = Callable[[str], Awaitable[Sequence[ToolCall] | Planned]]
"""Which tools must run before a prompt can be answered."""


class ByModel:
    """A plan that a model makes. It keeps nothing from one plan to the next, so turns may share it."""

    def __init__(
        self, client: Client, model: str, actions: Sequence[Action], *, told: str = PLANNING
    ) -> None:
        self._client, self._model, self._actions, self._told = client, model, tuple(actions), told

    async def __call__(self, prompt: str) -> Planned:
        calls: list[ToolCall] = []
        usage = Usage()
        async with self._client.send(self._request(prompt)) as reply:
            async for event in reply:
                if isinstance(event, Called):
                    name = event.id or f"plan-{len(calls)}"
                    calls.append(ToolCall(id=name, name=event.name, arguments=event.arguments))
                elif isinstance(event, CallUsage):
                    usage = Usage(
                        input=event.input, cached=event.cached, written=event.written, output=event.output
                    )
        return Planned(calls=tuple(calls), usage=usage)

    def _request(self, prompt: str) -> dict[str, Any]:
        dialect = DIALECTS[self._client.dialect]
        tools = tuple(action.tool for action in self._actions)
        head = dialect.own_head(PlainHead(model=self._model, tools=tools)).head
        return rendered(build([system(self._told), user(prompt)], head=head), dialect)


async def looked_up(
    calls: Sequence[ToolCall], actions: Sequence[Action], care: Care, hear: Hear
) -> list[Segment]:
    """What the calls of a plan brought, as context: one segment for each, in the order of the plan."""
    done: dict[int, Segment] = {}
    results = await carried_out(calls, by_name(actions), care, done)
    for call, result in zip(calls, results, strict=True):
        await hear(Ran(call=call, result=result))
    return [_context(call, result) for call, result in zip(calls, results, strict=True)]


def _context(call: ToolCall, result: Segment) -> Segment:
    part = result.parts[0]
    content = part.content if isinstance(part, ToolResult) else result.parts
    return excerpt(text_of(content), source=call.name, place=call.arguments, recover=None)
