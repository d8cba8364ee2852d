"""The structure of texts that have a syntax: which lines of source code define something, what JSON holds.

Source code is read by rules over single lines, with no parser and no language known by name: a keyword
followed by a name, an arrow function bound to a name, or a line shaped like the head of a C-like function.
Each line is looked at once, and only its first characters, so a definition may be missed. JSON is parsed as
far as a fixed depth. How much of either is shown is not decided here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any, NamedTuple

from lamina.core.text.characters import WHITE_SPACE, is_letter, split_words
from lamina.core.text.nesting import is_deeper

_WIDTH = 200
_JOINED = 6  # lines that one signature may go on for
_DEPTH = 64  # deeper JSON is not parsed: where the interpreter gives up depends on its stack
_FEW, _TEXT = 12, 100  # items and characters of a JSON value that are shown
_ITEM = "(item)"

_MODIFIERS = frozenset(
    "abstract async const data declare default export extern final inline internal let open override partial "
    "private protected pub pub(crate) pub(super) public sealed static unsafe var virtual".split()
)
_KEYWORDS = frozenset(
    "class def enum extension fn fun func function impl interface macro_rules! mod module namespace object "
    "protocol record struct trait type union".split()
)
_BINDERS = frozenset(("const", "let", "var"))
_CONTROL = frozenset(
    "assert await case catch do elif else except finally for foreach if lock new raise return sizeof super "
    "switch throw try using when while with yield".split()
)
_KEYWORD = re.compile(r"([a-z_]+!?)(?:[<*].*)?", re.ASCII)
_ARROW = re.compile(r"(?:async\b ?)?(?:function\b|\(|[\w$]+ ?=>)", re.ASCII)
_TYPED = re.compile(r"[\w \t*&:<>,\[\]~.]+", re.ASCII)
_NAME = re.compile(r"[*&~]*[A-Za-z_$#][\w$:~]*", re.ASCII)
_NUMBERED = re.compile(r" {0,7}(\d{1,7})(?:\t|→|\| ?|: )", re.ASCII)
_SURROGATES = re.compile("[\ud800-\udfff]")
_DOCSTRING = re.compile(r"[rR]?(?:\"\"\"|''')")


class Signature(NamedTuple):
    """One line that defines something; `documents` if it is the first line of a docstring instead."""

    line: int
    indent: int
    text: str
    documents: bool = False


def signatures(text: str) -> list[Signature]:
    """Every definition of a source text, with its 1-based line number, in order."""
    return list(_found(list(numbered(text.split("\n")))))


def numbered(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Lines with their numbers: their own where a tool has printed them in front, else by position."""
    if not is_numbered(lines):
        yield from enumerate(lines, start=1)
        return
    last = 0
    for line in lines:
        match = _NUMBERED.match(line)
        last = int(match[1]) if match else last + 1
        yield last, line[match.end() :] if match else line


def is_numbered(lines: Iterable[str]) -> bool:
    """Whether the first lines carry consecutive numbers, as tools that read files print them."""
    matches = [_NUMBERED.match(line) for line in islice(lines, 3)]
    numbers = [int(match[1]) for match in matches if match]
    return len(numbers) == 3 and numbers == list(range(numbers[0], numbers[0] + 3))


def _found(lines: Sequence[tuple[int, str]]) -> Iterator[Signature]:
    documented = True  # a docstring may follow: the file begins, or a signature has just ended
    inside = 0  # lines that belong to the signature before them
    for index, (number, line) in enumerate(lines):
        start = line[:_WIDTH]
        bare = start.strip(WHITE_SPACE)
        if inside or not bare:
            inside = max(inside - 1, 0)
            continue
        depth = len(start) - len(start.lstrip(WHITE_SPACE))
        if documented and _DOCSTRING.match(bare):
            yield Signature(number, depth, bare, documents=True)
        documented = documented and bare.startswith("#")
        if defines(start, lines[index + 1][1][:_WIDTH] if index + 1 < len(lines) else ""):
            whole, inside = _whole(bare, lines, index)
            yield Signature(number, depth, whole)
            documented = whole.endswith(":")


def defines(line: str, following: str = "") -> bool:
    """Whether a line defines something. `following` is the line after it, which may hold the brace."""
    line = line[:_WIDTH].rstrip(WHITE_SPACE)
    bare = line.lstrip(WHITE_SPACE)
    words = split_words(bare)
    plain = 0
    while plain < len(words) and words[plain] in _MODIFIERS:
        plain += 1
    if plain == len(words):
        return False
    if _opens_definition(words[plain:], line):
        return True
    if _BINDERS.intersection(words[:plain]) and _binds_function(bare):
        return True
    return _calls_like(line, bare, modified=plain > 0, braced=following.lstrip(WHITE_SPACE).startswith("{"))


def _opens_definition(words: Sequence[str], line: str) -> bool:
    """A keyword and a name; a longer line needs punctuation too, or prose that begins "class of" would do."""
    match = _KEYWORD.fullmatch(words[0])
    if match is None or match[1] not in _KEYWORDS or len(words) == 1:
        return False
    named = is_letter(words[1][0]) or words[1][0] in "_$(<"
    return named and (len(words) == 2 or any(mark in line for mark in "({:=;<"))


def _binds_function(bare: str) -> bool:
    _, equals, value = bare.partition("=")
    value = value.lstrip(WHITE_SPACE)
    return bool(equals) and _ARROW.match(value) is not None and ("=>" in value or "function" in value)


def _calls_like(line: str, bare: str, *, modified: bool, braced: bool) -> bool:
    """The head of a C-like function: a type and a name before the bracket, a brace after it."""
    head, bracket, rest = bare.partition("(")
    words = split_words(head)
    if not bracket or not words or words[0] in _CONTROL or not _TYPED.fullmatch(head):
        return False
    opened = rest.endswith("{") or braced
    if not opened or rest.endswith(";") or _NAME.fullmatch(words[-1]) is None:
        return False
    closed = rest[:-1].rstrip(WHITE_SPACE).endswith(")")
    if len(words) == 1:
        return line != bare and closed  # a method without a type
    return modified or line == bare or closed


def _whole(bare: str, lines: Sequence[tuple[int, str]], index: int) -> tuple[str, int]:
    """A signature with the lines that its open brackets go on for, and how many these are if they close."""
    joined, unclosed, used = bare, _unclosed(bare), 0
    while unclosed > 0 and used < _JOINED and len(joined) < _WIDTH and index + used + 1 < len(lines):
        used += 1
        more = lines[index + used][1][:_WIDTH].strip(WHITE_SPACE)
        unclosed += _unclosed(more)
        joined += more if joined.endswith(("(", "[")) or more.startswith((")", "]")) else f" {more}"
    return joined[:_WIDTH], 0 if unclosed > 0 else used


def _unclosed(line: str) -> int:
    return line.count("(") + line.count("[") - line.count(")") - line.count("]")


class Literal(str):
    """A number as it was written, which is neither rounded nor limited in its digits."""

    __slots__ = ()


def parsed(text: str) -> Any:
    """A JSON value with its numbers as written, or None where it is not JSON or nested too deeply."""
    if is_deeper(text, _DEPTH):
        return None
    try:
        return json.loads(text, parse_int=Literal, parse_float=Literal, parse_constant=Literal)
    except (ValueError, RecursionError):
        return None


def shape(value: Any) -> str:
    """What a value is; short values as they are."""
    match value:
        case dict():
            return f"object of {len(value):,} {{{', '.join(map(quoted, islice(value, _FEW)))}}}"
        case [dict(), *_]:
            return f"array of {len(value):,} objects {{{keys_of(value)}}}"
        case list():
            return f"array of {len(value):,} {brief(value)}"
        case _:
            return brief(value)


def keys_of(values: Sequence[Any]) -> str:
    """The keys of all objects of an array, with the types of their values, in order of appearance."""
    types: dict[str, dict[str, None]] = {}
    for value in values:
        for key, item in value.items() if isinstance(value, dict) else ((_ITEM, value),):
            types.setdefault(key, {})[_type(item)] = None
    return "; ".join(
        f"{key if key == _ITEM else quoted(key)}: {' | '.join(words)}" for key, words in types.items()
    )


def first_table(value: Any, *, path: str = "", depth: int = 3) -> tuple[str, list[Any]]:
    """The first array of objects inside a value, with its path; an empty one where there is none."""
    if not isinstance(value, dict) or not depth:
        return path, value if isinstance(value, list) and value[:1] and isinstance(value[0], dict) else []
    found = (first_table(item, path=f"{path}.{key}"[:_WIDTH], depth=depth - 1) for key, item in value.items())
    return next((table for table in found if table[1]), (path, []))


def brief(value: Any, depth: int = 3) -> str:
    """Compact JSON; what is long or deep in it is counted instead."""
    match value:
        case Literal():
            return value[:_TEXT]
        case str():
            return quoted(value)
        case dict() if depth:
            items = [f"{quoted(key)}:{brief(item, depth - 1)}" for key, item in islice(value.items(), _FEW)]
            return f"{{{','.join([*items, *_more(value)])}}}"
        case list() if depth:
            return f"[{','.join([*(brief(item, depth - 1) for item in value[:_FEW]), *_more(value)])}]"
        case dict() | list():
            return f"{_type(value)} of {len(value):,}"
        case _:
            return json.dumps(value)


def quoted(text: str) -> str:
    """A JSON string that can be encoded, whatever was escaped in it."""
    short = text if len(text) <= _TEXT else f"{text[:_TEXT]}..."
    return json.dumps(short, ensure_ascii=_SURROGATES.search(short) is not None)


def _more(value: Sized) -> tuple[str, ...]:
    return (f"... {len(value) - _FEW:,} more",) if len(value) > _FEW else ()


def _type(value: Any) -> str:
    names = ((Literal, "number"), (str, "string"), (bool, "boolean"), (dict, "object"), (list, "array"))
    return next((name for sort, name in names if isinstance(value, sort)), "null")
