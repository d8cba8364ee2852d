"""What is sent or kept does not depend on the interpreter: neither on its Unicode tables nor on its bugs.

Every module is read as a syntax tree, and every pattern in it as its own tree. Modules that shape no byte of
a request or of a kept text are listed with the reason, and so are single places.
"""

from __future__ import annotations

import ast
import importlib
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as patterns  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any, NamedTuple

import pytest

SRC = Path(__file__).resolve().parent.parent / "src"

SHAPE_NOTHING = {
    "lamina.cli": "prints to a person, and reads what one types",
    "lamina.clients": "passes requests on as they are",
    "lamina.costs": "reads recorded sessions and says what they cost",
    "lamina.inspector": "shows requests that were sent before",
    "lamina.diagnose": "says where two requests part, and sends neither",
    "lamina.core.explanation": "prints to a person",
    "lamina.settings": "names environment variables",
    "lamina.testing": "makes cases for tests",
    "lamina.stores.sealed.keys": "judges passphrases, which are never sent or kept",
}
"""Modules and packages whose text is neither sent nor kept."""

ALLOWED = {
    ("lamina.relay.stream", "lower"): "the name of a header, in bytes: ASCII in every interpreter",
    ("lamina.relay.upstreams", "lower"): "as in lamina.relay.stream",
    ("lamina.gateway.client_connection", "lower"): "as in lamina.relay.stream",
    ("lamina.gateway.upstream_connection", "lower"): "as in lamina.relay.stream",
    ("lamina.telemetry.otel", "lower"): "as in lamina.relay.stream",
    ("lamina.wrapped.transport", "lower"): "as in lamina.relay.stream",
    ("lamina.models.counters", "split"): "a table of names in the file itself",
    ("lamina.models.framing", "split"): "a table of names in the file itself",
    ("lamina.models.names", "split"): "a table of names in the file itself",
    (
        "lamina.workspace.paths",
        "unicodedata",
    ): "decides which files may be opened: newer is safer",
    ("lamina.workspace.paths", "casefold"): "as unicodedata",
    ("lamina.dialects.cache_blocks", "split"): "a table of names in the file itself",
    ("lamina.dialects.extra_fields", "split"): "a table of names in the file itself",
    ("lamina.stores.postgres.connections", "split"): "the words of an error",
    ("lamina.core.text.characters", "isdigit"): "asked of ASCII only",
    ("lamina.core.text.characters", "lower"): "asked of ASCII only",
    ("lamina.core.text.characters", "isspace"): "white space, which test_characters compares on each Python",
    ("lamina.core.text.characters", "split"): "as isspace",
    ("lamina.core.text.characters", "upper"): "asked of ASCII only",
}
"""Places that may do what others may not: (module, construct) and the reason."""

ASK_TABLES = frozenset(
    "capitalize casefold isalnum isalpha isdecimal isdigit isidentifier islower isnumeric isprintable "
    "isspace istitle isupper lower splitlines swapcase title upper".split()
)
"""Methods of text that ask the interpreter's Unicode tables."""

ASK_TABLES_WHEN_BARE = frozenset("lstrip rsplit rstrip split strip".split())
"""The same, unless they are told what to look for."""

DIFFER = {
    "unicodedata": "grows with every release; `ucd_3_2_0` never does",
    "textwrap": "splits lines and strips by the interpreter's tables",
    "normpath": "ends a path at a NUL on Python 3.11.0 to 3.11.3",
}
"""Names of the standard library whose results differ between interpreters."""

CLASSES = re.compile(r"(?<!\\)(?:\\\\)*\\[wWdDsSbB]")
NEVER_GO_BACK = re.compile(r"(?<!\\)(?:\\\\)*(?:[*+?]|\})\+|\(\?>")
MAKES_PATTERNS = re.compile(r"^\s*(?:import|from) re\b", re.MULTILINE)
NOT_PATTERNS = {"/?:@!$&'()*+,;=%~[]": "the signs of an address, in lamina.workspace.fetch"}


class Pattern(NamedTuple):
    text: str
    flags: int

    @property
    def ascii_only(self) -> bool:
        return bool(self.flags & re.ASCII)


def modules() -> dict[str, Path]:
    paths = sorted((SRC / "lamina").rglob("*.py"))
    names = (".".join(path.relative_to(SRC).with_suffix("").parts) for path in paths)
    return {name.removesuffix(".__init__"): path for name, path in zip(names, paths, strict=True)}


MODULES = modules()


def is_listed(name: str) -> bool:
    return any(name == listed or name.startswith(f"{listed}.") for listed in SHAPE_NOTHING)


SHAPING = [name for name in MODULES if not is_listed(name)]


# what a syntax tree says


class ReadModule(NamedTuple):
    """What matters of a module: constructs and texts with their lines, and its calls of `re`."""

    constructs: list[tuple[str, int]]
    texts: list[tuple[str, int]]
    calls_of_re: list[ast.Call]


def read_source(source: str) -> ReadModule:
    nodes = list(ast.walk(ast.parse(source)))
    return ReadModule(list(constructs(nodes)), list(texts(nodes)), list(calls_of_re(nodes)))


@cache
def read_module(name: str) -> ReadModule:
    """A module, of which every node is looked at once for all tests."""
    return read_source(MODULES[name].read_text("utf-8"))


def constructs(nodes: list[ast.AST]) -> Iterator[tuple[str, int]]:
    """Whatever asks the interpreter's tables, and the line on which it does."""
    for node in nodes:
        if not isinstance(node, ast.Call | ast.Attribute | ast.Name | ast.ImportFrom):
            continue  # a pattern of `match` takes several times as long
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if not isinstance(value, ast.Constant):
                if name in ASK_TABLES or (name in ASK_TABLES_WHEN_BARE and is_bare(node)):
                    yield name, node.lineno
            case ast.Attribute(value=ast.Name(id="str"), attr=name) if name in ASK_TABLES:
                yield name, node.lineno
            case ast.Attribute(attr=name) | ast.Name(id=name) if name in DIFFER:
                yield name, node.lineno
            case ast.ImportFrom(module=name, names=names) if name in DIFFER:
                if [alias.name for alias in names] != ["ucd_3_2_0"]:
                    yield name, node.lineno
            case _:
                pass


def is_bare(call: ast.Call) -> bool:
    """Whether `split` or `strip` is not told what to look for."""
    given = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg in {"sep", "chars"})]
    return not given or (isinstance(given[0], ast.Constant) and given[0].value is None)


def texts(nodes: list[ast.AST]) -> Iterator[tuple[str, int]]:
    """Every piece of text in a file but its documentation."""
    said = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.value, node.lineno


# what patterns say


def calls_of_re(nodes: list[ast.AST]) -> Iterator[ast.Call]:
    for node in nodes:
        if not isinstance(node, ast.Call):
            continue
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=name)) if name != "escape":
                yield node
            case _:
                pass


def written_out(calls: list[ast.Call], module: ModuleType) -> Iterator[Pattern]:
    """The patterns of calls whose arguments can be read off the file and its constants."""
    for call in calls:
        try:
            text = value_of(call.args[0], module)
            flags = sum(value_of(flag, module) for flag in flags_of(call))
        except (NameError, IndexError):
            continue
        if isinstance(text, str):
            yield Pattern(text, flags)


def flags_of(call: ast.Call) -> list[ast.expr]:
    places = {"compile": 1, "search": 2, "match": 2, "fullmatch": 2, "findall": 2, "finditer": 2}
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    place = places.get(name, len(call.args))
    return [*call.args[place : place + 1], *(word.value for word in call.keywords if word.arg == "flags")]


def value_of(node: ast.expr, module: ModuleType) -> Any:
    return eval(compile(ast.Expression(node), "pattern", "eval"), vars(module))  # noqa: S307 - our own source


def compiled(module: ModuleType) -> Iterator[Pattern]:
    """The patterns that a module holds, in tables too."""
    yield from (found for value in vars(module).values() for found in held(value))


def held(value: object) -> Iterator[Pattern]:
    if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
        yield Pattern(value.pattern, value.flags)
    elif isinstance(value, tuple | list | set | frozenset):
        yield from (found for item in value for found in held(item))
    elif isinstance(value, dict):
        yield from (found for item in value.values() for found in held(item))


@cache
def patterns_of(name: str) -> list[Pattern]:
    """The patterns of a module. An adapter whose framework is not installed here has none."""
    if not MAKES_PATTERNS.search(MODULES[name].read_text("utf-8")):
        return []  # what it holds was made elsewhere, and some modules take long to import
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError:
        if not name.startswith("lamina.adapters."):
            raise
        return []
    return list(dict.fromkeys((*compiled(module), *written_out(read_module(name).calls_of_re, module))))


def operations(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every operation of a parsed pattern, inner ones too."""
    for operation in tree:
        if isinstance(operation, patterns.SubPattern):
            yield from operations(operation)
        elif isinstance(operation, tuple | list) and operation:
            if type(operation[0]) is type(codes.LITERAL):
                yield operation[0], operation[-1]
            yield from operations(operation)


@cache
def asks_tables(pattern: Pattern) -> bool:
    """Whether what a pattern finds depends on Unicode tables."""
    if pattern.ascii_only:
        return False
    if pattern.flags & re.IGNORECASE:
        return True
    boundaries = {codes.AT_BOUNDARY, codes.AT_NON_BOUNDARY}
    for operation, argument in operations(patterns.parse(pattern.text, pattern.flags)):
        if operation is codes.CATEGORY or (operation is codes.AT and argument in boundaries):
            return True
    return False


def never_goes_back(pattern: Pattern) -> bool:
    """Whether a pattern has possessive quantifiers or atomic groups."""
    forbidden = {codes.POSSESSIVE_REPEAT, codes.ATOMIC_GROUP}
    found = operations(patterns.parse(pattern.text, pattern.flags))
    return any(operation in forbidden for operation, _ in found)


@cache
def complaints(name: str) -> list[str]:
    """What a module does that only some interpreters do alike."""
    found = [
        f"line {line}: {what}" for what, line in read_module(name).constructs if (name, what) not in ALLOWED
    ]
    known = patterns_of(name)
    found += [
        f"a pattern asks Unicode tables: {pattern.text[:80]!r}" for pattern in known if asks_tables(pattern)
    ]
    if (name, "classes") not in ALLOWED:
        plain = [pattern.text for pattern in known if pattern.ascii_only]
        for text, line in read_module(name).texts:
            if CLASSES.search(text) and not any(text in pattern for pattern in plain):
                found.append(f"line {line}: \\w, \\d, \\s or \\b without re.ASCII in {text[:80]!r}")
    return found


def test_what_shapes_bytes_asks_no_table_of_the_interpreter() -> None:
    assert {name: complaints(name) for name in SHAPING if complaints(name)} == {}


def test_no_pattern_has_possessive_quantifiers_or_atomic_groups() -> None:
    """Python 3.11.0 to 3.11.3 match them wrongly."""
    for name in MODULES:
        assert [pattern for pattern in patterns_of(name) if never_goes_back(pattern)] == [], name
        found = [text for text, _ in read_module(name).texts if NEVER_GO_BACK.search(text)]
        assert [text for text in found if text not in NOT_PATTERNS] == [], name


def test_every_exception_is_needed() -> None:
    """A place that was mended leaves the list."""
    needed = {(name, what) for name in SHAPING for what, _ in read_module(name).constructs}
    needed |= {
        (name, "classes") for name in SHAPING for text, _ in read_module(name).texts if CLASSES.search(text)
    }
    assert set(ALLOWED) <= needed
    assert [listed for listed in SHAPE_NOTHING if listed not in MODULES] == []


def test_the_modules_that_shape_bytes_are_among_them() -> None:
    packages = {name.split(".")[1] for name in SHAPING if "." in name}
    assert packages >= {
        "core",
        "context",
        "dialects",
        "fitting",
        "formats",
        "sessions",
        "stores",
        "summaries",
    }


PLANTED = {
    "text.lower()": "lower",
    "text.strip()": "strip",
    "text.split(None, 3)": "split",
    "text.split(maxsplit=1)": "split",
    "map(str.isalpha, text)": "isalpha",
    "text.splitlines()": "splitlines",
    "unicodedata.category(text)": "unicodedata",
    "from unicodedata import normalize": "unicodedata",
    "posixpath.normpath(text)": "normpath",
    "textwrap.indent(text, ' ')": "textwrap",
}


@pytest.mark.parametrize("source", PLANTED)
def test_the_gate_sees_a_planted_construct(source: str) -> None:
    assert [what for what, _ in read_source(source).constructs] == [PLANTED[source]]


@pytest.mark.parametrize("source", ["'a b'.split()", "text.strip(' ')", "text.split(',')", "text.isascii()"])
def test_the_gate_lets_pass_what_is_the_same_everywhere(source: str) -> None:
    assert read_source(source).constructs == []


@pytest.mark.parametrize("pattern", [r"\w+", r"[^\s]", r"(a|\d)", r"a\b", "(?:[a-z]|(?=\\s))*"])
def test_the_gate_sees_a_planted_pattern(pattern: str) -> None:
    assert asks_tables(Pattern(pattern, 0))
    assert not asks_tables(Pattern(pattern, re.ASCII))
    assert asks_tables(Pattern("a", re.IGNORECASE))
    assert not asks_tables(Pattern("[^a-z ]+(?=x)", 0))


@pytest.mark.parametrize("pattern", ["a*+", "a++b", "(?:ab)?+", "a{1,3}+", "(?>a)b", "((?:a|b*+)c)"])
def test_the_gate_sees_what_never_goes_back(pattern: str) -> None:
    assert never_goes_back(Pattern(pattern, 0))
    assert NEVER_GO_BACK.search(pattern)


def test_patterns_are_found_wherever_they_are_made() -> None:
    source = textwrap.dedent(
        r"""
        import re
        NAME = r"\w"
        ONE = re.compile(rf"a{NAME}")
        TABLE = {"x": (re.compile(r"b"),)}
        def find(text):
            return re.search("c", text, re.ASCII), re.findall(r"d", text, flags=re.I)
        """
    )
    module = ModuleType("planted")
    exec(source, vars(module))  # noqa: S102 - the text above
    found = {*compiled(module), *written_out(read_source(source).calls_of_re, module)}
    assert {pattern.text for pattern in found} == {r"a\w", "b", "c", "d"}
    assert Pattern("c", re.ASCII) in found
    assert Pattern("d", re.IGNORECASE) in found
