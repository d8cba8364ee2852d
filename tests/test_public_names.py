"""The edge: what users may import is in an `__all__` and on the page of the API; docs import nothing else."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import lamina
from tools import api

ROOT = Path(__file__).resolve().parent.parent
PUBLIC = [module.name for module in api.list_modules()]
NAMES = [(module, name) for module in PUBLIC for name in api.public_names(module)]

LOOK_INSIDE = {"ARCHITECTURE.md", "CONTRIBUTING.md"}
"""Pages about how lamina works. They show values that are not for users."""

NEEDS_A_FRAMEWORK = "lamina.adapters."


def user_pages() -> list[Path]:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return sorted(page for page in pages if page.relative_to(ROOT).as_posix() not in LOOK_INSIDE)


def blocks_of_python(page: Path) -> Iterator[str]:
    for block in re.finditer(
        r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    ):
        yield block[1]


def names_imported(code: str) -> Iterator[tuple[str, str]]:
    """The module and the name of everything that the code imports from lamina; no name for a whole module."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "lamina":
            yield from ((str(node.module), alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            names = (alias.name for alias in node.names)
            yield from ((name, "") for name in names if name.partition(".")[0] == "lamina")


def is_public(module: str, name: str) -> bool:
    whole_module = f"{module}.{name}" if name else module
    return (module, name) in NAMES or whole_module in PUBLIC


def test_a_module_is_public_once() -> None:
    assert len(PUBLIC) == len(set(PUBLIC)) > 50


def test_a_public_module_says_what_it_is_and_which_names_are_for_users() -> None:
    for module in PUBLIC:
        names = api.public_names(module)
        assert names, module
        assert len(names) == len(set(names)), module
        assert [name for name in names if name.startswith("_")] == [], module
        assert ast.get_docstring(api.read_module(module)), module


def test_every_public_name_is_defined_and_explained() -> None:
    for module in PUBLIC:
        definitions = {name: api.find_definition(module, name) for name in api.public_names(module)}
        unexplained = [name for name, definition in definitions.items() if not api.summarize(definition)]
        assert unexplained == [], module


def test_a_public_name_is_the_very_object_that_it_is_said_to_be() -> None:
    """What a type checker reads under TYPE_CHECKING and what a running program gets are the same."""
    for module in (name for name in PUBLIC if not name.startswith(NEEDS_A_FRAMEWORK)):
        package = import_module(module)
        for name in api.public_names(module):
            definition = api.find_definition(module, name)
            assert getattr(package, name) is getattr(import_module(definition.module), definition.name)
            assert name in dir(package), module


def test_a_lazy_package_names_nothing_besides_what_it_exports() -> None:
    code = "import sys, importlib; module = importlib.import_module(sys.argv[1]); print(*dir(module))"
    for module in ("lamina", "lamina.stores", "lamina.core"):
        run = subprocess.run([sys.executable, "-c", code, module], capture_output=True, text=True, check=True)
        listed = {name for name in run.stdout.split() if not name.startswith("_")}
        imported = {"TYPE_CHECKING", "name_lazily"}
        assert listed - imported == set(api.public_names(module))


def test_importing_lamina_imports_nothing_else_of_it() -> None:
    code = "import lamina, sys; print(*sorted(name for name in sys.modules if name.startswith('lamina')))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["lamina", "lamina._lazy_names"]


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'lamina' has no attribute 'Sesion'"):
        _ = lamina.Sesion  # type: ignore[attr-defined]


def test_pages_for_users_import_only_what_is_public() -> None:
    for page in user_pages():
        imported = {pair for block in blocks_of_python(page) for pair in names_imported(block)}
        assert {pair for pair in imported if not is_public(*pair)} == set(), page


def test_examples_import_only_what_is_public() -> None:
    for example in (ROOT / "examples").rglob("*.py"):
        imported = set(names_imported(example.read_text(encoding="utf-8")))
        assert {pair for pair in imported if not is_public(*pair)} == set(), example


def test_the_page_of_the_api_is_current() -> None:
    assert api.PAGE.read_text(encoding="utf-8") == api.write_page(), "run `python -m tools.api --write`"


def test_a_changed_signature_changes_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    text = api.read_text("lamina.segments")
    changed = text.replace("def excerpt(text: str, *, source: str", "def excerpt(text: str, source: str")
    tree, lines = ast.parse(changed), changed.encode().splitlines()
    before = list(api.describe_module("lamina.segments", {}))
    monkeypatch.setattr(api, "read_module", lambda _: tree)
    monkeypatch.setattr(api, "read_lines", lambda _: lines)
    after = list(api.describe_module("lamina.segments", {}))
    assert [line for line in before if line not in after] == [
        'excerpt(text: str, *, source: str, place: str = "", **fields: Any) -> Segment'
    ]
    assert len(after) == len(before)


def test_a_method_that_wraps_another_has_its_signature() -> None:
    page = api.PAGE.read_text(encoding="utf-8")
    asynchronous = page.split("### lamina.sessions\n")[1].split("### ")[0]
    blocking = page.split("### lamina.blocking\n")[1].split("### ")[0]
    assert "      record(answer: Answer, " in blocking
    assert "      open(store: Store | str | PathLike[str] | None, conversation: str, " in blocking
    assert "async record(" in page.split("### lamina\n")[1].split("### ")[0]
    assert "Session: see lamina.Session" in asynchronous
