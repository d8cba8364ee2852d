"""Rules of the Responses API about calls and their outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lamina.core.values import Role
from lamina.dialects.openai_responses.items import (
    CALL_ID_LIMIT,
    DEFINED_CALL_TYPES,
    DEFINED_OUTPUT_TYPES,
    find_call_id_field,
    is_safe_name,
    is_valid_call_id,
    may_refer_to_call,
)
from lamina.dialects.openai_responses.parse import continues_server_state
from lamina.dialects.openai_responses.readings import Breaches, ResponsesReading, read_tools

_REQUIRED_FIELDS = {"function_call": ("name", "arguments"), "custom_tool_call": ("name", "input")}
"""Fields of a call that must be text."""


def outputs_have_calls(reading: ResponsesReading) -> Breaches:
    """R1: an output answers one call before it, or one that only the server has, and only once.

    The server has calls of its own if the request continues a response, or refers to an item by its id.
    """
    waiting_ids: set[str] = set()
    answered_ids: set[str] = set()
    has_unseen_calls = reading.past.has_unseen_calls or continues_server_state(reading.request)
    for view in reading.items:
        call_id = view.call_id
        if may_refer_to_call(view.item):
            has_unseen_calls = True
        if view.is_call:
            waiting_ids.add(call_id)
            answered_ids.discard(call_id)
        elif view.is_output and call_id:
            is_waiting = call_id in waiting_ids
            answered_before = call_id in reading.past.answered_ids and not is_waiting
            has_no_call = not is_waiting and not has_unseen_calls
            if call_id in answered_ids or answered_before or has_no_call:
                yield view.place, f"answers no call that waits: {call_id!r}"
            waiting_ids.discard(call_id)
            answered_ids.add(call_id)


def calls_are_answered(reading: ResponsesReading) -> Breaches:
    """R2: each call has an output before the model speaks again, or the request ends.

    Calls in a row, without an output between them, were made in parallel: they wait together.
    """
    waiting_places: dict[str, str] = {}
    was_speaking = False
    for view in reading.items:
        is_speaking = view.role is Role.ASSISTANT
        if is_speaking and not was_speaking:
            yield from _report_unanswered(waiting_places)
            waiting_places = {}
        was_speaking = is_speaking
        if view.is_call and view.call_id:
            waiting_places[view.call_id] = view.place
        elif view.is_output:
            waiting_places.pop(view.call_id, None)
    yield from _report_unanswered(waiting_places)


def _report_unanswered(waiting_places: Mapping[str, str]) -> Breaches:
    for call_id, place in waiting_places.items():
        yield place, f"no output follows for {call_id!r}"


def call_ids_fit(reading: ResponsesReading) -> Breaches:
    """The id that pairs a call with its output is text of 1 to 64 characters."""
    for view in reading.items:
        if not view.is_call and not view.is_output:
            continue
        field = find_call_id_field(view.item)
        call_id = view.item.get(field)
        if not isinstance(call_id, str) or not is_valid_call_id(call_id):
            yield f"{view.place}.{field}", f"not text of 1 to {CALL_ID_LIMIT} characters"


def call_ids_are_unique(reading: ResponsesReading) -> Breaches:
    """No two calls share the id by which they are answered."""
    seen_ids: set[str] = set()
    for view in reading.items:
        if not view.is_call or not view.call_id:
            continue
        if view.call_id in seen_ids or view.call_id in reading.past.call_ids:
            yield view.place, f"a call before it has {view.call_id!r} too"
        seen_ids.add(view.call_id)


def calls_are_whole(reading: ResponsesReading) -> Breaches:
    """A call has a name and arguments, or an input, of text; an output has text or parts."""
    for view in reading.items:
        for field in _REQUIRED_FIELDS.get(view.item_type, ()):
            if not isinstance(view.item.get(field), str):
                yield f"{view.place}.{field}", "not text"
        if view.item_type in DEFINED_OUTPUT_TYPES:
            output = view.item.get("output")
            if not isinstance(output, str | list | tuple):
                yield f"{view.place}.output", "neither text nor parts"


def names_fit_the_pattern(reading: ResponsesReading) -> Breaches:
    """Names of functions match [a-zA-Z0-9_-]{1,64}."""
    for position, tool in enumerate(read_tools(reading.request)):
        if tool.get("type") in ("function", "custom") and _is_refused_name(tool.get("name")):
            yield f"tools[{position}].name", "does not match [a-zA-Z0-9_-]{1,64}"
    for view in reading.items:
        if view.item_type in DEFINED_CALL_TYPES and _is_refused_name(view.item.get("name")):
            yield f"{view.place}.name", "does not match [a-zA-Z0-9_-]{1,64}"


def _is_refused_name(name: Any) -> bool:
    return isinstance(name, str) and not is_safe_name(name)
