"""JSON, decoded only if it is not nested too deeply, and written with what is long in it shortened.

At which depth a decoder gives up depends on the interpreter and on the stack of its caller, and bytes that
are sent or kept must not depend on either. So whatever decodes JSON for them asks `decode_json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sized
from itertools import islice
from typing import Any

_DEEPEST = 64  # deeper JSON is not parsed: where the interpreter gives up depends on its stack
_MOST_ITEMS = 12  # items of a value that are shown
_MOST_CHARACTERS = 100  # characters of a string or number that are shown
_SURROGATES = re.compile("[\ud800-\udfff]")

DEEPEST_ARGUMENTS = 200
"""Levels of a call's arguments that are read. No tool nests its arguments that deeply."""

# Strings, and everything else that is not a bracket or brace.
_NO_BRACKETS = re.compile(r'"[^"]*"?|[^"\[\]{}]+')


class JsonNumber(str):
    """A number as it was written, which is neither rounded nor limited in its digits."""

    __slots__ = ()


def parse_json(text: str) -> Any:
    """A JSON value with its numbers as written, or None if the text is not JSON or nested too deeply."""
    return decode_json(
        text, deepest=_DEEPEST, parse_int=JsonNumber, parse_float=JsonNumber, parse_constant=JsonNumber
    )


def abbreviate_value(value: Any, depth: int = 4) -> str:
    """Compact JSON; what is long or deep in it is counted instead.

    In `{"a":{"b":{"c":{"d":object of 2}}}}` the innermost object is only counted, and the last item of a long
    list may be `... 30 more`.
    """
    match value:
        case JsonNumber():
            return value[:_MOST_CHARACTERS]
        case str():
            return quote_json(value)
        case dict() if depth:
            first_items = islice(value.items(), _MOST_ITEMS)
            fields = [f"{quote_json(key)}:{abbreviate_value(item, depth - 1)}" for key, item in first_items]
            return f"{{{','.join([*fields, *_count_more(value)])}}}"
        case list() if depth:
            items = [abbreviate_value(item, depth - 1) for item in value[:_MOST_ITEMS]]
            return f"[{','.join([*items, *_count_more(value)])}]"
        case dict() | list():
            return f"{_type_name(value)} of {len(value):,}"
        case _:
            return json.dumps(value)


def quote_json(text: str) -> str:
    """The start of a text as a JSON string. Lone surrogates stay escaped, since UTF-8 cannot carry them."""
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[:_MOST_CHARACTERS]}..."
    has_surrogates = _SURROGATES.search(text) is not None
    return json.dumps(text, ensure_ascii=has_surrogates)


def _count_more(value: Sized) -> list[str]:
    """How many items are not shown, as a last item; nothing if all are."""
    if len(value) <= _MOST_ITEMS:
        return []
    return [f"... {len(value) - _MOST_ITEMS:,} more"]


def _type_name(value: Any) -> str:
    """The type of a value, as JSON calls it."""
    match value:
        case JsonNumber():
            return "number"
        case str():
            return "string"
        case bool():
            return "boolean"
        case dict():
            return "object"
        case list():
            return "array"
        case _:
            return "null"


def decode_json(text: str, *, deepest: int, **readers: Any) -> Any:
    """The value of a JSON text; None if it is not JSON, or nested in more than `deepest` levels.

    `readers` are arguments of `json.loads`, such as `parse_float`.
    """
    if is_deeper(text, deepest):
        return None
    try:
        return json.loads(text, **readers)
    except (ValueError, RecursionError):
        return None


def is_deeper(text: str, limit: int) -> bool:
    """Whether arrays and objects are inside each other more than `limit` times. Linear in the text."""
    if text.count("[") + text.count("{") <= limit:
        return False
    unescaped = text.replace("\\\\", "").replace('\\"', "")  # so every quote left opens or closes a string
    depth = 0
    for bracket in _NO_BRACKETS.sub("", unescaped):
        if bracket not in "[{":
            depth -= 1
            continue
        depth += 1
        if depth > limit:
            return True
    return False
