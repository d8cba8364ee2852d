"""`make newcomer` itself takes minutes and needs an index; here only what it must notice."""

from __future__ import annotations

import platform
import sys
import zipfile
from pathlib import Path

import pytest

from tools.interpreters import Interpreter
from tools.newcomer import (
    Failed,
    Newcomer,
    read_install_lines,
    read_shell_lines,
    with_wheels,
    write_foreign_wheel,
)

PYTHON = sys.executable


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    interpreter = Interpreter(platform.python_version(), Path(PYTHON))
    return Newcomer(interpreter, tmp_path_factory.mktemp("newcomer"))


@pytest.mark.parametrize(
    "code",
    [
        "1 / 0",
        "import warnings; warnings.warn('old', DeprecationWarning)",
        "import sys; sys.exit(2)",
        "import sys; sys.exit('one line\\nanother\\na third')",
        "print('ValueError: x; this is a bug in lamina, please report it')",
    ],
    ids=["traceback", "warning", "silent refusal", "long refusal", "bug"],
)
def test_a_newcomer_stops_at(newcomer: Newcomer, code: str) -> None:
    with pytest.raises(Failed):
        newcomer.type_line(f'{PYTHON} -c "{code}"', lines=2)


def test_a_refusal_of_one_line_is_fine_and_settings_of_this_machine_are_not_seen(
    newcomer: Newcomer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    code = "import os, sys; sys.exit(os.environ.get('OPENAI_API_KEY', 'no key') + ' ' + os.environ['HOME'])"
    assert newcomer.type_line(f'{PYTHON} -c "{code}"', lines=1) == f"no key {newcomer.home}\n"


def test_lines_of_the_pages_are_typed_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "lamina_context-0.1.0-py3-none-any.whl").touch()
    first = read_install_lines()[0]
    assert first == "pip install lamina-context"
    assert with_wheels(first, tmp_path).startswith(
        f"pip install lamina-context --quiet --find-links {tmp_path} "
    )
    lines = list(read_shell_lines())
    assert "lamina demo" in lines
    assert "lamina run -- claude" not in lines  # its block says why it is not run


def test_a_foreign_wheel_can_be_installed_beside_lamina(tmp_path: Path) -> None:
    names = zipfile.ZipFile(write_foreign_wheel(tmp_path)).namelist()
    assert names[0] == "lamina/__init__.py"
    assert names[-1].endswith("RECORD")
