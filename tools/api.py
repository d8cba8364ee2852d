"""The page of the public API: every name that a user may import, with one sentence about it.

    python -m tools.api            names what docs/api.md does not show as it is
    python -m tools.api --write    writes docs/api.md

A name is public if it stands in the `__all__` of a module of `GROUPS`. Names of stable modules are shown with
their signatures, so that a change to one is seen in review. Modules are read, not imported: the adapters are
on the page without their frameworks, and every release of Python writes the same page.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PAGE = ROOT / "docs" / "api.md"
WIDTH = 104
MOST_SPELLED_OUT = 4

STABLE, PROVISIONAL = "stable", "provisional"

_SENTENCE_END = re.compile(r"(?<=[.:])\s+(?=[A-Z`])")


class PublicModule(NamedTuple):
    """A module that users import from, and how long what it has will hold."""

    name: str
    stability: str


class Group(NamedTuple):
    """What a user wants to do, and the modules for it."""

    title: str
    modules: tuple[PublicModule, ...]


def _stable(*names: str) -> tuple[PublicModule, ...]:
    return tuple(PublicModule(name, STABLE) for name in names)


def _provisional(*names: str) -> tuple[PublicModule, ...]:
    return tuple(PublicModule(name, PROVISIONAL) for name in names)


def _all_below(package: str) -> tuple[str, ...]:
    """The modules and packages in a package whose modules users import by name. Private ones are left out."""
    folder = SOURCE.joinpath(*package.split("."))
    names = [path.stem for path in folder.glob("*.py")]
    names += [path.parent.name for path in folder.glob("*/__init__.py")]
    return tuple(f"{package}.{name}" for name in sorted(names) if not name.startswith("_"))


_FORMATS_OF_APIS = tuple(
    f"lamina.dialects.{path.parent.name}"
    for path in sorted((SOURCE / "lamina" / "dialects").glob("*/__init__.py"))
)

GROUPS = (
    Group("Make requests fit", (*_stable("lamina", "lamina.wrapped"), *_provisional("lamina.fitting"))),
    Group("Write a log", (*_stable("lamina.segments"), *_provisional("lamina.core"))),
    Group(
        "Keep a conversation",
        (
            *_stable("lamina.sessions", "lamina.blocking", "lamina.settings"),
            *_provisional("lamina.summaries", "lamina.conversations"),
        ),
    ),
    Group("Choose a store", _stable("lamina.stores", "lamina.stores.sealed")),
    Group("Run an agent", _stable("lamina.agent", "lamina.clients")),
    Group(
        "Add context",
        (
            *_stable(*_all_below("lamina.context")),
            *_provisional("lamina.workspace"),
        ),
    ),
    Group("Work inside a framework", _provisional(*_all_below("lamina.adapters"))),
    Group("Read and write files", _provisional(*_all_below("lamina.formats"))),
    Group(
        "Know models, wire formats and caches",
        _provisional(
            *("lamina.models", "lamina.models.counters"),
            *("lamina.dialects", *_FORMATS_OF_APIS),
            *("lamina.caches", "lamina.diagnose"),
        ),
    ),
    Group(
        "Measure and look",
        (
            *_stable("lamina.cli", "lamina.telemetry"),
            *_provisional("lamina.costs", "lamina.inspector", "lamina.gateway"),
        ),
    ),
    Group("Test your own parts", _provisional("lamina.testing", *_all_below("lamina.testing"))),
    Group("Catch errors", _stable("lamina.errors")),
)
"""Every public module, by what it is for."""

_OPENING = """\
# The public API

<!-- written by `python -m tools.api --write`; do not edit -->

Every name that a program may import. Import it from the module of its heading:
`from lamina.stores import open_store`. `help(name)` says in full what it does.

- **stable**: shown with its signature. A change that breaks a program is marked as breaking in the
  [changelog](../CHANGELOG.md), with what to write instead.
- **provisional**: it may change in any release, and the changelog says how.
- Names that are not on this page may change without notice.
"""


def main(arguments: list[str]) -> int:
    page = write_page()
    if "--write" in arguments:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") == page:
        return 0
    print(f"{PAGE.name} is not the public API as it is: run `python -m tools.api --write`", file=sys.stderr)
    return 1


def list_modules() -> tuple[PublicModule, ...]:
    return tuple(module for group in GROUPS for module in group.modules)


def write_page() -> str:
    lines = [_OPENING, "| to | import from |", "|---|---|"]
    for group in GROUPS:
        anchor = group.title.lower().replace(" ", "-").replace(",", "")
        lines.append(f"| [{group.title.lower()}](#{anchor}) | {_list_places(group.modules)} |")
    first_places: dict[tuple[str, str], str] = {}
    for group in GROUPS:
        lines += ["", f"## {group.title}"]
        for module in group.modules:
            lines += [
                "",
                f"### {module.name}",
                "",
                f"*{module.stability}.* {_summary_of_module(module.name)}",
            ]
            count = len(public_names(module.name))
            noun = "name" if count == 1 else "names"
            lines += ["", f"<details markdown><summary>{count} {noun}</summary>"]
            if module.stability == STABLE:
                lines += ["", "```text", *describe_module(module.name, first_places), "```"]
            else:
                lines += ["", *list_names(module.name, first_places)]
            lines += ["", "</details>"]
    return "\n".join([*lines, ""])


def _list_places(modules: tuple[PublicModule, ...]) -> str:
    """The modules in one cell of the table. Many modules of one package are named once, without it."""
    places: list[str] = []
    for package, names in groupby((module.name for module in modules), lambda name: name.rpartition(".")[0]):
        siblings = list(names)
        if package != "lamina" and len(siblings) > MOST_SPELLED_OUT:
            places.append(f"`{package}.` with {', '.join(name.rpartition('.')[2] for name in siblings)}")
        else:
            places += [f"`{name}`" for name in siblings]
    return ", ".join(places)


def _summary_of_module(module: str) -> str:
    docstring = ast.get_docstring(read_module(module)) or ""
    return docstring.partition("\n\n")[0].replace("\n", " ")


def describe_module(module: str, first_places: dict[tuple[str, str], str]) -> Iterator[str]:
    """Every name of a module. What stands on the page already is only named, with the place of the first."""
    for number, name in enumerate(public_names(module)):
        if number:
            yield ""
        definition = find_definition(module, name)
        identity = (definition.module, definition.name)
        if identity in first_places:
            yield f"{name}: see {first_places[identity]}"
            continue
        first_places[identity] = f"{module}.{name}"
        yield from _describe(name, definition)


def list_names(module: str, first_places: dict[tuple[str, str], str]) -> Iterator[str]:
    """Every name of a module as an item of a list, without signatures; last, the names shown above."""
    shown_above: list[str] = []
    for name in public_names(module):
        definition = find_definition(module, name)
        identity = (definition.module, definition.name)
        if identity in first_places:
            shown_above.append(f"`{name}`")
            continue
        first_places[identity] = f"{module}.{name}"
        yield f"- `{name}`: {_first_sentence(definition)}"
    if shown_above:
        yield f"- also here: {', '.join(shown_above)}"


def public_names(module: str) -> list[str]:
    """The `__all__` of a module, without the version."""
    for node in read_module(module).body:
        if isinstance(node, ast.Assign) and _target_name(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return [name for name in names if name != "__version__"]
    return []


class Definition(NamedTuple):
    """Where a name is defined: the module, the statement, and the string below it if it is a constant's."""

    module: str
    name: str
    node: ast.stmt
    constant_docstring: str = ""


def find_definition(module: str, name: str) -> Definition:
    """The definition behind a name, through all imports of it. Raises LookupError if there is none."""
    tree = read_module(module)
    for statement, following in _statements(tree.body):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if statement.name == name:
                return Definition(module, name, statement)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            if name in _assigned_names(statement):
                return Definition(module, name, statement, _string_of(following))
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                if name == (alias.asname or alias.name) and str(statement.module).startswith("lamina"):
                    return find_definition(str(statement.module), alias.name)
    raise LookupError(f"{module} has no {name}")


def _statements(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, ast.stmt | None]]:
    """Every statement of a module with the one after it, also those under `if TYPE_CHECKING` and `try`."""
    for statement, following in zip(body, [*body[1:], None], strict=True):
        yield statement, following
        if isinstance(statement, ast.If | ast.Try):
            yield from _statements(statement.body)


def _assigned_names(statement: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = [statement.target] if isinstance(statement, ast.AnnAssign) else statement.targets
    return [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]


def _target_name(target: ast.expr) -> str:
    return target.id if isinstance(target, ast.Name) else ""


def _string_of(statement: ast.stmt | None) -> str:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return str(statement.value.value)
    return ""


def summarize(definition: Definition) -> str:
    """The first paragraph of what is said about a name, in one line. Empty if nothing is said.

    What is said about a dialect is said about its package.
    """
    docstring = definition.constant_docstring
    if definition.name == "DIALECT":
        docstring = ast.get_docstring(read_module(definition.module)) or ""
    if isinstance(definition.node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        docstring = ast.get_docstring(definition.node) or ""
    paragraph = textwrap.dedent(docstring).strip().partition("\n\n")[0]
    return " ".join(paragraph.split())


def _first_sentence(definition: Definition) -> str:
    return _SENTENCE_END.split(summarize(definition), maxsplit=1)[0]


def _describe(name: str, definition: Definition) -> Iterator[str]:
    node = definition.node
    sentence = _first_sentence(definition)
    summary = textwrap.wrap(sentence, WIDTH, initial_indent="    ", subsequent_indent="    ")
    if isinstance(node, ast.ClassDef):
        yield from _wrap(_describe_class(name, definition.module, node))
        yield from summary
        for member in _list_members(definition.module, node):
            yield from _wrap(member, indent="      ")
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from _wrap(_describe_function(name, definition.module, node))
    else:
        yield _describe_constant(name, definition)
    yield from summary


def _describe_constant(name: str, definition: Definition) -> str:
    node = definition.node
    if isinstance(node, ast.AnnAssign):
        return f"{name}: {_source(definition.module, node.annotation)}"
    if not isinstance(node, ast.Assign) or isinstance(node.targets[0], ast.Tuple):
        return name
    value = _source(definition.module, node.value)
    if len(value) > WIDTH:
        return name
    return f"{name} = {value}"


def _describe_function(
    name: str, module: str, node: ast.FunctionDef | ast.AsyncFunctionDef, *, of_class: bool = False
) -> str:
    decorators = [_source(module, decorator) for decorator in node.decorator_list]
    returned = "" if node.returns is None else f" -> {_source(module, node.returns)}"
    if "property" in decorators or "cached_property" in decorators:
        return f"{name}{returned}"
    arguments = list(_list_arguments(module, node.args))
    if of_class and "staticmethod" not in decorators:
        arguments = arguments[1:]
        if arguments[:1] == ["/"]:
            arguments = arguments[1:]
    kinds = [kind for kind in ("contextmanager", "asynccontextmanager", "classmethod") if kind in decorators]
    before = "".join(f"@{kind} " for kind in kinds)
    if isinstance(node, ast.AsyncFunctionDef):
        before += "async "
    return f"{before}{name}({', '.join(arguments)}){returned}"


def _list_arguments(module: str, arguments: ast.arguments) -> Iterator[str]:
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    for number, (argument, default) in enumerate(zip(positional, defaults, strict=True), 1):
        yield _describe_argument(module, argument, default)
        if number == len(arguments.posonlyargs):
            yield "/"
    if arguments.vararg is not None:
        yield f"*{_describe_argument(module, arguments.vararg, None)}"
    elif arguments.kwonlyargs:
        yield "*"
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _describe_argument(module, argument, default)
    if arguments.kwarg is not None:
        yield f"**{_describe_argument(module, arguments.kwarg, None)}"


def _describe_argument(module: str, argument: ast.arg, default: ast.expr | None) -> str:
    if argument.annotation is None:
        text = argument.arg
        return text if default is None else f"{text}={_source(module, default)}"
    text = f"{argument.arg}: {_source(module, argument.annotation)}"
    return text if default is None else f"{text} = {_source(module, default)}"


def _describe_class(name: str, module: str, node: ast.ClassDef) -> str:
    """The class as it is called, or the members of an enum."""
    if _is_enum(module, node):
        return f"class {name}: {', '.join(_list_enum(node))}"
    return f"class {name}({', '.join(_list_constructor(module, node))})"


def _is_enum(module: str, node: ast.ClassDef) -> bool:
    bases = [_source(module, base) for base in node.bases]
    local_bases = [
        statement
        for statement in read_module(module).body
        if isinstance(statement, ast.ClassDef) and statement.name in bases
    ]
    return any(base.endswith("Enum") for base in bases) or any(_is_enum(module, base) for base in local_bases)


def _list_enum(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        if isinstance(statement, ast.Assign):
            yield from _assigned_names(statement)


def _list_constructor(module: str, node: ast.ClassDef) -> list[str]:
    """The arguments of the class: those of its `__init__`, or its fields."""
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            return list(_list_arguments(module, statement.args))[1:]
    fields = [
        f"{_source(module, field.target)}: {_describe_field(module, field)}"
        for field in node.body
        if isinstance(field, ast.AnnAssign) and not _source(module, field.target).startswith("_")
    ]
    keywords = {keyword.arg for keyword in node.keywords}
    if fields and "kw_only" in keywords:
        fields.insert(0, "*")
    private_bases = [
        statement
        for statement in read_module(module).body
        if isinstance(statement, ast.ClassDef)
        and statement.name.startswith("_")
        and statement.name in [_source(module, base) for base in node.bases]
    ]
    inherited = [field for base in private_bases for field in _list_constructor(module, base)]
    return inherited + fields


def _describe_field(module: str, field: ast.AnnAssign) -> str:
    annotation = _source(module, field.annotation)
    return annotation if field.value is None else f"{annotation} = {_source(module, field.value)}"


def _list_members(module: str, node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            if not statement.name.startswith("_"):
                yield _describe_function(statement.name, module, statement, of_class=True)
        elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            name = _target_name(statement.targets[0])
            if not name.startswith("_"):
                yield from _describe_wrapped_method(name, module, statement.value)


def _describe_wrapped_method(name: str, module: str, call: ast.Call) -> Iterator[str]:
    """A method made of another class's: `ask = _run_blocking(Async.ask)` has the arguments of that one."""
    for argument in ast.walk(call):
        if not isinstance(argument, ast.Attribute):
            continue
        original = find_definition(module, _source(module, argument.value))
        if not isinstance(original.node, ast.ClassDef):
            continue
        for method in original.node.body:
            if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and method.name == argument.attr:
                described = _describe_function(name, original.module, method, of_class=True)
                described = described.removeprefix("@asynccontextmanager ").removeprefix("async ")
                yield described.replace("AsyncIterator", "Iterator")


def _wrap(text: str, *, indent: str = "") -> Iterable[str]:
    """The text in lines, broken between arguments only."""
    lines = textwrap.wrap(
        _join_words(text),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}        ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]


_NO_BREAK = "\0"
"""Stands for a space at which no line may end."""


def _join_words(text: str) -> str:
    """The text with `_NO_BREAK` for every space but those after an argument: `dict[str, int]` stays whole."""
    depth = 0
    joined: list[str] = []
    for before, character in zip(" " + text, text, strict=False):
        depth += (character in "([{") - (character in ")]}")
        ends_argument = before == "," and depth <= 1
        joined.append(_NO_BREAK if character == " " and not ends_argument else character)
    return "".join(joined)


def _source(module: str, node: ast.expr) -> str:
    """The text of an expression in one line, as it is written.

    `ast.get_source_segment` splits the whole file each time, and this page asks some thousand times.
    """
    lines = read_lines(module)[node.lineno - 1 : node.end_lineno]
    lines[-1] = lines[-1][: node.end_col_offset]
    lines[0] = lines[0][node.col_offset :]
    text = b" ".join(line.strip() for line in lines).decode()
    for bracket in "([{":
        text = text.replace(f"{bracket} ", bracket)
    for bracket in ")]}":
        text = text.replace(f", {bracket}", bracket).replace(f" {bracket}", bracket)
    return text


@cache
def read_lines(module: str) -> list[bytes]:
    """The lines of a module as bytes, since a node counts its columns in bytes."""
    return read_text(module).encode().splitlines()


@cache
def read_module(module: str) -> ast.Module:
    return ast.parse(read_text(module))


@cache
def read_text(module: str) -> str:
    path = SOURCE.joinpath(*module.split("."))
    if path.is_dir():
        return (path / "__init__.py").read_text(encoding="utf-8")
    return path.with_suffix(".py").read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
