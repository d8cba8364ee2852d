"""Rules of the Responses API about the parts of messages and outputs, and the cache markers on them."""

from __future__ import annotations

from lamina.dialects.json_values import list_or_empty
from lamina.dialects.openai_responses.parts import (
    MARKABLE_TYPES,
    MARKER_FIELD,
    TEXT_FIELDS,
    may_be_sent_by,
)
from lamina.dialects.openai_responses.readings import Breaches, ResponsesReading, read_tools


def content_is_there(reading: ResponsesReading) -> Breaches:
    """The content of a message is text, or at least one part."""
    for view in reading.items_of_type("message"):
        content = view.item.get("content")
        if not isinstance(content, str) and not list_or_empty(content):
            yield f"{view.place}.content", "neither text nor parts"


def parts_say_what_they_are(reading: ResponsesReading) -> Breaches:
    """Each part is an object that says its type, and holds text if it says text."""
    for view, inner_place, part in reading.parts():
        part_type = part.get("type")
        if not isinstance(part_type, str):
            yield f"{view.place}.{inner_place}", "not an object with a type"
            continue
        field = TEXT_FIELDS.get(part_type)
        if field is not None and not isinstance(part.get(field), str):
            yield f"{view.place}.{inner_place}.{field}", "not text"


def parts_fit_their_role(reading: ResponsesReading) -> Breaches:
    """The assistant says output_text and refusal; everyone else input_text, input_image and input_file."""
    for view, inner_place, part in reading.parts():
        role = "user"
        if view.item_type == "message":
            role = str(view.item.get("role"))
        if isinstance(part.get("type"), str) and not may_be_sent_by(role, part):
            problem = f"a part of type {part['type']!r} cannot stand here"
            yield f"{view.place}.{inner_place}", problem


def markers_stand_on_parts(reading: ResponsesReading) -> Breaches:
    """A prompt_cache_breakpoint stands on a part that may have one, nowhere else."""
    for position, tool in enumerate(read_tools(reading.request)):
        if MARKER_FIELD in tool:
            yield f"tools[{position}]", f"has a {MARKER_FIELD}"
    for view in reading.items:
        if MARKER_FIELD in view.item:
            yield view.place, f"has a {MARKER_FIELD} that belongs on a part of its content"
        for inner_place, part in view.parts:
            has_marker = part.get(MARKER_FIELD) is not None
            if has_marker and str(part.get("type")) not in MARKABLE_TYPES:
                yield f"{view.place}.{inner_place}", f"a part of this type has no {MARKER_FIELD}"
