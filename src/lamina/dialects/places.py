"""Places in a request, as errors name them: `messages[3].content[0]`. Only for `sending`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from lamina.dialects.json_values import list_or_empty
from lamina.dialects.port import Request, Violation

_QUOTE_LENGTH = 40
"""Characters of a message that an error shows."""

_FIELD_AND_INDEX = re.compile(r"([a-zA-Z_]{1,40})(?:\[([0-9]{1,9})\])?")
"""The beginning of a place: ("messages", "3") in "messages[3].content[0]", ("system", None) in "system"."""

_TEXT_FIELDS = ("content", "parts", "text", "name", "output")
"""Fields of messages, parts and definitions that may hold text, or something that holds it."""


def find_caller_place(violation: Violation, request: Request, caller_request: Request) -> Violation:
    """A violation with its place in the request as the caller sent it, if the message was in that.

    Of several equal messages it is the one that has as many equal ones before it. Messages are compared as
    values: with a memo, the one that is sent may be an equal object of an earlier call.
    """
    match = _FIELD_AND_INDEX.match(violation.place)
    if match is None or match[2] is None:
        return violation
    field = match[1]
    index = int(match[2])
    items = _read_items(request, field)
    item = items[index] if index < len(items) else None
    equal_before = sum(other == item for other in items[:index])
    caller_items = _read_items(caller_request, field)
    equal_indexes = [position for position, other in enumerate(caller_items) if other == item]
    if equal_before >= len(equal_indexes):
        message = f"{violation.message} (in the request as mended)"
        return msgspec.structs.replace(violation, message=message)
    rest = violation.place[match.end() :]
    place = f"{field}[{equal_indexes[equal_before]}]{rest}"
    return msgspec.structs.replace(violation, place=place)


def quote_beginning(request: Request, place: str) -> str:
    """How the message begins in which a place lies: `messages[3].content[0]` is in the fourth message."""
    match = _FIELD_AND_INDEX.match(place)
    if match is None:
        return ""
    value = request.get(match[1])
    if match[2] is not None:
        items = _read_items(request, match[1])
        index = int(match[2])
        value = items[index] if index < len(items) else None
    text = _find_text(value)
    if len(text) > _QUOTE_LENGTH:
        return f"{text[:_QUOTE_LENGTH]}…"
    return text


def _read_items(request: Request, field: str) -> Sequence[Any]:
    return list_or_empty(request.get(field))


def _find_text(value: Any) -> str:
    """The first text in a message, a part or a definition, "" if there is none."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        value = dump()
    if isinstance(value, str):
        return value
    for inner in _inner_values(value):
        text = _find_text(inner)
        if text:
            return text
    return ""


def _inner_values(value: Any) -> Iterator[Any]:
    """What a list or an object holds that may be text."""
    if isinstance(value, list | tuple):
        yield from value
    elif isinstance(value, Mapping):
        for field in _TEXT_FIELDS:
            yield value.get(field)
