"""No regular expression of the project takes quadratic time on a hostile text.

Every compiled pattern of every module is tried on texts that repeat its own signs and words, since these are
what makes a matcher go far and then fail. What counts is how the time grows with the text. No time as such is
judged, so a slow or busy machine changes nothing.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import permutations
from pathlib import Path
from time import thread_time
from typing import Any, NamedTuple

import pytest

import lamina

_PARSER: Any = importlib.import_module("re._parser")
"""Python's own parser of patterns. The texts are made from what it says."""

REPEATS = frozenset(("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"))

ROOT = Path(lamina.__file__).parent

ANCHORED = frozenset(("match", "fullmatch"))
"""Methods that try a pattern at one place only."""

METHODS = ANCHORED | {"search", "sub", "subn", "split", "findall", "finditer"}

SIGNS = 7
"""Different characters of a pattern that texts are made of, at most."""

FEW, MANY = 18, 600
"""How often a text repeats its unit. At the first number an exponential pattern shows, and does not hang."""

SUSPICIOUS = 0.0005
"""Seconds of CPU from which on the growth is measured. Below it a quadratic pattern cannot be."""


class ProjectPattern(NamedTuple):
    """A pattern with its place in the source. `anchored`: it is only ever tried at one place of a text."""

    place: str
    pattern: re.Pattern[Any]
    anchored: bool


def list_patterns() -> list[ProjectPattern]:
    """All patterns that modules of lamina hold, and those that are written where they are used."""
    patterns: list[ProjectPattern] = []
    for module in pkgutil.walk_packages([str(ROOT)], "lamina."):
        if module.name.endswith("__main__"):
            continue
        tree = ast.parse(_source_of(module.name))
        if not _imports_re(tree):
            continue  # most modules, and those that take long to import
        try:
            namespace = vars(importlib.import_module(module.name))
        except ImportError:  # an extra that is not installed
            continue
        patterns += _inline_patterns(module.name, tree)
        uses = _methods_by_name(tree)
        for name, value in namespace.items():
            for pattern in _patterns_in(value):
                methods = uses.get(name, {"search"})
                patterns.append(ProjectPattern(f"{module.name}.{name}", pattern, methods <= ANCHORED))
    return list(_without_repeats(patterns))


def _imports_re(tree: ast.Module) -> bool:
    for node in tree.body:
        match node:
            case ast.Import(names=[ast.alias(name="re")]):
                return True
    return False


def _source_of(module: str) -> str:
    path = ROOT.joinpath(*module.split(".")[1:])
    if path.is_dir():
        return (path / "__init__.py").read_text("utf-8")
    return path.with_suffix(".py").read_text("utf-8")


def _patterns_in(value: object) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        for inner in (*value, *value.values()):
            yield from _patterns_in(inner)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            yield from _patterns_in(inner)


def _methods_by_name(tree: ast.Module) -> dict[str, set[str]]:
    """The methods that a module calls on each of its names: `_KEY.match(text)`."""
    uses: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=method) if method in METHODS:
                uses.setdefault(name, set()).add(method)
    return uses


def _inline_patterns(module: str, tree: ast.Module) -> Iterator[ProjectPattern]:
    """Patterns of calls such as `re.sub(r"…", "", text)`."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="re"), attr=method),
                args=[ast.Constant(value=str() | bytes() as text), *_],
            ) if method in METHODS:
                anchored = method in ANCHORED
                yield ProjectPattern(f"{module}:{node.lineno}", re.compile(text), anchored)


def _without_repeats(patterns: Iterable[ProjectPattern]) -> Iterator[ProjectPattern]:
    """Each pattern once, as the more hostile of its uses."""
    seen: dict[tuple[Any, int], ProjectPattern] = {}
    for pattern in patterns:
        key = (pattern.pattern.pattern, pattern.pattern.flags)
        if key not in seen or not pattern.anchored:
            seen[key] = pattern
    yield from seen.values()


def write_hostile_texts(pattern: re.Pattern[Any]) -> Iterator[Callable[[int], str]]:
    """Functions that write a text of any length which a pattern may take long for."""
    beginnings = list(dict.fromkeys(("", *_beginnings(pattern))))
    for beginning, unit in _repeated_units(pattern):
        yield partial(_repeat, beginning, unit)
        yield partial(_repeat, "", beginning + unit)
    for unit in beginnings[1:]:
        yield partial(_repeat, "", unit)
    for unit in _units_of_signs(pattern):
        for beginning in beginnings[:2]:
            yield partial(_repeat, beginning, unit)


def _repeat(beginning: str, unit: str, count: int) -> str:
    return beginning + unit * count + "\x00"


def _units_of_signs(pattern: re.Pattern[Any]) -> list[str]:
    """The signs and words of a pattern, alone and in pairs, with what every text has."""
    source = pattern.pattern
    if isinstance(source, bytes):
        source = source.decode("latin-1")
    plain = re.sub(r"\(\?[a-zA-Z]+\)|\\[AbBdDsSwWZ]|[()?*+|^$]", " ", source)
    words = re.findall(r"[a-zA-Z]{2,12}", plain)
    signs = [sign for sign in dict.fromkeys(plain) if not sign.isalnum() and sign not in " \\"]
    alphabet = list(dict.fromkeys(["a", " ", "\n", *signs]))[:SIGNS]
    pairs = ["".join(pair) for pair in permutations(alphabet, 2)]
    return list(dict.fromkeys([*alphabet, "0", "\t", *pairs, *words[:4]]))


def _beginnings(pattern: re.Pattern[Any]) -> Iterator[str]:
    for beginning, _ in _repeated_units(pattern):
        yield beginning


def _repeated_units(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str]]:
    """Each thing that a pattern repeats, with a text that matches what comes before it."""
    yield from _walk(_PARSER.parse(pattern.pattern, pattern.flags), "")


def _walk(nodes: Any, before: str) -> Iterator[tuple[str, str]]:
    for code, argument in nodes:
        inner = _inner_nodes(code, argument)
        if str(code) in REPEATS:
            least, most, body = argument
            if most - least > MANY or most > MANY:
                yield before, _sample(body) or "a"
        for branch in inner:
            yield from _walk(branch, before)
        before += _sample([(code, argument)])


def _inner_nodes(code: Any, argument: Any) -> list[Any]:
    match str(code):
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return [argument[2]]
        case "SUBPATTERN":
            return [argument[3]]
        case "BRANCH":
            return list(argument[1])
        case "ATOMIC_GROUP":
            return [argument]
    return []


def _sample(nodes: Any) -> str:
    """A short text that a part of a pattern matches."""
    text = ""
    for code, argument in nodes:
        match str(code):
            case "LITERAL":
                text += chr(argument)
            case "NOT_LITERAL" | "ANY":
                text += "a"
            case "IN":
                text += _sample_of_class(argument)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                text += _sample(argument[2]) * max(argument[0], 1)
            case "BRANCH":
                text += _sample(argument[1][0])
            case _:
                text += "".join(map(_sample, _inner_nodes(code, argument)))
    return text


def _sample_of_class(items: Any) -> str:
    """A character of a class such as `[a-z_]` or `[^<>]`."""
    if str(items[0][0]) == "NEGATE":
        excluded = {chr(argument) for code, argument in items[1:] if str(code) == "LITERAL"}
        return next(character for character in "a .#" if character not in excluded)
    code, argument = items[0]
    match str(code):
        case "LITERAL":
            return chr(argument)
        case "RANGE":
            return chr(argument[0])
    return {"CATEGORY_SPACE": " ", "CATEGORY_DIGIT": "0"}.get(str(argument), "a")


def time_search(pattern: ProjectPattern, text: str) -> float:
    """The CPU seconds of looking for everything in a text."""
    content: Any = text
    if isinstance(pattern.pattern.pattern, bytes):
        content = text.encode("latin-1", "replace")
    began = thread_time()
    if pattern.anchored:
        pattern.pattern.match(content)
        pattern.pattern.fullmatch(content)
    else:
        for _ in pattern.pattern.finditer(content):
            pass
    return thread_time() - began


def grows_too_fast(pattern: ProjectPattern, write: Callable[[int], str]) -> bool:
    """Whether four times the text takes more than eight times as long."""
    if time_search(pattern, write(FEW)) > SUSPICIOUS:
        return time_search(pattern, write(FEW)) > SUSPICIOUS  # so short a text, and so long
    if time_search(pattern, write(MANY)) < SUSPICIOUS:
        return False
    short = min(time_search(pattern, write(MANY)) for _ in range(5))
    long = min(time_search(pattern, write(4 * MANY)) for _ in range(3))
    return long > 8 * short and long > SUSPICIOUS


def find_hostile(pattern: ProjectPattern) -> str:
    """A text whose time grows faster than its length; "" if there is none."""
    for write in write_hostile_texts(pattern.pattern):
        if grows_too_fast(pattern, write):
            return f"{pattern.place} {pattern.pattern.pattern!r} on {write(3)!r}"
    return ""


@pytest.mark.parametrize(
    "bad",
    [
        r" {0,3}(#{1,6})[ \t]+(.*?)[ \t#]*$",  # the end of a heading: `# # # #`
        r"\[\[([^\]]+)\]\]",  # a link: `[[[[[[`
        r"\s+$",
        r"<!--.*?-->",
        r"(?:a|aa)+$",
        r"key=(\w+\s?)*;",
    ],
)
def test_a_pattern_of_quadratic_or_exponential_time_is_found(bad: str) -> None:
    assert find_hostile(ProjectPattern("planted", re.compile(bad), anchored=False))


def test_a_linear_pattern_is_not_blamed() -> None:
    for good in (r"[a-z]+", r"<[^<>]*>", r"\d{1,30}\.\d{1,30}", r"^ {0,3}#"):
        assert not find_hostile(ProjectPattern("planted", re.compile(good), anchored=False))


def test_no_pattern_of_the_project_takes_quadratic_time() -> None:
    patterns = list_patterns()
    assert len(patterns) > 150, "the patterns of the project were not found"
    assert list(filter(None, map(find_hostile, patterns))) == []
