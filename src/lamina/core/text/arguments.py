"""A call's arguments: the one that tells most, and all of them shorter, a mark for each large value."""

from __future__ import annotations

import json
from collections.abc import Mapping

from lamina.core.text.nesting import is_deeper

TELLING = (
    "path",
    "file_path",
    "filepath",
    "filename",
    "file",
    "notebook_path",
    "url",
    "uri",
    "command",
    "cmd",
    "query",
)
"""Arguments that say what a call was about, the best first."""

_PARSED = 100_000  # characters of arguments that are worth parsing for a name
_DEEPEST = 200  # objects inside each other


def telling(arguments: str) -> str:
    """The argument by which a reader would know the call; nothing if there is none."""
    if len(arguments) > _PARSED or is_deeper(arguments, _DEEPEST):
        return ""
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return ""
    known = given if isinstance(given, dict) else {}
    return next((value for name in TELLING if isinstance(value := known.get(name), str) and value), "")


def shorter(arguments: str, *, limit: int, mark: str) -> str:
    """JSON text of the object `arguments` in which values over `limit` characters are `mark`.

    `{size}` in the mark is the value's size in bytes. What is not a JSON object, or is nested too deeply,
    becomes an empty one. Where no value is that long, the text is what it was.
    """
    if is_deeper(arguments, _DEEPEST):
        return "{}"
    try:
        given = json.loads(arguments)
        kept = {name: _value(value, limit, mark) for name, value in given.items()}
        made = _object(kept)
        return arguments if all(kept[name] is value for name, value in given.items()) else made
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
