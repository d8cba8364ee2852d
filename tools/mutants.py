"""Change the source in small wrong ways, and count how many of the changes the tests notice.

    python -m tools.mutants [--count N] [--seed N] [--rooms ROOM,ROOM] [--jobs N] [--reach R] [--json FILE]

Each mutant is a copy of the source with one decision turned round: `<` for `<=`, `and` for `or`, a number one
higher, a condition negated, a `return` without its value. The tests nearest to the changed file run first:
those of its name, and those of its room that import it. Then the room, then the tests of the laws, of golden
requests and of what is built on the room. A mutant that all of them let pass has survived: either a test is
missing, or the change means nothing. Tests that fail run once more before it counts as noticed: on a loaded
machine one may fail by chance. `make mutants` runs a sample of 60; the same seed draws the same sample
from the same source.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("core", "dialects", "gateway", "stores", "caches", "fitting", "conversations", "sessions")
TIMEOUT = 900
"""Seconds for one run of tests. A mutant that never ends is noticed by that."""

REACHES = ("nearest", "room", "all")
"""How far the tests of a mutant may be from it."""

COPIED_FOLDERS = ("src", "tests", "tools", "bench", "docs", "notes", "examples")
COPIED_FILES = ("pyproject.toml", "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")

WIDER_TESTS = {
    "core": ("test_golden.py", "test_laws.py", "fitting", "sessions", "test_fuzzing.py", "test_convert.py"),
    "dialects": ("test_golden.py", "test_convert.py", "fitting", "test_fuzzing_validity.py", "clients"),
    "gateway": ("clients", "conversations", "cli"),
    "stores": ("sessions", "agent", "seeds"),
    "caches": ("diagnose", "fitting", "costs"),
    "fitting": ("wrapped", "test_golden.py", "test_one_conversation.py", "gateway"),
    "conversations": ("gateway", "wrapped", "inspector", "test_one_conversation.py"),
    "sessions": ("agent", "seeds", "cli", "summaries"),
}
"""What runs after the tests of a room, below `tests`."""

_OTHER_COMPARISON = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}


class Mutant(NamedTuple):
    """One change: at this place of this file, `before` becomes `after`."""

    path: Path
    line: int
    start: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}  {self.before} → {self.after}"


class Verdict(NamedTuple):
    mutant: Mutant
    noticed_by: str
    seconds: float


def main(words: Sequence[str]) -> int:
    arguments = _parser().parse_args(words)
    rooms = arguments.rooms.split(",")
    unknown = [room for room in rooms if room not in WIDER_TESTS]
    if unknown:
        print(f"mutants: no such room: {', '.join(unknown)}; choose from {', '.join(ROOMS)}", file=sys.stderr)
        return 2
    mutants = draw_mutants(rooms, arguments.count, arguments.seed)
    verdicts: list[Verdict] = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for verdict in pool.map(partial(try_mutant, reach=arguments.reach), mutants):
            verdicts.append(verdict)
            outcome = verdict.noticed_by or "SURVIVED"
            print(f"{len(verdicts):>3} {verdict.mutant}  [{outcome}, {verdict.seconds:.0f} s]", flush=True)
    survivors = [verdict for verdict in verdicts if not verdict.noticed_by]
    noticed = len(verdicts) - len(survivors)
    print(f"\n{noticed} of {len(verdicts)} mutants noticed ({100 * noticed / max(len(verdicts), 1):.0f} %)")
    if arguments.json:
        rows = [[str(v.mutant), v.noticed_by, round(v.seconds, 1)] for v in verdicts]
        Path(arguments.json).write_text(json.dumps(rows, indent=1))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=60, help="how many mutants (60)")
    parser.add_argument("--seed", type=int, default=1, help="draws the sample (1)")
    parser.add_argument("--rooms", default=",".join(ROOMS), help=f"which rooms ({','.join(ROOMS)})")
    parser.add_argument("--jobs", type=int, default=2, help="mutants tried at the same time (2)")
    parser.add_argument(
        "--reach", choices=REACHES, default="all", help="which tests run at most: a first pass is quick (all)"
    )
    parser.add_argument("--json", metavar="FILE", help="write the verdicts to a file as well")
    return parser


def draw_mutants(rooms: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """A sample of all mutants: as many of each room, and each file as likely as it has places."""
    draw = random.Random(seed)  # noqa: S311 - a sample of tests, not a secret
    sample: list[Mutant] = []
    for number, room in enumerate(rooms):
        mutants: list[Mutant] = []
        for path in _list_sources(room):
            mutants += find_mutants(ROOT / path)
        share = count * (number + 1) // len(rooms) - count * number // len(rooms)
        sample += draw.sample(mutants, min(share, len(mutants)))
    return sample


def find_mutants(path: Path) -> list[Mutant]:
    """Every change that can be made to one file."""
    text = path.read_text()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    source = text.encode()
    mutants: list[Mutant] = []
    for node in _nodes_that_run(ast.parse(text)):
        for first, last, after in _changes(node):
            start = starts[first[0] - 1] + first[1]
            end = starts[last[0] - 1] + last[1]
            before = source[start:end].decode()
            replacement = after(before)
            if replacement != before and "\n" not in before:
                mutants.append(Mutant(path.relative_to(ROOT), first[0], start, end, before, replacement))
    return mutants


def _nodes_that_run(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes inside functions. Annotations and defaults are left alone."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                yield from ast.walk(statement)


Place = tuple[int, int]
"""A line and a column."""

Change = tuple[Place, Place, "_Replace"]
"""Where the text begins and ends, and what makes the new text of the old one."""


def _changes(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.expr):
        yield from _changes_of_expression(node)
    else:
        yield from _changes_of_statement(node)


def _changes_of_expression(node: ast.expr) -> Iterator[Change]:
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            yield _end(left), _start(right), _Replace(*_OTHER_COMPARISON[type(operator)])
        case ast.BoolOp(op=ast.And(), values=values):
            yield _end(values[0]), _start(values[1]), _Replace("and", "or")
        case ast.BoolOp(op=ast.Or(), values=values):
            yield _end(values[0]), _start(values[1]), _Replace("or", "and")
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield _start(node), _start(operand), _Replace("not ", "")
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield _end(left), _start(right), _Replace("+", "-")
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            yield _end(left), _start(right), _Replace("-", "+")
        case ast.Constant(value=bool() as value):
            yield _start(node), _end(node), _Replace(str(value), str(not value))
        case ast.Constant(value=int() as value):
            yield _start(node), _end(node), _Replace("", str(value + 1))


def _changes_of_statement(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.If(test=test) | ast.While(test=test) if not isinstance(test, ast.Compare | ast.BoolOp):
            yield _start(test), _end(test), _Replace("", "not ({})")
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield _start(value), _end(value), _Replace("", "None")
        case ast.Continue():
            yield _start(node), _end(node), _Replace("continue", "break")
        case ast.Break():
            yield _start(node), _end(node), _Replace("break", "continue")


class _Replace(NamedTuple):
    """Writes `new` for `old` in a text. If `old` is empty, `new` is all, with the text where {} stands."""

    old: str
    new: str

    def __call__(self, text: str) -> str:
        if not self.old:
            return self.new.replace("{}", text)
        return text.replace(self.old, self.new, 1)


def _start(node: ast.expr | ast.stmt) -> Place:
    return node.lineno, node.col_offset


def _end(node: ast.expr | ast.stmt) -> Place:
    return node.end_lineno or 0, node.end_col_offset or 0


def try_mutant(mutant: Mutant, *, reach: str = "all") -> Verdict:
    """Run the tests on a copy of the source with one change in it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lamina-mutant-") as folder:
        copy = Path(folder)
        # Compiled files travel along: without them each run of tests would compile all that it imports.
        for name in COPIED_FOLDERS:
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns(".hypothesis"))
        for name in COPIED_FILES:
            shutil.copy(ROOT / name, copy / name)
        file = copy / mutant.path
        source = file.read_bytes()
        file.write_bytes(source[: mutant.start] + mutant.after.encode() + source[mutant.end :])
        noticed_by = _first_to_notice(copy, mutant.path, reach=reach)
    return Verdict(mutant, noticed_by, time.monotonic() - began)


def _first_to_notice(copy: Path, path: Path, *, reach: str) -> str:
    """The first of the groups of tests that fails on the copy; "" if all of them pass."""
    room = path.parts[2]
    groups = {"nearest": find_nearest_tests(path)}
    if reach != "nearest":
        groups[room] = [f"tests/{room}"]
    if reach == "all":
        groups |= {wider: [f"tests/{wider}"] for wider in WIDER_TESTS[room]}
    for group, paths in groups.items():
        status = _run_tests(copy, paths) if paths else NOTHING_RAN
        if status not in (0, NOTHING_RAN):
            status = _run_tests(copy, paths)
        if status == NEVER_ENDED:
            return f"{group}, without an end"
        if status not in (0, NOTHING_RAN):
            return group
    return ""


def find_nearest_tests(path: Path) -> list[str]:
    """The tests of a room that are named after a file, then those that import it, then those of its package.

    For `dialects/gemini/check.py` these are `test_gemini_check*`, then who imports it, then `test_gemini*`.
    A file that no test names has those of the files that import it.
    """
    nearest = _find_tests_of(path)
    if nearest:
        return nearest
    importers = [file for file in _list_sources(path.parts[2]) if _imports(file, path)]
    return list(dict.fromkeys(test for importer in importers for test in _find_tests_of(importer)))


def _find_tests_of(path: Path) -> list[str]:
    room = path.parts[2]
    package = "" if path.parent.name == room else path.parent.name
    named: list[str] = []
    importing: list[str] = []
    of_package: list[str] = []
    for file in sorted((ROOT / "tests" / room).rglob("test_*.py")):
        test = file.relative_to(ROOT)
        is_of_package = package in test.stem
        if path.stem in test.stem and is_of_package:
            named.append(test.as_posix())
        elif _imports(test, path):
            importing.append(test.as_posix())
        elif package and is_of_package:
            of_package.append(test.as_posix())
    return named + importing + of_package


def _list_sources(room: str) -> list[Path]:
    return [path.relative_to(ROOT) for path in sorted((ROOT / "src" / "lamina" / room).rglob("*.py"))]


def _imports(file: Path, imported: Path) -> bool:
    """Whether a file imports another, or a name that the other defines, from a room that exports it."""
    module = ".".join(imported.with_suffix("").parts[1:]).removesuffix(".__init__")
    for source, name in _read_imports(ROOT / file):
        if module in (source, f"{source}.{name}"):
            return True
        if module.startswith(f"{source}.") and name in _read_definitions(ROOT / imported):
            return True
    return False


@cache
def _read_imports(path: Path) -> frozenset[tuple[str, str]]:
    """The module and the name of everything that a file imports by `from`."""
    nodes = ast.walk(ast.parse(path.read_bytes()))
    imports = (node for node in nodes if isinstance(node, ast.ImportFrom))
    return frozenset((node.module or "", alias.name) for node in imports for alias in node.names)


@cache
def _read_definitions(path: Path) -> frozenset[str]:
    """The functions, classes and constants of a file."""
    names: set[str] = set()
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return frozenset(names)


NOTHING_RAN = 5
"""pytest's exit status when it found no test."""

NEVER_ENDED = 124
"""The status of a run that took longer than `TIMEOUT`."""


def _run_tests(copy: Path, paths: Sequence[str]) -> int:
    environment = dict(os.environ)
    environment |= {
        "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}",
        "HYPOTHESIS_PROFILE": environment.get("HYPOTHESIS_PROFILE", "quick"),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    command += ["-p", "no:randomly", "-m", "not thorough", *paths]
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return NEVER_ENDED
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
