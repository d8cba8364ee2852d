"""Puts cache breakpoints on a Responses request: exactly those that a `Marking` names, and no others.

Whatever need not change stays the same object, and the caller's request is never written to. The key and the
mode of caching are set if the `Marking` names them, and else stay the caller's. This module does not know
which models take these fields: others refuse them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lamina.dialects.json_values import LIST_TYPES, Json, mapping_or_empty, to_dict_or_none
from lamina.dialects.openai_responses.items import PARTS_FIELDS, read_type
from lamina.dialects.openai_responses.parts import MARKABLE_TYPES, MARKER_FIELD
from lamina.dialects.port import Marking, Request
from lamina.dialects.same_objects import (
    change_items,
    drop_field,
    keep_list,
    keep_source,
    put_or_drop_field,
    set_field,
)
from lamina.errors import BadInput

KEY_FIELD = "prompt_cache_key"
OPTIONS_FIELD = "prompt_cache_options"
RETENTION_FIELD = "prompt_cache_retention"

MODES = ("implicit", "explicit")
RETENTIONS = ("in_memory", "24h")
LIFETIMES = ("30m", "12h")

Places = dict[str, str]
"""The lifetime of each marker that is still to be placed, by its place. Placing one removes it."""


def mark(request: Request, marking: Marking) -> dict[str, Any]:
    """The request with these breakpoints and no others.

    A string that must carry one becomes a text part.
    """
    places = dict(marking.places)
    request_input = request.get("input")
    items: Any = request_input
    if isinstance(request_input, str) and "input[0].content[0]" in places:
        items = _mark_items([{"type": "message", "role": "user", "content": request_input}], places)
    elif isinstance(request_input, LIST_TYPES):
        items = _mark_items(request_input, places)
    if places:
        first_place = next(iter(places))
        problem = f"no part at {first_place!r} takes a marker"
        raise BadInput(problem, place="marking", hint="take places from the stream")

    changed: dict[str, Any] = {}
    if items is not request_input:
        changed["input"] = items
    changed |= _choose_request_fields(request, marking)
    if not changed and isinstance(request, dict):
        return request
    return {**request, **changed}


def _choose_request_fields(request: Request, marking: Marking) -> dict[str, Any]:
    """The fields to set on the request as a whole: the key, and the mode or the lifetime.

    `automatic="24h"` is a retention, "explicit" a mode, and "12h" a lifetime, each in a field of its own.
    Fields that have this value already are left out.
    """
    fields: dict[str, Any] = {}
    if marking.key:
        fields[KEY_FIELD] = marking.key
    if marking.automatic in RETENTIONS:
        fields[RETENTION_FIELD] = marking.automatic
    elif marking.automatic:
        option = "mode" if marking.automatic in MODES else "ttl"
        options = mapping_or_empty(request.get(OPTIONS_FIELD))
        fields[OPTIONS_FIELD] = {**options, option: marking.automatic}
    return {name: value for name, value in fields.items() if request.get(name) != value}


def _mark_items(items: Sequence[Any], places: Places) -> Sequence[Any]:
    """All items with their parts marked; the same list if nothing changed."""
    marked = [_mark_item(item, f"input[{position}]", places) for position, item in enumerate(items)]
    return keep_list(items, marked)


def _mark_item(source: Any, place: str, places: Places) -> Any:
    """An item with its parts marked. An object of the SDK becomes a dict only if something changed.

    `"content": "Hi"` becomes `[{"type": "input_text", "text": "Hi", "prompt_cache_breakpoint": {…}}]` if it
    must carry a marker. What the assistant said carries none.
    """
    item = to_dict_or_none(source)
    if item is None:
        return source
    field = PARTS_FIELDS.get(read_type(item))
    if field is None:
        return source
    content = item.get(field)
    content_place = f"{place}.{field}"
    is_assistant = item.get("role") == "assistant"
    marked: Any = content
    if isinstance(content, str):
        if content and not is_assistant:
            marked = _mark_text(content, content_place, places)
    elif isinstance(content, LIST_TYPES):
        parts = [
            _mark_part(part, f"{content_place}[{index}]", places, is_assistant=is_assistant)
            for index, part in enumerate(content)
        ]
        marked = keep_list(content, parts)
    return keep_source(source, item, set_field(item, field, marked))


def _mark_text(text: str, place: str, places: Places) -> Any:
    """A string as a part with a marker, if one belongs there; else the same string."""
    part_place = f"{place}[0]"
    if part_place not in places:
        return text
    return [_set_marker({"type": "input_text", "text": text}, places.pop(part_place))]


def _mark_part(source: Any, place: str, places: Places, *, is_assistant: bool) -> Any:
    """A part with its marker, or without one. Parts of the assistant, and of other types, may have none."""
    part = to_dict_or_none(source)
    if part is None:
        return source
    lifetime = None
    if not is_assistant and str(part.get("type")) in MARKABLE_TYPES:
        lifetime = places.pop(place, None)
    return keep_source(source, part, _set_marker(part, lifetime))


def _set_marker(part: Json, lifetime: str | None) -> Mapping[str, Any]:
    """A part with a breakpoint of this lifetime, or without one (None).

    The same object comes back if its breakpoint is as it should be.
    """
    marker: dict[str, str] | None = None
    if lifetime is not None:
        marker = {"mode": "explicit"}
    if marker and lifetime in LIFETIMES:
        marker["ttl"] = lifetime
    return put_or_drop_field(part, MARKER_FIELD, marker)


def remove_refused_markers(request: dict[str, Any]) -> dict[str, Any]:
    """The request without breakpoints that the API refuses; the same object if there are none."""
    allowed = change_items(request, "tools", lambda tool: drop_field(tool, MARKER_FIELD))
    allowed = change_items(allowed, "input", _remove_from_item)
    if isinstance(allowed, dict):
        return allowed
    return dict(allowed)


def _remove_from_item(source: Any) -> Any:
    """An item with breakpoints on its parts only, and only on those that may have one.

    An item of a type without parts, such as a call, may have no breakpoint at all.
    """
    item = to_dict_or_none(source)
    if item is None:
        return source
    allowed = drop_field(item, MARKER_FIELD)
    field = PARTS_FIELDS.get(read_type(item))
    if field is not None:
        allowed = change_items(allowed, field, _remove_from_part)
    return keep_source(source, item, allowed)


def _remove_from_part(source: Any) -> Any:
    """A part, without its breakpoint if its type may have none."""
    part = to_dict_or_none(source)
    if part is None or str(part.get("type")) in MARKABLE_TYPES:
        return source
    return keep_source(source, part, drop_field(part, MARKER_FIELD))
