"""What comes back from a model and from tools, as segments for the log.

An answer may be an object of an SDK, a dict, the events of a stream (as they come, or all of them), or plain
text. It keeps nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from lamina.core.text.characters import is_blank
from lamina.core.values import Ledger, Part, Segment, ToolCall, ToolResult
from lamina.dialects.port import Absorbed, Dialect, Usage
from lamina.errors import BadInput
from lamina.segments import assistant, result
from lamina.sessions.recalled import answered
from lamina.sessions.setup import RECALL

Answer = Any
"""An SDK's object, a dict, the events of a stream, or text."""

Results = Mapping[str, "str | Part | Sequence[Part]"] | Segment | ToolResult
"""Results by the id of their call, or ready-made."""


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that was kept. `calls` wait for a result; those of the recall tool the session answers."""

    segments: tuple[Segment, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    stop: str = ""


async def absorbed(answer: Answer, dialect: Dialect) -> Absorbed:
    """An answer as segments, whatever shape it came in."""
    if isinstance(answer, AsyncIterable) and not hasattr(answer, "model_dump"):
        return dialect.absorb_stream([event async for event in answer])
    if isinstance(answer, list | tuple | Iterator):
        return dialect.absorb_stream(list(answer))
    if isinstance(answer, str) and dialect.name != "text":
        return Absorbed(segments=(assistant(answer),) if not is_blank(answer) else ())
    return dialect.absorb(answer)


def results_of(
    given: Iterable[Results],
    calls: Sequence[ToolCall],
    log: Sequence[Segment],
    ledger: Ledger,
    *,
    recall: bool,
) -> list[Segment]:
    """One segment for each result, in the order of the calls; recalls are answered from the log."""
    made = [one for each in given for one in _made(each, calls)]
    known = {_id(segment) for segment in made}
    if recall:
        asked = (call for call in calls if call.name == RECALL.name and call.id not in known)
        made += [answered(log, call, ledger=ledger) for call in asked]
    order = {call.id: place for place, call in reversed(list(enumerate(calls)))}
    return sorted(made, key=lambda segment: order.get(_id(segment), len(order)))


def _made(given: Results, calls: Sequence[ToolCall]) -> list[Segment]:
    if isinstance(given, Segment):
        return [given]
    names = {call.id: call.name for call in calls}
    if isinstance(given, ToolResult):
        name = given.name or names.get(given.id, "")
        return [result(given.content, id=given.id, name=name, error=given.error)]
    if not isinstance(given, Mapping):
        hint = "give {call id: text}, a ToolResult or a segment"
        raise BadInput(f"{type(given).__name__} is no result", place="results", hint=hint)
    return [result(content, id=id_, name=names.get(id_, "")) for id_, content in given.items()]


def _id(segment: Segment) -> str:
    return next((part.id for part in segment.parts if isinstance(part, ToolResult)), "")
