"""The rules of the house that no linter knows: purity, layers, cycles, names, public names, stray text."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from tools import house

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
OURS = ("src", "tests", "tools", "examples", "bench", "docs", "requirements", ".ci")

PURE = frozenset(
    "__future__ abc ast base64 binascii bisect collections contextlib copy dataclasses decimal difflib enum "
    "fractions functools hashlib heapq html itertools json keyword math operator posixpath re shlex "
    "statistics string struct token tokenize types typing zlib".split()
)
"""What the core may import of the standard library: nothing that reads a clock, a disk or the environment."""

PURE_OF_TEXT = frozenset(
    "__future__ binascii bisect collections functools hashlib itertools json math posixpath re shlex typing "
    "zlib".split()
)
"""The same for functions over text, which need less."""

CHECKOUT_ONLY = frozenset("bench examples tests tools".split())
"""Folders of a checkout that are not in the wheel."""

TEST_LIBRARIES = frozenset("_pytest hypothesis pexpect pyte pytest".split())

IMPURE_CALLS = frozenset("breakpoint compile eval exec globals hash id input open print __import__".split())
BY_IDENTITY = {"run_text": frozenset(["id"])}
"""It looks segments up by identity, as `is` compares them. Nothing that it returns depends on the number."""

PATHS_AS_TEXT = frozenset("basename commonpath dirname isabs join normpath split splitext".split())
NO_MODULE = frozenset("base common engine handler helper helpers manager misc provider util utils".split())

STRAY = re.compile(
    r"(?<![\w.~-])/(?:root|work|Users)/\w"  # where somebody's machine keeps things
    r"|py[p]i\.org|python[h]osted\.org|registry\.[n]pmjs"
)


def modules() -> dict[str, Path]:
    paths = sorted((SRC / "lamina").rglob("*.py"))
    names = (".".join(path.relative_to(SRC).with_suffix("").parts) for path in paths)
    return {name.removesuffix(".__init__"): path for name, path in zip(names, paths, strict=True)}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())


@cache
def nodes_of(path: Path) -> Sequence[ast.AST]:
    """Everything in a file of the core."""
    return list(ast.walk(tree_of(path)))


@cache
def statements_of(path: Path) -> Sequence[ast.AST]:
    return list(house.list_statements(tree_of(path)))


@cache
def imported(path: Path) -> Sequence[str]:
    return list(names_imported(path))


def names_imported(path: Path) -> Iterator[str]:
    """Every name a file imports, wherever in the file; `from a import b` as `a.b`."""
    for node in statements_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}:{node.lineno} imports relatively; write the full name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def inside(package: str) -> list[Path]:
    return [path for name, path in modules().items() if f"{name}.".startswith(f"{package}.")]


TEXT = inside("lamina.core.text")
CORE = [path for path in inside("lamina.core") if path not in TEXT]


def its_name(path: Path) -> str:
    return f"{path.parent.name}.{path.stem}"


def text_files() -> Iterator[Path]:
    yield from (path for path in ROOT.iterdir() if path.is_file() and path.name != ".git")  # of a worktree
    for folder in OURS:
        files = (path for path in (ROOT / folder).rglob("*") if path.is_file())
        yield from (path for path in files if "__pycache__" not in path.parts)


THIRD_PERSON = frozenset(
    """
    Adds Appends Asks Begins Brings Builds Calculates Carries Changes Checks Closes Collects Computes
    Creates Deletes Does Ends Erases Finds Forgets Gives Goes Has Joins Keeps Leaves Lets Loads Looks
    Lowers Makes Merges Moves Opens Parses Passes Prepares Prints Puts Raises Reads Refuses Remembers
    Removes Repairs Replaces Returns Rewrites Runs Saves Says Sends Serves Sets Shortens Shows Sorts
    Starts Takes Tells Undoes Waits Writes
    """.split()
)
"""Words that no docstring of a function begins with."""


def test_the_pure_packages_are_there() -> None:
    assert {its_name(path) for path in CORE + TEXT} >= {"core.build", "core.cut", "text.outline", "text.tags"}


def test_core_imports_only_what_is_pure() -> None:
    for path in CORE:
        packages = {name.partition(".")[0] for name in imported(path)}
        assert packages <= PURE | {"msgspec", "lamina"}, path


def test_text_imports_only_what_is_pure_and_nothing_that_knows_a_segment() -> None:
    for path in TEXT:
        names = list(imported(path))
        allowed = PURE_OF_TEXT | {"lamina"}
        assert {name.partition(".")[0] for name in names} <= allowed, path
        ours = [name for name in names if name.startswith("lamina.")]
        assert all(name.startswith(("lamina.core.text.", "lamina.errors.")) for name in ours), path


def test_nothing_pure_calls_what_has_effects_or_differs_between_runs() -> None:
    for path in CORE + TEXT:
        calls = (node for node in nodes_of(path) if isinstance(node, ast.Call))
        names = {call.func.id: call.lineno for call in calls if isinstance(call.func, ast.Name)}
        impure = IMPURE_CALLS - BY_IDENTITY.get(path.stem, frozenset())
        assert {name: line for name, line in names.items() if name in impure} == {}, path


def test_what_is_pure_takes_paths_as_text() -> None:
    for path in CORE + TEXT:
        nodes = [node for node in nodes_of(path) if isinstance(node, ast.Attribute)]
        of_module = [node for node in nodes if isinstance(node.value, ast.Name)]
        used = {node.attr for node in of_module if ast.unparse(node.value) == "posixpath"}
        assert used <= PATHS_AS_TEXT, path
        assert not any(name.startswith("posixpath.") for name in imported(path)), (
            f"{path}: import the module, not its names"
        )


def test_no_module_imports_what_only_a_checkout_has() -> None:
    reaching_out = {
        name: folders
        for name, path in modules().items()
        if (folders := {target.partition(".")[0] for target in imported(path)} & CHECKOUT_ONLY)
    }
    assert reaching_out == {}


def test_only_the_suites_import_test_libraries() -> None:
    users = {
        name
        for name, path in modules().items()
        if {target.partition(".")[0] for target in imported(path)} & TEST_LIBRARIES
    }
    assert users == {"lamina.testing._properties"}


PLANTED_BREACHES = {
    "core/planted.py": "import time\n\ndef later():\n    from os.path import join\n",
    "core/text/planted.py": "import locale\nimport lamina.core.values\n",
    "errors.py": "import lamina.core.values\n",
    "core/values.py": "import lamina.core.kinds\n",
    "planted.py": "",
}
"""Lines that break a contract, by the file at whose end they stand. The last file is in no layer."""

FOUND_BREACHES = (
    ("The core is pure", "lamina.core.planted -> time "),
    ("The core is pure", "lamina.core.planted -> os "),
    ("The core is pure", "lamina.core.text.planted -> locale "),
    ("Functions over text know no segment", "lamina.core.text.planted -> lamina.core.values "),
    ("Imports go strictly down", "lamina.errors -> lamina.core.values "),
    ("Imports go strictly down", "lamina.planted\n"),
    ("No cycles", ".values -> .kinds "),
)


def test_import_contracts_catch_each_planted_breach(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(SRC / "lamina", tmp_path / "lamina", ignore=shutil.ignore_patterns("__pycache__"))
    for planted, lines in PLANTED_BREACHES.items():
        with (tmp_path / "lamina" / planted).open("a") as file:
            file.write(f"\n{lines}")
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]
    run = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 1, run.stdout + run.stderr
    sections = re.split(r"^(\S.*)\n-+\n", run.stdout.partition("Broken contracts")[2], flags=re.MULTILINE)
    told = dict(zip(sections[1::2], sections[2::2], strict=True))
    missed = [
        (contract, breach) for contract, breach in FOUND_BREACHES if breach not in told.get(contract, "")
    ]
    assert missed == [], run.stdout


def test_a_program_that_only_fits_imports_no_session() -> None:
    code = (
        "import sys, lamina\n"
        "print('lamina.sessions' in sys.modules, lamina.Session.__name__, lamina.Agent.__name__)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "Session", "Agent"]


def test_modules_are_named_after_their_subject() -> None:
    names = [path.relative_to(ROOT) for folder in OURS for path in (ROOT / folder).rglob("*.py")]
    vague = [
        str(name) for name in names if NO_MODULE & set(re.split(r"[_/.]", name.with_suffix("").as_posix()))
    ]
    assert vague == []


@pytest.mark.parametrize("folder", ["src", "tools", "bench"])
def test_docstrings_of_functions_have_one_voice(folder: str) -> None:
    """Verbs are in the imperative, and a value is named without "Return": CONTRIBUTING.md, rule 8."""
    found = [
        f"{path.relative_to(ROOT)}:{function.lineno}: {first_word}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for function in statements_of(path)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        if (first_word := _first_word(ast.get_docstring(function) or "")) in THIRD_PERSON
    ]
    assert not found


def _first_word(text: str) -> str:
    return text.partition(" ")[0]


def test_no_file_names_a_machine_or_a_package_index() -> None:
    found = []
    for path in text_files():
        text = path.read_text(encoding="utf-8", errors="replace")
        for stray in STRAY.finditer(text):
            line = text.count("\n", 0, stray.start()) + 1
            found.append(f"{path.relative_to(ROOT)}:{line}")
    assert found == []


@pytest.mark.parametrize("path", sorted((ROOT / "requirements").rglob("*.txt")), ids=lambda path: path.name)
def test_requirements_are_pinned_by_hash_and_name_no_index(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    pins = re.findall(r"^[a-z][\w.-]*(?:\[[\w,]+\])?==\S+.*$(?=\n    --hash=sha256:)", text, re.MULTILINE)
    named = [line for line in text.splitlines() if line and line[0] not in " #"]
    assert pins == named
    assert "://" not in text
    assert "--index" not in text


def test_requirements_cover_the_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8")
    names = [re.split(r"[^\w.-]", dependency)[0] for dependency in project["dependencies"]]
    assert [name for name in names if f"\n{name}==" not in pinned] == []


def test_the_table_of_kinds_is_the_callers_own() -> None:
    """KINDS is a default and nothing else: code that reads it does not know the rows that users add."""
    read: list[str] = []
    for name, path in modules().items():
        if name == "lamina.core.kinds" or name.startswith("lamina.testing"):
            continue
        source = path.read_bytes()
        if b"KINDS" not in source:
            continue
        tree = ast.parse(source)
        defaults = {id(default) for node in ast.walk(tree) for default in _defaults(node)}
        read += [
            f"{name}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and node.id == "KINDS" and id(node) not in defaults
        ]
    assert read == []


def test_what_a_room_exports_is_imported_from_the_room() -> None:
    """So a file can move within its room, and what tries it and measures it stays as it is."""
    inner: list[str] = []
    for folder in ("tests", "bench", "tools", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.parse(path.read_bytes()).body:
                if isinstance(node, ast.ImportFrom):
                    exported = _list_exported_above(node.module or "")
                    inner += [f"{path.name}: {name.name}" for name in node.names if name.name in exported]
    assert inner == []


@cache
def _list_exported_above(module: str) -> frozenset[str]:
    """The names that the rooms around a module export: for `lamina.core.cut`, those of `lamina.core`."""
    room, _, inner = module.rpartition(".")
    if not inner or not room.startswith("lamina."):
        return frozenset()
    return frozenset(getattr(import_module(room), "__all__", ())) | _list_exported_above(room)


def _defaults(node: ast.AST) -> Iterator[ast.AST | None]:
    """What a function or a field takes where nothing is given."""
    if isinstance(node, ast.arguments):
        yield from node.defaults
        yield from node.kw_defaults
    elif isinstance(node, ast.AnnAssign):
        yield node.value


def test_the_figures_of_the_house_see_what_they_count(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("class Plan: ...\n\n\ndef kept(found): return 1 if found else 2\n")
    (tmp_path / "two.py").write_text("class Plan: ...\n\n\nclass Other: ...  # fmt: skip\n")
    files = house.read_files(tmp_path)
    figures = house.measure(files)
    assert house.banned_names(files[0]) == ["kept (4)", "found (4)"]
    assert list(house.type_clashes(files)) == ["Plan"]
    assert figures.type_clashes == 50.0  # one of two names
    assert figures.density == 200.0  # one line with two ways through it
    assert figures.ternaries == figures.banned_names / 2 == 250.0  # one and two in four lines
    assert figures.format_exemptions == 1


def test_a_figure_that_got_worse_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    recorded = tomllib.loads(house.RECORD.read_text(encoding="utf-8"))
    today = house.measure([])._replace(**recorded)
    assert house.report_what_got_worse(today) == 0
    assert house.report_what_got_worse(today._replace(banned_names=today.banned_names + 1)) == 1
    assert "banned_names is" in capsys.readouterr().out


def test_no_image_can_forbid_bytecode_to_what_make_starts() -> None:
    """Each of the many processes that the tests start would compile everything again."""
    done = subprocess.run(
        ["make", "--no-print-directory", "-f", "Makefile", "-f", "-", "shown"],  # noqa: S607 - as a contributor does
        input='shown:\n\t@echo "[$$PYTHONDONTWRITEBYTECODE]"\n',
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
