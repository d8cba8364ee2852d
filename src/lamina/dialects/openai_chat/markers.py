"""Puts cache breakpoints on a Chat Completions request: exactly those that a `Marking` names.

Whatever need not change stays the same object, and the request is never written to. The key and the mode of
caching are set if the marking has them; otherwise the caller's own stay. This module does not know which
models take these fields: some refuse them. The Responses API has the same breakpoints and fields, on other
parts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from lamina.dialects.json_values import mapping_or_empty, to_dict_or_empty
from lamina.dialects.marking import Places, mark_field, require_all_placed
from lamina.dialects.openai_chat.parts import MARKER
from lamina.dialects.port import Marking, Request
from lamina.dialects.same_objects import (
    change_items,
    change_object,
    drop_field,
    put_or_drop_field,
    set_field,
    to_same_dict,
)

MARKABLE_TYPES = ("text", "image_url", "input_audio", "file", "refusal")
"""Types of parts that may have a breakpoint."""

_OPTIONS_FIELD = "prompt_cache_options"
_MODES = ("implicit", "explicit")


def mark(request: Request, marking: Marking) -> dict[str, Any]:
    """The request with these breakpoints and no others. A string that must carry one becomes a text part.

    A place is that of a part, `messages[3].content[0]`, as the stream names it. One that is not there raises
    BadInput.
    """
    places = dict(marking.places)
    marked = mark_field(request, "messages", "messages", places, _mark_message)
    require_all_placed(places)
    return set_request_fields(marked, marking)


def remove_refused_marks(request: dict[str, Any]) -> dict[str, Any]:
    """The request without breakpoints where the API refuses them (C6); the same object if it has none."""
    with_bare_tools = change_items(request, "tools", _remove_tool_mark)
    allowed = change_items(with_bare_tools, "messages", _remove_refused_message_marks)
    return to_same_dict(allowed)


def set_request_fields(
    request: Mapping[str, Any], marking: Marking, *, retentions: Collection[str] = ()
) -> dict[str, Any]:
    """The request with the fields that hold for it as a whole: the key, and the mode or the lifetime.

    `automatic="explicit"` sets the mode, `automatic="12h"` the lifetime. One of the `retentions` has a field
    of its own. If the request has all this already, the same object comes back.
    """
    fields: dict[str, Any] = {}
    if marking.key:
        fields["prompt_cache_key"] = marking.key
    if marking.automatic in retentions:
        fields["prompt_cache_retention"] = marking.automatic
    elif marking.automatic:
        option = "ttl"
        if marking.automatic in _MODES:
            option = "mode"
        options = mapping_or_empty(request.get(_OPTIONS_FIELD))
        fields[_OPTIONS_FIELD] = {**options, option: marking.automatic}
    for name, value in fields.items():
        request = put_or_drop_field(request, name, value)
    return to_same_dict(request)


def _mark_message(message: Any, place: str, places: Places) -> Any:
    """A message with its parts marked.

    An object of an SDK becomes a dict only if one of its parts changes.
    """
    content_place = f"{place}.content"
    return change_object(
        message, lambda fields: mark_field(fields, "content", content_place, places, _mark_part)
    )


def _mark_part(part: Any, place: str, places: Places) -> Any:
    """A part with its breakpoint, or without one."""
    lifetime = places.pop(place, None)
    return change_object(part, lambda fields: set_breakpoint(fields, lifetime))


def set_breakpoint(part: Mapping[str, Any], lifetime: str | None) -> Mapping[str, Any]:
    """A part with a breakpoint of this lifetime, or without any (None); the same object if it is so already.

    The lifetime "" is the provider's default, which the breakpoint does not name.
    """
    if lifetime is None:
        return put_or_drop_field(part, MARKER, None)
    marker = {"mode": "explicit"}
    if lifetime:
        marker["ttl"] = lifetime
    return put_or_drop_field(part, MARKER, marker)


def _remove_tool_mark(tool: Any) -> Any:
    """A tool without a breakpoint, on itself or on its function."""
    bare_tool = drop_field(tool, MARKER)
    if not isinstance(bare_tool, Mapping):
        return bare_tool
    return set_field(bare_tool, "function", drop_field(bare_tool.get("function"), MARKER))


def _remove_refused_message_marks(message: Any) -> Any:
    """A message with breakpoints on parts only, and only on parts that may have one.

    A client that marked its messages for another API has markers in places that this one refuses.
    """

    def remove_refused(fields: dict[str, Any]) -> Mapping[str, Any]:
        allowed = change_items(drop_field(fields, MARKER), "tool_calls", remove_breakpoint)
        return change_items(allowed, "content", _remove_refused_part_mark)

    return change_object(message, remove_refused)


def _remove_refused_part_mark(part: Any) -> Any:
    """A part, without its breakpoint if its type may have none."""
    if to_dict_or_empty(part).get("type") in MARKABLE_TYPES:
        return part
    return remove_breakpoint(part)


def remove_breakpoint(value: Any) -> Any:
    """A call or a part without a breakpoint; the same object if it has none.

    A breakpoint that is null is dropped too.
    """
    return change_object(value, lambda fields: drop_field(fields, MARKER))
