"""How errors name what stands in a request: where it is, what it is, and how it begins.

messages[3] (tool result of read_file, "def f(x): return…")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lamina.core.recall import identify_segments
from lamina.core.text.tags import make_inert
from lamina.core.values import Segment, ToolCall, ToolResult
from lamina.core.wording import name_of, text_of
from lamina.dialects.origins import read_origin
from lamina.errors import BudgetExceeded

QUOTE = 30
"""How many characters of a segment an error shows."""

_KINDS = {"system": "system text", "user": "user message", "assistant": "assistant message"}
"""What the kinds of messages are called in an error."""


def name_segments(
    error: BudgetExceeded, log: Sequence[Segment], request: Mapping[str, Any] | None = None
) -> BudgetExceeded:
    """The error with a name that a person can find for each segment that it lists.

    With the `request` that the log was parsed from, the name begins with the place in it.
    """
    refs = {ref for ref, _ in error.segments}
    names: dict[str, str] = {"tools": "the definitions of the tools"}
    for ref in refs:
        if ref.startswith("fold-"):
            names[ref] = "the digest of earlier messages"
    places = _find_places(log, request or {})
    for each, place in zip(identify_segments(log), places, strict=True):
        # The error names a segment by its ref, or by the key that the caller gave it.
        for ref in refs.intersection((each.ref, each.segment.key)):
            names[ref] = _describe(each.segment, place)
    return BudgetExceeded(
        floor=error.floor,
        room=error.room,
        segments=error.segments,
        reason=error.reason,
        hint=error.hint,
        names=names,
    )


def _describe(segment: Segment, place: str) -> str:
    """The name of a segment in an error: its place or its key, what it is, and how it begins.

    `messages[3] (tool result of read_file, "import os …")`, for example.
    """
    text = make_inert(text_of(segment.parts), QUOTE)
    details = _describe_kind(segment)
    if text:
        details += f', "{text}"'
    place = place or segment.key
    if not place:
        return details
    return f"{place} ({details})"


def _describe_kind(segment: Segment) -> str:
    """What a segment is: "tool result of read_file", "user message", "note docs/spec.md"."""
    match segment.parts[0]:
        case ToolResult(name=name):
            return f"tool result of {name or segment.attrs.get('tool', 'a tool')}"
        case ToolCall(name=name):
            return f"call of {name}"
    if segment.kind in _KINDS:
        return _KINDS[segment.kind]
    return f"{segment.kind} {name_of(segment)}"


def _find_places(log: Sequence[Segment], request: Mapping[str, Any]) -> list[str]:
    """The place of the message that each segment came from: "messages[3]"; "" if it is not known.

    A log has the messages of its request in their order. So of several equal messages each has its own place.
    Messages are compared as values: with a memo, a segment may come from an equal message of an earlier call.
    """
    places: list[str] = []
    next_index: dict[str, int] = {}
    last_message: Any = None
    place = ""
    for segment in log:
        origin = read_origin(segment)
        if origin is None or origin.message is None:
            places.append("")
            continue
        if origin.is_first or origin.message is not last_message:
            place = _find_place(origin.message, request, next_index)
            last_message = origin.message
        places.append(place)
    return places


def _find_place(message: Any, request: Mapping[str, Any], next_index: dict[str, int]) -> str:
    """The place of a message in a request; "" if it is not there.

    A list of messages is searched from the index after the one that was seen last.
    """
    for field, value in request.items():
        if not isinstance(value, list | tuple):
            if value == message:
                return str(field)
            continue
        try:
            index = value.index(message, next_index.get(field, 0))
        except ValueError:
            continue
        next_index[field] = index + 1
        return f"{field}[{index}]"
    return ""
