"""Parses JSON strictly: refuses what is ambiguous, endless or not JSON, and says where it is.

The standard parser reads the text. Only when it refuses something that it cannot place (a key that comes
twice, NaN, a number out of range, too many levels) the text is read a second time, token by token, to find
the line, the column and the path. Nothing here knows what a request is.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NamedTuple

from lamina.errors import BadInput

DEPTH = 200
"""Levels of objects and lists. Real requests have a dozen; schemas of tools a few more."""

DIGITS = 1_000
"""Of one number: more is an attack on whoever parses it next."""


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
    except (_Refused, RecursionError):
        raise _locate_error(text, name) from None
    if _is_too_deep(value):
        raise _locate_error(text, name)
    return value


class _Refused(Exception):
    """The parser met something that is not allowed."""


def _object_without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, as the parser makes it. Parsers differ in which of two equal keys they keep."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _Refused
    return value


def _refuse_constant(_: str) -> Any:
    raise _Refused


def _parse_finite_float(text: str) -> float:
    """A number with a point or an exponent. `1e999` would become infinity, which is not JSON."""
    if len(text) > DIGITS:
        raise _Refused
    number = float(text)
    if math.isinf(number):
        raise _Refused
    return number


def _parse_bounded_int(text: str) -> int:
    """A whole number. Python takes quadratic time for a long one."""
    if len(text) > DIGITS:
        raise _Refused
    return int(text)


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


class _Problem(NamedTuple):
    """What is wrong with a token, and what to do."""

    text: str
    hint: str


class _Level:
    """An object or a list that is being read: the keys of an object so far, and the key or index it is at."""

    def __init__(self, *, is_object: bool) -> None:
        self.is_object = is_object
        self.keys: set[str] = set()
        self.at: str | int | None = None
        if not is_object:
            self.at = 0

    def go_on(self) -> None:
        """Go to the next item of a list. An object goes on when its next key is read."""
        if isinstance(self.at, int):
            self.at += 1

    def describe_step(self) -> str:
        """The step into this level, as a path has it: `.content` or `[3]`."""
        if self.at is None:
            return ""
        if self.is_object:
            return f".{self.at}"
        return f"[{self.at}]"


# One token with the space before it: `{`, `"a \" b"`, `-1.5e3`, `true`, `NaN`.
_TOKEN = re.compile(
    r'[ \t\n\r]*(?:(?P<mark>[{}\[\],:])|(?P<string>"[^"\\]*(?:\\.[^"\\]*)*")|(?P<word>[-+.A-Za-z0-9_]+))',
    re.DOTALL,
)


def _locate_error(text: str, name: str) -> BadInput:
    """The first thing that `parse_strictly` refuses, with its place."""
    levels: list[_Level] = []
    position = 0
    key_is_next = False
    while token := _TOKEN.match(text, position):
        position = token.end()
        kind = str(token.lastgroup)
        content = token[kind]
        problem = _check_token(kind, content, levels, is_key=key_is_next)
        if problem is not None:
            place = _describe_place(text, token.start(kind), name, levels)
            return BadInput(problem.text, place=place, hint=problem.hint)
        key_is_next = content in ("{", ",") and bool(levels) and levels[-1].is_object
    return BadInput("it cannot be read", place=name, hint="give JSON")


def _check_token(kind: str, content: str, levels: list[_Level], *, is_key: bool) -> _Problem | None:
    """What is wrong with a token, None if nothing is. Marks also change the levels."""
    if kind == "mark":
        return _follow_mark(levels, content)
    if kind == "word":
        return _check_word(content)
    if is_key:
        return _check_key(levels[-1], content)
    return None


def _follow_mark(levels: list[_Level], mark: str) -> _Problem | None:
    """Go into, along or out of a level; there can be too many of them."""
    if mark in "{[":
        levels.append(_Level(is_object=mark == "{"))
        if len(levels) > DEPTH:
            return _Problem(f"more than {DEPTH} levels", "use less nesting")
        return None
    if not levels:
        return None
    if mark in "}]":
        levels.pop()
    elif mark == ",":
        levels[-1].go_on()
    return None


def _check_key(level: _Level, string: str) -> _Problem | None:
    r"""What is wrong with a key: it comes twice. `"\u0061"` and `"a"` are the same key."""
    key = json.loads(string, strict=False)
    level.at = key
    if key in level.keys:
        return _Problem(f"the key {_shorten(key)} comes twice", "keep one of them")
    level.keys.add(key)
    return None


def _check_word(word: str) -> _Problem | None:
    """What is wrong with a word that is not in quotes. `true`, `null` and usual numbers are in order."""
    hint = "give a finite number, or null"
    if word in ("NaN", "Infinity", "-Infinity"):
        return _Problem(f"{word} is not JSON", hint)
    if len(word) > DIGITS:
        return _Problem(f"a number of {len(word):,} characters", hint)
    is_float = word[-1:].isdigit() and any(sign in word for sign in ".eE")
    if is_float and math.isinf(float(word)):
        return _Problem(f"the number {word[:40]} is out of range", hint)
    return None


def _describe_place(text: str, position: int, name: str, levels: list[_Level]) -> str:
    """Such as `request.json:3:14 (messages[0].content)`."""
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    return f"{name}:{line}:{column} ({_describe_path(levels)})"


def _describe_path(levels: list[_Level]) -> str:
    """Where in the value: `messages[3].content`, from its first steps where there are many."""
    path = "".join(level.describe_step() for level in levels[:8])
    path = path.lstrip(".") or "at the top"
    if len(levels) > 8 or len(path) > 120:
        return f"{path}…"
    return path


def _shorten(key: str) -> str:
    if len(key) <= 40:
        return repr(key)
    return repr(key[:40]) + "…"
