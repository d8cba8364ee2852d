"""How deep JSON text is nested, measured before it is decoded.

At which depth a decoder gives up depends on the interpreter and on the stack of its caller. Bytes that are
sent or kept must not depend on either, so whatever decodes JSON for them asks here first.
"""

from __future__ import annotations

import re

# Strings, and everything else that is not a bracket or brace.
_NO_BRACKETS = re.compile(r'"[^"]*"?|[^"\[\]{}]+')


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
