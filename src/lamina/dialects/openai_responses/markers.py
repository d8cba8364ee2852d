"""Puts cache breakpoints on a Responses request: exactly those that a `Marking` names, and no others.

Whatever need not change stays the same object, and the caller's request is never written to. The breakpoints,
and the fields of the request, are those of Chat Completions; here they stand on other parts. This module does
not know which models take them: others refuse them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from lamina.dialects.json_values import to_dict_or_empty
from lamina.dialects.marking import Places, mark_field, require_all_placed
from lamina.dialects.openai_chat.markers import remove_breakpoint, set_breakpoint, set_request_fields
from lamina.dialects.openai_responses.items import PARTS_FIELDS, read_type
from lamina.dialects.openai_responses.parts import MARKABLE_TYPES, MARKER_FIELD
from lamina.dialects.port import Marking, Request
from lamina.dialects.same_objects import change_items, change_object, drop_field, to_same_dict

RETENTIONS = ("in_memory", "24h")
LIFETIMES = ("30m", "12h")


def mark(request: Request, marking: Marking) -> dict[str, Any]:
    """The request with these breakpoints and no others.

    A string that must carry one becomes a text part, in a message of the user if it is the whole input.
    """
    places = dict(marking.places)
    text = request.get("input")
    if isinstance(text, str) and "input[0].content[0]" in places:
        request = {**request, "input": [{"type": "message", "role": "user", "content": text}]}
    marked = request
    if not isinstance(request.get("input"), str):
        marked = mark_field(request, "input", "input", places, _mark_item)
    require_all_placed(places)
    return set_request_fields(marked, marking, retentions=RETENTIONS)


def _mark_item(item: Any, place: str, places: Places) -> Any:
    """An item with its parts marked. An object of the SDK becomes a dict only if something changed.

    `"content": "Hi"` becomes `[{"type": "input_text", "text": "Hi", "prompt_cache_breakpoint": {…}}]` if it
    must carry a marker. What the assistant said carries none, and an empty text neither.
    """

    def mark_parts(fields: dict[str, Any]) -> Mapping[str, Any]:
        field = PARTS_FIELDS.get(read_type(fields), "")
        is_assistant = fields.get("role") == "assistant"
        content = fields.get(field)
        if content == "" or (is_assistant and isinstance(content, str)):
            return fields
        mark_part = partial(_mark_part, is_assistant=is_assistant)
        return mark_field(fields, field, f"{place}.{field}", places, mark_part, text_type="input_text")

    return change_object(item, mark_parts)


def _mark_part(part: Any, place: str, places: Places, *, is_assistant: bool) -> Any:
    """A part with its marker, or without one. Parts of the assistant, and of other types, may have none.

    A lifetime that a breakpoint of this API cannot have becomes the provider's default.
    """
    lifetime: str | None = None
    if not is_assistant and _is_markable(part):
        lifetime = places.pop(place, None)
    if lifetime is not None and lifetime not in LIFETIMES:
        lifetime = ""
    return change_object(part, lambda fields: set_breakpoint(fields, lifetime))


def _is_markable(part: Any) -> bool:
    """Whether a part is of a type that may have a breakpoint."""
    return str(to_dict_or_empty(part).get("type")) in MARKABLE_TYPES


def remove_refused_markers(request: dict[str, Any]) -> dict[str, Any]:
    """The request without breakpoints that the API refuses; the same object if there are none."""
    with_bare_tools = change_items(request, "tools", lambda tool: drop_field(tool, MARKER_FIELD))
    return to_same_dict(change_items(with_bare_tools, "input", _remove_from_item))


def _remove_from_item(item: Any) -> Any:
    """An item with breakpoints on its parts only, and only on those that may have one.

    An item of a type without parts, such as a call, may have no breakpoint at all.
    """

    def remove_refused(fields: dict[str, Any]) -> Mapping[str, Any]:
        parts_field = PARTS_FIELDS.get(read_type(fields), "")
        return change_items(drop_field(fields, MARKER_FIELD), parts_field, _remove_from_part)

    return change_object(item, remove_refused)


def _remove_from_part(part: Any) -> Any:
    """A part, without its breakpoint if its type may have none."""
    if _is_markable(part):
        return part
    return remove_breakpoint(part)
