"""How dense the code is and how clearly it is named, in figures, beside projects that we admire.

    python -m tools.house            print the figures of src/lamina
    python -m tools.house --check    fail if a figure is worse than in tools/house.toml
    python -m tools.house --write    record today's figures in tools/house.toml

Complexity is radon's, summed over all functions and methods, for 100 lines of them. It is no goal in itself:
a function that does one thing after the other, with a decision on each line, has a low figure without trying.
The figures of the other projects were measured in November 2026 with the same rules.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from radon.complexity import cc_visit_ast  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "lamina"
RECORD = ROOT / "tools" / "house.toml"

BANNED_NAMES = frozenset(
    "found given known kept said told made asked shown meant wanted wished stands standing".split()
)
"""Names that do not say what they hold: `found` is somebody's answer, but to which question?"""

OTHER_PROJECTS = (
    # name, complexity, ternaries, type names used twice in percent, lines exempt from the formatter
    ("starlette", 27, 6.7, 1.4, 1),
    ("httpx", 20, 11.6, 0, 0),
    ("structlog", 16, 2.8, None, 0),
    ("llm", 21, 8.5, None, 0),
    ("datasette", 22, 3.9, None, 0),
    ("pydantic-ai", 22, 10.8, 1.3, 1),
    ("openai-agents", 22, 11.0, 1.0, 0),
    ("inspect_ai", 18, 11.5, 2.2, 1),
)

TOLERANCE = 0.05
"""Figures are rounded to one digit after the point."""


class SourceFile(NamedTuple):
    """One file, parsed and walked once: `nodes` are all nodes of `tree`."""

    path: Path
    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]

    @property
    def code_lines(self) -> int:
        return sum(1 for line in self.text.splitlines() if line.strip())


class Figures(NamedTuple):
    """What is measured of a set of files; every figure is better if it is lower."""

    complexity: float
    ternaries: float
    banned_names: float
    type_clashes: float
    format_exemptions: int


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.house", description=__doc__.split("\n")[0])
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="fail if a figure is worse than the recorded one")
    mode.add_argument("--write", action="store_true", help="record today's figures")
    options = parser.parse_args()
    files = read_files(SOURCE)
    figures = measure(files)
    modules = modules_run_by_fit_request()
    if options.check:
        return report_what_got_worse(figures, len(modules))
    if options.write:
        write_record(figures, len(modules))
        return 0
    print_report(files, figures, modules)
    return 0


def read_files(folder: Path) -> list[SourceFile]:
    files: list[SourceFile] = []
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        files.append(SourceFile(path, text, tree, tuple(ast.walk(tree))))
    return files


def measure(files: list[SourceFile]) -> Figures:
    lines = sum(file.code_lines for file in files)
    return Figures(
        complexity=_complexity(files),
        ternaries=_per_thousand(sum(_ternaries(file) for file in files), lines),
        banned_names=_per_thousand(sum(len(banned_names(file)) for file in files), lines),
        type_clashes=_clash_share(files),
        format_exemptions=sum(file.text.count("fmt: skip") for file in files),
    )


def _complexity(files: list[SourceFile]) -> float:
    complexity = 0
    lines = 0
    for file in files:
        for block in cc_visit_ast(file.tree):
            if type(block).__name__ != "Function":
                continue
            complexity += block.complexity
            lines += block.endline - block.lineno + 1
    return round(100 * complexity / max(lines, 1), 1)


def _ternaries(file: SourceFile) -> int:
    return sum(isinstance(node, ast.IfExp) for node in file.nodes)


def _per_thousand(count: int, lines: int) -> float:
    return round(1000 * count / max(lines, 1), 1)


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
    return round(100 * len(_used_twice(places_of)) / max(len(places_of), 1), 1)


def longest_functions(files: list[SourceFile]) -> list[tuple[int, str]]:
    functions: list[tuple[int, str]] = []
    for file in files:
        for node in file.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                functions.append((length, f"{_short(file.path)}:{node.lineno} {node.name}"))
    return sorted(functions, reverse=True)[:10]


def longest_files(files: list[SourceFile]) -> list[tuple[int, str]]:
    lengths = [(len(file.text.splitlines()), _short(file.path)) for file in files]
    return sorted(lengths, reverse=True)[:10]


def modules_run_by_fit_request() -> list[str]:
    """The modules that a plain, warm call of `fit_request` enters, without `__init__` files."""
    from lamina import fit_request  # noqa: PLC0415 - so that nothing is measured that only importing runs

    request = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 1000,
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": "What is a lamina?"},
            {"role": "assistant", "content": "A thin layer."},
            {"role": "user", "content": "Of what?"},
        ],
    }
    fit_request(request)
    entered: set[str] = set()

    def note_file(frame: Any, event: str, _argument: object) -> None:
        if event == "call":
            entered.add(frame.f_code.co_filename)

    sys.setprofile(note_file)
    try:
        fit_request(request)
    finally:
        sys.setprofile(None)
    ours = {Path(name) for name in entered if Path(name).is_relative_to(SOURCE)}
    return sorted(_short(path) for path in ours if path.name != "__init__.py")


def _short(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def print_report(files: list[SourceFile], figures: Figures, modules: list[str]) -> None:
    for line in _report(files, figures, modules):
        print(line)


def _report(files: list[SourceFile], figures: Figures, modules: list[str]) -> Iterator[str]:
    heading = ("", "complexity", "ternaries", "banned names", "type clashes", "fmt: skip")
    yield "{:<16}{:>12}{:>12}{:>14}{:>14}{:>11}".format(*heading)
    yield _row("lamina", figures)
    for room in sorted(path for path in SOURCE.iterdir() if path.is_dir()):
        in_room = [file for file in files if file.path.is_relative_to(room)]
        if in_room:
            yield _row(f"  {room.name}", measure(in_room))
    for name, complexity, ternaries, clashes, exemptions in OTHER_PROJECTS:
        share = "-" if clashes is None else f"{clashes} %"
        yield f"{name:<16}{complexity:>12}{ternaries:>12}{'-':>14}{share:>14}{exemptions:>11}"
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
    yield f"A plain fit_request runs through {len(modules)} modules:"
    yield f"  {', '.join(modules)}"


def _row(name: str, figures: Figures) -> str:
    clashes = f"{figures.type_clashes} %"
    return (
        f"{name:<16}{figures.complexity:>12}{figures.ternaries:>12}{figures.banned_names:>14}"
        f"{clashes:>14}{figures.format_exemptions:>11}"
    )


def report_what_got_worse(figures: Figures, modules: int) -> int:
    recorded = tomllib.loads(RECORD.read_text(encoding="utf-8"))
    today = {**figures._asdict(), "modules_of_fit_request": modules}
    worse = [name for name, value in today.items() if value > recorded[name] + TOLERANCE]
    for name in worse:
        print(f"tools/house: {name} is {today[name]}, and was {recorded[name]}; `make house` says where")
    return 1 if worse else 0


def write_record(figures: Figures, modules: int) -> None:
    today = {**figures._asdict(), "modules_of_fit_request": modules}
    lines = ["# The figures of tools/house.py that may not get worse; `python -m tools.house --write`."]
    lines += [f"{name} = {value}" for name, value in today.items()]
    RECORD.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
