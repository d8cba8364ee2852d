"""A call's arguments, shorter: the same names, and each large value replaced by a mark."""

from __future__ import annotations

import json
from collections.abc import Mapping


def shorter(arguments: str, *, limit: int, mark: str) -> str:
    """JSON text of the object `arguments` in which values over `limit` characters are `mark`.

    `{size}` in the mark is the value's size in bytes. What is not a JSON object becomes an empty one.
    """
    try:
        kept = {name: _value(value, limit, mark) for name, value in json.loads(arguments).items()}
        return _object(kept)
    except (ValueError, AttributeError, RecursionError):  # not JSON, or not an object
        return "{}"


def _value(value: object, limit: int, mark: str) -> object:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    short = mark.format(size=len(text.encode("utf-8", "surrogatepass")))
    return short if len(text) > max(limit, len(short)) else value


def _object(value: Mapping[str, object]) -> str:
    """Compact JSON; a lone surrogate, which JSON can name and UTF-8 cannot carry, stays escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if text.isascii() or text.encode("utf-8", "replace").decode() == text:
        return text
    return json.dumps(value, allow_nan=False, separators=(",", ":"))
