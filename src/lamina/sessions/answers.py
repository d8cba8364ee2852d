"""What comes back from a model and from tools, as segments for the log.

An answer may be an object of an SDK, a dict, the events of a stream (as they come, or all of them), or plain
text. Nothing is stored here.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from lamina.core.text.characters import is_blank
from lamina.core.values import Part, Segment, ToolCall, ToolResult
from lamina.dialects.port import Absorbed, Dialect
from lamina.dialects.usage import Usage
from lamina.errors import BadInput
from lamina.fitting.own_tools import OwnTool, ToolSituation, answer_call
from lamina.segments import assistant, result

Answer = Any
"""An SDK's object, a dict, the events of a stream, or text."""

Results = Mapping[str, "str | Part | Sequence[Part]"] | Segment | ToolResult
"""Results by the id of their call, or one result as a segment or a part."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that was stored. `calls` wait for a result; the session answers those of its own tools."""

    segments: tuple[Segment, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    stop: str = ""


async def absorb_answer(answer: Answer, dialect: Dialect) -> Absorbed:
    """Turn an answer of any shape into segments.

    It may be a stream of events, with or without `await`, a whole answer of an SDK, or plain text. An
    object of an SDK may be iterable without being a stream, and is told by its `model_dump`.
    """
    if isinstance(answer, AsyncIterable) and not hasattr(answer, "model_dump"):
        return dialect.answers.absorb_stream([event async for event in answer])
    if isinstance(answer, list | tuple | Iterator):
        return dialect.answers.absorb_stream(list(answer))
    if not isinstance(answer, str) or dialect.name == "text":
        return dialect.answers.absorb(answer)
    segments: list[Segment] = []
    if not is_blank(answer):
        segments.append(assistant(answer))
    return Absorbed(segments=tuple(segments))


def make_results(
    results: Iterable[Results],
    calls: Sequence[ToolCall],
    own_tools: Sequence[OwnTool],
    situation: ToolSituation,
) -> list[Segment]:
    """One segment for each result, in the order of the calls. Calls of `own_tools` are answered here.

    Results of calls that nobody made come last, as they were given.
    """
    names: dict[str, str] = {}
    order: dict[str, int] = {}
    for index, call in enumerate(calls):
        names[call.id] = call.name
        order.setdefault(call.id, index)
    segments: list[Segment] = []
    for item in results:
        segments += _result_segments(item, names)
    answered_ids = {_result_id(segment) for segment in segments}
    for call in calls:
        if call.id in answered_ids:
            continue
        answer = answer_call(own_tools, call, situation)
        if answer is not None:
            segments.append(answer)
    return sorted(segments, key=lambda segment: order.get(_result_id(segment), len(order)))


def _result_segments(item: Results, names: Mapping[str, str]) -> list[Segment]:
    """The segments of results in any of their forms. `names` has the tool of each call.

    `{"call_1": "done"}` is the result of one call.
    """
    if isinstance(item, Segment):
        return [item]
    if isinstance(item, ToolResult):
        name = item.name or names.get(item.id, "")
        return [result(item.content, id=item.id, name=name, error=item.error)]
    if not isinstance(item, Mapping):
        hint = "give {call id: text}, a ToolResult or a segment"
        raise BadInput(f"{type(item).__name__} is no result", place="results", hint=hint)
    return [result(content, id=id_, name=names.get(id_, "")) for id_, content in item.items()]


def _result_id(segment: Segment) -> str:
    """The id of the call that a segment answers, or "" if it answers none."""
    for part in segment.parts:
        if isinstance(part, ToolResult):
            return part.id
    return ""
