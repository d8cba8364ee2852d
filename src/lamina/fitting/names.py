"""How errors name what stands in a request: where it is, what it is, and how it begins.

messages[3] (tool result of read_file, "def f(x): return…")
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lamina.core.recall import identify_segments
from lamina.core.text.tags import make_inert
from lamina.core.values import Budget, Segment, ToolCall, ToolResult
from lamina.core.wording import name_of, text_of
from lamina.dialects.origins import read_origin
from lamina.errors import BadInput, BudgetExceeded

QUOTE = 30
"""How many characters of a segment an error shows."""

_KINDS = {"system": "system text", "user": "user message", "assistant": "assistant message"}
"""What the kinds of messages are called in an error."""


def name_segments(
    error: BudgetExceeded, log: Sequence[Segment], request: Mapping[str, Any] | None = None
) -> BudgetExceeded:
    """Return the error with a name that a person can find for each segment that it lists.

    With the `request` that the log was parsed from, the name begins with the place in it.
    """
    refs = {ref for ref, _ in error.segments}
    names: dict[str, str] = {"tools": "the definitions of the tools"}
    for ref in refs:
        if ref.startswith("fold-"):
            names[ref] = "the digest of earlier messages"
    for each in identify_segments(log):
        for ref in refs.intersection((each.ref, each.segment.key)):
            names[ref] = _describe(each.segment, request)
    return BudgetExceeded(
        floor=error.floor, room=error.room, segments=error.segments, reason=error.reason, names=names
    )


def check_budget(budget: Any, place: str) -> None:
    """Raise BadInput unless this is a budget, or None."""
    if budget is None or isinstance(budget, Budget):
        return
    hint = "give Budget(window=...)"
    if isinstance(budget, int):
        hint = f"give Budget(window={budget})"
    raise BadInput(f"budget is {budget!r:.100}", place=place, hint=hint)


def _describe(segment: Segment, request: Mapping[str, Any] | None) -> str:
    text = make_inert(text_of(segment.parts), QUOTE)
    details = [_describe_kind(segment)]
    if text:
        details.append(f'"{text}"')
    place = segment.key
    if request is not None:
        place = _find_place(segment, request) or place
    if not place:
        return ", ".join(details)
    return f"{place} ({', '.join(details)})"


def _describe_kind(segment: Segment) -> str:
    """Return what a segment is: "tool result of read_file", "user message", "note docs/spec.md"."""
    match segment.parts[0]:
        case ToolResult(name=name):
            return f"tool result of {name or segment.attrs.get('tool', 'a tool')}"
        case ToolCall(name=name):
            return f"call of {name}"
    if segment.kind in _KINDS:
        return _KINDS[segment.kind]
    return f"{segment.kind} {name_of(segment)}"


def _find_place(segment: Segment, request: Mapping[str, Any]) -> str:
    """Return the place of the message that a segment came from: "messages[3]"; "" if it is not known."""
    origin = read_origin(segment)
    if origin is None or origin.message is None:
        return ""
    message = origin.message
    for field, value in request.items():
        if value is message:
            return str(field)
        if not isinstance(value, list | tuple):
            continue
        index = _find_same(value, message)
        if index is not None:
            return f"{field}[{index}]"
    return ""


def _find_same(items: Iterable[Any], message: Any) -> int | None:
    for index, item in enumerate(items):
        if item is message:
            return index
    return None
