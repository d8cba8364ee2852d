"""Parses JSON strictly: refuses what is ambiguous, endless or not JSON. It knows nothing of requests."""

from __future__ import annotations

import json
import math
from typing import Any

from lamina.errors import BadInput

DEPTH = 200
"""Levels of objects and lists. Real requests have a dozen; schemas of tools a few more."""

DIGITS = 1_000
"""Of one number: more is an attack on whoever parses it next."""

_NUMBER_HINT = "give a finite number, or null"


def parse_strictly(text: str, *, name: str) -> Any:
    """The value that `text` is; `name` is where it came from, for the errors."""
    if not text.strip(" \t\r\n"):
        raise BadInput("it is empty", place=name, hint="give one JSON object")
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object_without_repeated_keys,
            parse_constant=_refuse_constant,
            parse_float=_parse_finite_float,
            parse_int=_parse_bounded_int,
        )
    except json.JSONDecodeError as error:
        raise _syntax_error(error, name) from None
    except _Refused as refused:
        raise BadInput(refused.problem, place=name, hint=refused.hint) from None
    except RecursionError:
        raise _too_deep(name) from None
    if _is_too_deep(value):
        raise _too_deep(name)
    return value


class _Refused(Exception):
    """The parser met something that is not allowed."""

    def __init__(self, problem: str, hint: str) -> None:
        self.problem = problem
        self.hint = hint


def _object_without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, as the parser makes it. Parsers differ in which of two equal keys they keep."""
    value: dict[str, Any] = {}
    for key, item in pairs:
        if key in value:
            raise _Refused(f"the key {key[:40]!r} comes twice in one object", "keep one of them")
        value[key] = item
    return value


def _refuse_constant(word: str) -> Any:
    raise _Refused(f"{word} is not JSON", _NUMBER_HINT)


def _parse_finite_float(text: str) -> float:
    """A number with a point or an exponent. `1e999` would become infinity, which is not JSON."""
    _check_digits(text)
    number = float(text)
    if math.isinf(number):
        raise _Refused(f"the number {text[:40]} is out of range", _NUMBER_HINT)
    return number


def _parse_bounded_int(text: str) -> int:
    """A whole number. Python takes quadratic time for a long one."""
    _check_digits(text)
    return int(text)


def _check_digits(text: str) -> None:
    if len(text) > DIGITS:
        raise _Refused(f"a number of {len(text):,} characters", _NUMBER_HINT)


def _too_deep(name: str) -> BadInput:
    return BadInput(f"more than {DEPTH} levels", place=name, hint="use less nesting")


def _is_too_deep(value: Any) -> bool:
    """Whether a value has more levels than allowed. It is read level by level, without recursion."""
    level = [value]
    for _ in range(DEPTH):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        level = [each for each in inner if isinstance(each, dict | list)]
        if not level:
            return False
    return True


def _syntax_error(error: json.JSONDecodeError, name: str) -> BadInput:
    """What the standard parser refused, in our words, with line and column."""
    problem = error.msg[:1].lower() + error.msg[1:]
    hint = "give JSON"
    if error.msg == "Extra data":
        problem = "something follows the JSON value"
        hint = "give one value, and nothing after it"
    elif error.msg.startswith("Unexpected UTF-8 BOM"):
        problem = "it begins with a byte order mark"
        hint = "save it as UTF-8 without one"
    return BadInput(problem, place=f"{name}:{error.lineno}:{error.colno}", hint=hint)
