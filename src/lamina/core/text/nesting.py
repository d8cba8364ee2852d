"""JSON text, decoded only if it is not nested too deeply.

At which depth a decoder gives up depends on the interpreter and on the stack of its caller. Bytes that are
sent or kept must not depend on either, so whatever decodes JSON for them asks here first.
"""

from __future__ import annotations

import json
import re
from typing import Any

DEEPEST_ARGUMENTS = 200
"""Levels of a call's arguments that are read. No tool nests its arguments that deeply."""

# Strings, and everything else that is not a bracket or brace.
_NO_BRACKETS = re.compile(r'"[^"]*"?|[^"\[\]{}]+')


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
