"""How deep JSON text is nested, measured before it is decoded.

Where a decoder gives up depends on the interpreter and on how deep its caller already stands. What shapes
bytes must not depend on either, so it asks here first.
"""

from __future__ import annotations

import re

_NO_BRACKETS = re.compile(r'"[^"]*"?|[^"\[\]{}]+')


def is_deeper(text: str, limit: int) -> bool:
    """Whether arrays and objects stand inside each other more than `limit` times. Linear in the text."""
    if text.count("[") + text.count("{") <= limit:
        return False
    unescaped = text.replace("\\\\", "").replace('\\"', "")  # so every quote left opens or closes a string
    depth = 0
    for bracket in _NO_BRACKETS.sub("", unescaped):
        depth += 1 if bracket in "[{" else -1
        if depth > limit:
            return True
    return False
