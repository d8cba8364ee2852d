"""A call's arguments: the most telling one, and all of them with a mark in place of each large value."""

from __future__ import annotations

import json
from collections.abc import Mapping

from lamina.core.text.json_text import DEEPEST_ARGUMENTS, decode_json, is_deeper

PATH_ARGUMENTS = ("path", "file_path", "filepath", "filename", "file", "notebook_path")
"""Arguments that hold the path of a file, the most usual first."""

TELLING = (*PATH_ARGUMENTS, "url", "uri", "command", "cmd", "query")
"""Arguments that say what a call was about, the best first."""

_LONGEST_PARSED = 100_000  # characters of arguments that are worth parsing for a name


def pick_telling_argument(arguments: str) -> str:
    """The argument by which a reader would know the call; "" if there is none.

    `{"limit": 10, "path": "a.py"}` gives `a.py`. An argument that is not a text tells nothing.
    """
    if len(arguments) > _LONGEST_PARSED:
        return ""
    values = decode_json(arguments, deepest=DEEPEST_ARGUMENTS)
    if not isinstance(values, dict):
        return ""
    for name in TELLING:
        value = values.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


def shorten_arguments(arguments: str, *, limit: int, mark: str) -> str:
    """JSON text of the object `arguments` in which values over `limit` characters are `mark`.

    `{size}` in the mark is the value's size in bytes. What is not a JSON object, or is nested too deeply,
    becomes an empty one. If no value is that long, the text is returned unchanged.
    """
    if is_deeper(arguments, DEEPEST_ARGUMENTS):
        return "{}"
    try:
        values = json.loads(arguments)
        shortened = {name: _shorten_value(value, limit, mark) for name, value in values.items()}
        shortened_text = _encode_object(shortened)
    except (ValueError, AttributeError, RecursionError):  # not JSON, or not an object
        return "{}"
    if all(shortened[name] is value for name, value in values.items()):
        return arguments
    return shortened_text


def _shorten_value(value: object, limit: int, mark: str) -> object:
    """The mark for a value that is long, else the value itself."""
    text = value
    if not isinstance(text, str):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    value_mark = mark.format(size=len(text.encode("utf-8", "surrogatepass")))
    if len(text) > max(limit, len(value_mark)):
        return value_mark
    return value


def _encode_object(value: Mapping[str, object]) -> str:
    """Compact JSON; a lone surrogate, which JSON can name and UTF-8 cannot carry, stays escaped.

    Only then is everything beyond ASCII escaped: letters of other scripts would take six characters each.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if text.isascii() or text.encode("utf-8", "replace").decode() == text:
        return text
    return json.dumps(value, allow_nan=False, separators=(",", ":"))
