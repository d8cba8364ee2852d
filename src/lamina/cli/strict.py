"""JSON, read strictly: what is ambiguous, endless or not JSON is refused, and the error says where.

The standard parser does the work. Only when it refuses something that it cannot place (a key that comes
twice, NaN, a number out of range, too many levels) the text is read a second time, token by token, to find
the line, the column and the path. Knows nothing of requests.
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


def loads(text: str, *, name: str) -> Any:
    """The value that `text` is; `name` is where it came from, for the errors."""
    if not text.strip(" \t\r\n"):
        raise BadInput("it is empty", place=name, hint="give one JSON object")
    try:
        value = json.loads(
            text, object_pairs_hook=_once, parse_constant=_refused, parse_float=_finite, parse_int=_whole
        )
    except json.JSONDecodeError as error:
        raise _syntax(error, name) from None
    except (_Refused, RecursionError):
        raise _placed(text, name) from None
    if _too_deep(value):
        raise _placed(text, name)
    return value


class _Refused(Exception):
    """The parser met something that is not allowed."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Refused
    return found


def _refused(_: str) -> Any:
    raise _Refused


def _finite(text: str) -> float:
    if len(text) > DIGITS or math.isinf(value := float(text)):
        raise _Refused
    return value


def _whole(text: str) -> int:
    if len(text) > DIGITS:
        raise _Refused
    return int(text)


def _too_deep(value: Any) -> bool:
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


def _syntax(error: json.JSONDecodeError, name: str) -> BadInput:
    problem = error.msg[:1].lower() + error.msg[1:]
    hint = "give JSON"
    if error.msg == "Extra data":
        problem, hint = "something follows the JSON value", "give one value, and nothing after it"
    elif error.msg.startswith("Unexpected UTF-8 BOM"):
        problem, hint = "it begins with a byte order mark", "save it as UTF-8 without one"
    return BadInput(problem, place=f"{name}:{error.lineno}:{error.colno}", hint=hint)


class _Level(NamedTuple):
    """An object or list that is being read: its keys so far, and the key or index it is at."""

    keys: dict[str, None] | None
    at: list[Any]


_TOKEN = re.compile(
    r'[ \t\n\r]*(?:(?P<mark>[{}\[\],:])|(?P<string>"[^"\\]*(?:\\.[^"\\]*)*")|(?P<word>[-+.A-Za-z0-9_]+))',
    re.DOTALL,
)


def _placed(text: str, name: str) -> BadInput:
    """The first thing that `loads` refuses, found again with its place."""
    levels: list[_Level] = []
    at, due = 0, False
    while token := _TOKEN.match(text, at):
        at = token.end()
        sort, found = str(token.lastgroup), token[str(token.lastgroup)]
        problem = ""
        if sort == "string" and due:
            problem = _keyed(levels[-1], found)
        elif sort == "word":
            problem = _number(found)
        elif sort == "mark":
            problem = _moved(levels, found)
        due = found in ("{", ",") and bool(levels) and levels[-1].keys is not None
        if problem:
            return BadInput(problem, place=_place(text, token.start(sort), name, levels), hint=_hint(problem))
    return BadInput("it cannot be read", place=name, hint="give JSON")


def _moved(levels: list[_Level], mark: str) -> str:
    """Follows a mark into, along or out of a level; what is wrong with that, if anything."""
    if mark in "{[":
        levels.append(_Level({} if mark == "{" else None, [None if mark == "{" else 0]))
        return f"more than {DEPTH} levels" if len(levels) > DEPTH else ""
    if mark in "}]" and levels:
        levels.pop()
    elif mark == "," and levels and levels[-1].keys is None:
        levels[-1].at[0] += 1
    return ""


def _keyed(level: _Level, string: str) -> str:
    key = json.loads(string, strict=False)
    again = level.keys is not None and key in level.keys
    level.at[0] = key
    if level.keys is not None:
        level.keys[key] = None
    return f"the key {_short(key)} comes twice" if again else ""


def _number(word: str) -> str:
    if word in ("NaN", "Infinity", "-Infinity"):
        return f"{word} is not JSON"
    if len(word) > DIGITS:
        return f"a number of {len(word):,} characters"
    infinite = word[-1:].isdigit() and any(c in word for c in ".eE") and math.isinf(float(word))
    return f"the number {word[:40]} is out of range" if infinite else ""


def _hint(problem: str) -> str:
    if problem.endswith("comes twice"):
        return "keep one of them"
    return "use less nesting" if problem.endswith("levels") else "give a finite number, or null"


def _place(text: str, at: int, name: str, levels: list[_Level]) -> str:
    line = text.count("\n", 0, at) + 1
    column = at - text.rfind("\n", 0, at)
    return f"{name}:{line}:{column} ({_path(levels)})"


def _path(levels: list[_Level]) -> str:
    """Where in the value: `messages[3].content`, from its first steps where there are many."""
    steps = [
        f"[{level.at[0]}]" if level.keys is None else f".{level.at[0]}"
        for level in levels[:8]
        if level.at[0] is not None
    ]
    path = "".join(steps).lstrip(".") or "at the top"
    return f"{path}…" if len(levels) > 8 or len(path) > 120 else path


def _short(key: str) -> str:
    return repr(key) if len(key) <= 40 else repr(key[:40]) + "…"
