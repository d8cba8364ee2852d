"""Cache breakpoints on a Chat Completions request: exactly those of a marking, with all others removed.

Whatever need not change stays the same object, and the request is never written to. The key and the mode of
caching are set if the marking has them; otherwise the caller's own stay. This module does not know which
models take these fields: some refuse them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.dialects.json_values import LIST_TYPES, mapping_or_empty, to_dict_or_empty, to_dict_or_none
from lamina.dialects.openai_chat.parts import MARKER
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

MARKABLE_TYPES = ("text", "image_url", "input_audio", "file", "refusal")
"""Types of parts that may have a breakpoint."""

_KEY_FIELD = "prompt_cache_key"
_OPTIONS_FIELD = "prompt_cache_options"
_MODES = ("implicit", "explicit")


def mark(request: Request, marking: Marking) -> dict[str, Any]:
    """The request with these breakpoints and no others. A string that must carry one becomes a text part.

    A place is that of a part, `messages[3].content[0]`, as the stream names it. One that is not there raises
    BadInput.
    """
    unplaced = dict(marking.places)
    changed_fields: dict[str, Any] = {}
    messages = request.get("messages")
    if isinstance(messages, LIST_TYPES):
        marked_messages = []
        for position, message in enumerate(messages):
            marked_messages.append(_mark_message(message, f"messages[{position}].content", unplaced))
        if keep_list(messages, marked_messages) is marked_messages:
            changed_fields["messages"] = marked_messages
    if unplaced:
        problem = f"no part at {next(iter(unplaced))!r}"
        raise BadInput(problem, place="marking", hint="take places from the stream")
    changed_fields |= _mark_request(request, marking)
    if not changed_fields and isinstance(request, dict):
        return request
    return {**request, **changed_fields}


def remove_refused_marks(request: dict[str, Any]) -> dict[str, Any]:
    """The request without breakpoints where the API refuses them (C6); the same object if it has none."""
    with_bare_tools = change_items(request, "tools", _remove_tool_mark)
    allowed = change_items(with_bare_tools, "messages", _remove_refused_message_marks)
    if isinstance(allowed, dict):
        return allowed
    return dict(allowed)


def _mark_request(request: Request, marking: Marking) -> dict[str, Any]:
    """The fields that change for the request as a whole: the key, and the mode or the lifetime.

    `automatic="explicit"` sets the mode, `automatic="12h"` the lifetime. What the request has already is left
    out.
    """
    changed_fields: dict[str, Any] = {}
    if marking.key and request.get(_KEY_FIELD) != marking.key:
        changed_fields[_KEY_FIELD] = marking.key
    if marking.automatic:
        old_options = request.get(_OPTIONS_FIELD)
        option = "ttl"
        if marking.automatic in _MODES:
            option = "mode"
        options = {**mapping_or_empty(old_options), option: marking.automatic}
        if options != old_options:
            changed_fields[_OPTIONS_FIELD] = options
    return changed_fields


def _mark_message(message: Any, place: str, unplaced: dict[str, str]) -> Any:
    """A message with its parts marked; what is placed leaves `unplaced`.

    An object of an SDK becomes a dict only if one of its parts changes.
    """
    mapping = to_dict_or_none(message)
    if mapping is None:
        return message
    content = mapping.get("content")
    if isinstance(content, str):
        for place_of_text in (place, f"{place}[0]"):
            if place_of_text in unplaced:
                text_part = {"type": "text", "text": content}
                marked_part = _set_marker(text_part, unplaced.pop(place_of_text))
                return {**mapping, "content": [marked_part]}
    if not isinstance(content, LIST_TYPES):
        return message
    parts: list[Any] = []
    for position, part in enumerate(content):
        lifetime = unplaced.pop(f"{place}[{position}]", None)
        part_mapping = to_dict_or_none(part)
        if part_mapping is None:  # a value that is no object stays as it is
            parts.append(part)
        else:
            parts.append(keep_source(part, part_mapping, _set_marker(part_mapping, lifetime)))
    return keep_source(message, mapping, set_field(mapping, "content", keep_list(content, parts)))


def _set_marker(part: Mapping[str, Any], lifetime: str | None) -> Mapping[str, Any]:
    """A part with a breakpoint of this lifetime, or without any (None); the same object if it is so already.

    The lifetime "" is the provider's default, which the breakpoint does not name.
    """
    marker: dict[str, str] | None = None
    if lifetime is not None:
        marker = {"mode": "explicit"}
    if marker and lifetime:
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
    mapping = to_dict_or_none(message)
    if mapping is None:
        return message
    allowed = drop_field(mapping, MARKER)
    allowed = change_items(allowed, "tool_calls", _remove_mark)
    allowed = change_items(allowed, "content", _remove_refused_part_mark)
    return keep_source(message, mapping, allowed)


def _remove_refused_part_mark(part: Any) -> Any:
    """A part, without its breakpoint if its type may have none."""
    if to_dict_or_empty(part).get("type") in MARKABLE_TYPES:
        return part
    return _remove_mark(part)


def _remove_mark(value: Any) -> Any:
    """A call or a part without a breakpoint; the same object if it has none.

    A breakpoint that is null is dropped too.
    """
    mapping = to_dict_or_empty(value)
    return keep_source(value, mapping, drop_field(mapping, MARKER))
