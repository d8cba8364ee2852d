"""How dense the code is and how clearly it is named, in figures, beside projects that we admire.

    python -m tools.house            print the figures of src/lamina
    python -m tools.house --check    print the density; fail if a name is worse than in tools/house.toml
    python -m tools.house --write    record today's figures in tools/house.toml

Density is the cyclomatic complexity of all functions and methods, by radon, for 100 lines of their code.
Docstrings, comments and empty lines are left out, so a line that says nothing cannot lower it. Density and
lengths are shown and have no limit: a limit is met by moving and squeezing code, which helps no reader. What
may not get worse is what a reader trips over: a name that says nothing, one name for two types, and
conditions inside of expressions.
"""

from __future__ import annotations

import argparse
import ast
import gc
import statistics
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from radon.complexity import cc_visit_ast  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "lamina"
RECORD = ROOT / "tools" / "house.toml"

BANNED_NAMES = frozenset(
    "found given known kept said told made asked shown meant wanted wished stands standing".split()
)
"""Names that do not say what they hold: `found` is somebody's answer, but to which question?"""

TOLERANCE = 0.05
"""Figures are rounded to one digit after the point."""


class MeasuredFunction(NamedTuple):
    """A function or method: the ways through it, and its lines without docstring and comments."""

    complexity: int
    code_lines: int


class SourceFile(NamedTuple):
    """One file, parsed and walked once: `nodes` are all nodes of `tree`."""

    path: Path
    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]
    functions: tuple[MeasuredFunction, ...]
    lines: int
    code_lines: int
    docstring_lines: int
    comment_lines: int

    @property
    def filled_lines(self) -> int:
        return self.code_lines + self.docstring_lines + self.comment_lines


class Figures(NamedTuple):
    """What is measured of a set of files. Docstrings and comments are percents of all lines."""

    lines: int
    density: float
    docstrings: float
    comments: float
    median_function: int
    long_function: int
    ternaries: float
    banned_names: float
    type_clashes: float
    format_exemptions: int


LIMITED = ("ternaries", "banned_names", "type_clashes", "format_exemptions")
"""The figures that may not get worse. All others are only shown."""


OTHER_PROJECTS = (
    ("starlette 1.10.0", Figures(7075, 31.2, 4.0, 2.6, 4, 21, 6.4, 0.0, 0.0, 1)),
    ("httpx 0.28.1", Figures(8828, 26.8, 17.4, 3.9, 6, 25, 10.7, 0.1, 0.0, 0)),
    ("attrs 26.1.0", Figures(6218, 24.7, 32.2, 3.6, 7, 36, 5.9, 0.0, 0.0, 0)),
    ("anyio 4.16.0", Figures(16752, 28.5, 16.1, 2.3, 4, 17, 3.4, 0.1, 13.6, 0)),
    ("langchain-core 1.7.2", Figures(70663, 25.1, 31.4, 3.4, 8, 31, 4.1, 0.0, 1.6, 0)),
    ("pydantic-ai-slim 2.66.0", Figures(195165, 32.1, 22.6, 6.1, 6, 27, 9.6, 0.2, 0.4, 1)),
)
"""Measured in November 2026, of the releases that requirements/dev.txt pinned then."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.house", description=__doc__.split("\n")[0])
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="fail if a limited figure is worse than recorded")
    mode.add_argument("--write", action="store_true", help="record today's figures")
    options = parser.parse_args()
    gc.disable()  # every tree stays until the end, and a third of the time went into looking for garbage
    files = read_files(SOURCE)
    if options.check:
        figures = measure(files)
        print(f"{'decisions per 100 lines of code':<36}{figures.density:>10}")  # tools.size prints the lines
        return report_what_got_worse(figures)
    if options.write:
        write_record(measure(files))
        return 0
    print_lines(list_report(files))
    return 0


def read_files(folder: Path) -> list[SourceFile]:
    return [read_file(path) for path in sorted(folder.rglob("*.py"))]


def read_file(path: Path) -> SourceFile:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    docstring_lines = _docstring_lines(tree)
    comment_lines, code_lines = _split_lines(text, docstring_lines)
    return SourceFile(
        path=path,
        text=text,
        tree=tree,
        nodes=tuple(ast.walk(tree)),
        functions=tuple(_measure_functions(tree, code_lines)),
        lines=len(text.splitlines()),
        code_lines=len(code_lines),
        docstring_lines=len(docstring_lines),
        comment_lines=len(comment_lines),
    )


def count_code_lines(path: Path) -> int:
    """The lines of code of a file, without measuring its functions, which takes most of the time."""
    text = path.read_text(encoding="utf-8")
    return len(_split_lines(text, _docstring_lines(ast.parse(text)))[1])


def _split_lines(text: str, docstring_lines: set[int]) -> tuple[set[int], set[int]]:
    """The numbers of the lines that are comments, and of those that are code."""
    comment_lines: set[int] = set()
    code_lines: set[int] = set()
    for number, line in enumerate(text.splitlines(), 1):
        if number in docstring_lines or not line.strip():
            continue
        if line.strip().startswith("#"):
            comment_lines.add(number)
        else:
            code_lines.add(number)
    return comment_lines, code_lines


def _docstring_lines(tree: ast.Module) -> set[int]:
    """The lines of every string that stands alone: docstrings, and those below a constant."""
    lines: set[int] = set()
    for node in list_statements(tree):
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
            continue
        if isinstance(node.value.value, str):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def list_statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All statements, and what holds some. Expressions, which are most of a tree, are not walked through."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, field, ())


def _measure_functions(tree: ast.Module, code_lines: set[int]) -> Iterator[MeasuredFunction]:
    for block in cc_visit_ast(tree):
        if type(block).__name__ == "Function":  # radon lists classes besides, as the sum of their methods
            own_lines = sum(line in code_lines for line in range(block.lineno, block.endline + 1))
            yield MeasuredFunction(block.complexity, own_lines)


def measure(files: list[SourceFile]) -> Figures:
    functions = [function for file in files for function in file.functions]
    lengths = sorted(function.code_lines for function in functions)
    lines = sum(file.lines for file in files)
    filled_lines = sum(file.filled_lines for file in files)
    return Figures(
        lines=lines,
        density=_share(100, sum(function.complexity for function in functions), sum(lengths)),
        docstrings=_share(100, sum(file.docstring_lines for file in files), lines),
        comments=_share(100, sum(file.comment_lines for file in files), lines),
        median_function=int(statistics.median(lengths)) if lengths else 0,
        long_function=lengths[int(len(lengths) * 0.9)] if lengths else 0,
        ternaries=_share(1000, sum(_ternaries(file) for file in files), filled_lines),
        banned_names=_share(1000, sum(len(banned_names(file)) for file in files), filled_lines),
        type_clashes=_clash_share(files),
        format_exemptions=sum(file.text.count("fmt: skip") for file in files),
    )


def _share(of: int, count: int, total: int) -> float:
    return round(of * count / max(total, 1), 1)


def _ternaries(file: SourceFile) -> int:
    return sum(isinstance(node, ast.IfExp) for node in file.nodes)


def banned_names(file: SourceFile) -> list[str]:
    """Every definition of a name on the banned list, as `name (line)`."""
    names: list[str] = []
    for node in file.nodes:
        name = _defined_name(node)
        if name.strip("_").lower() in BANNED_NAMES:
            names.append(f"{name} ({getattr(node, 'lineno', 0)})")
    return names


def _defined_name(node: ast.AST) -> str:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Name(id=name, ctx=ast.Store()):
            return name
        case ast.arg(arg=name):
            return name
        case _:
            return ""


def type_clashes(files: list[SourceFile]) -> dict[str, list[Path]]:
    """Public type names that are defined in more than one file."""
    return _used_twice(_public_types(files))


def _used_twice(places_of: dict[str, list[Path]]) -> dict[str, list[Path]]:
    return {name: places for name, places in places_of.items() if len(places) > 1}


def _public_types(files: list[SourceFile]) -> dict[str, list[Path]]:
    places: dict[str, list[Path]] = defaultdict(list)
    for file in files:
        for node in file.nodes:
            if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
                continue
            if file.path not in places[node.name]:
                places[node.name].append(file.path)
    return places


def _clash_share(files: list[SourceFile]) -> float:
    places_of = _public_types(files)
    return _share(100, len(_used_twice(places_of)), len(places_of))


def longest_functions(files: list[SourceFile]) -> list[tuple[int, str]]:
    functions: list[tuple[int, str]] = []
    for file in files:
        for node in file.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                functions.append((length, f"{_short(file.path)}:{node.lineno} {node.name}"))
    return sorted(functions, reverse=True)[:10]


def longest_files(files: list[SourceFile]) -> list[tuple[int, str]]:
    lengths = [(file.lines, _short(file.path)) for file in files]
    return sorted(lengths, reverse=True)[:10]


def _short(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def print_lines(lines: Iterator[str]) -> None:
    for line in lines:
        print(line)


def list_report(files: list[SourceFile]) -> Iterator[str]:
    """The figures of every room beside the other projects, and where to look first."""
    yield _HEADING
    yield _row("lamina", measure(files))
    for room in sorted(path for path in SOURCE.iterdir() if path.is_dir()):
        in_room = _in_room(files, room)
        if in_room:
            yield _row(f"  {room.name}", measure(in_room))
    for name, figures in OTHER_PROJECTS:
        yield _row(name, figures)
    yield ""
    yield "Type names used twice:"
    for name, places in sorted(type_clashes(files).items()):
        yield f"  {name}: {', '.join(_short(path) for path in places)}"
    yield "Banned names:"
    for file in files:
        names = banned_names(file)
        if names:
            yield f"  {_short(file.path)}: {', '.join(names)}"
    yield "Longest functions:"
    yield from (f"  {length:>5} {name}" for length, name in longest_functions(files))
    yield "Longest files:"
    yield from (f"  {length:>5} {name}" for length, name in longest_files(files))


def _in_room(files: list[SourceFile], room: Path) -> list[SourceFile]:
    return [file for file in files if file.path.is_relative_to(room)]


_COLUMNS = "{:<24}{:>8}{:>9}{:>8}{:>12}{:>11}{:>11}{:>8}{:>9}{:>7}"

_HEADING = _COLUMNS.format(
    *("", "lines", "density", "docs %", "comments %", "functions", "ternaries", "banned", "clashes", "skips")
)
"""Functions: median and 90th percentile of their lines. Ternaries and banned names: in 1,000 lines."""


def _row(name: str, figures: Figures) -> str:
    return _COLUMNS.format(
        name,
        f"{figures.lines:,}",
        figures.density,
        figures.docstrings,
        figures.comments,
        f"{figures.median_function} / {figures.long_function}",
        figures.ternaries,
        figures.banned_names,
        f"{figures.type_clashes} %",
        figures.format_exemptions,
    )


def report_what_got_worse(figures: Figures) -> int:
    recorded = tomllib.loads(RECORD.read_text(encoding="utf-8"))
    today = {name: getattr(figures, name) for name in LIMITED}
    worse = [name for name, value in today.items() if value > recorded[name] + TOLERANCE]
    for name in worse:
        print(f"tools/house: {name} is {today[name]}, and was {recorded[name]}; `make house` says where")
    return 1 if worse else 0


def write_record(figures: Figures) -> None:
    lines = ["# The figures of tools/house.py that may not get worse; `python -m tools.house --write`."]
    lines += [f"{name} = {getattr(figures, name)}" for name in LIMITED]
    RECORD.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
