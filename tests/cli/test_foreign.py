"""A foreign distribution with a package `lamina` is noticed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lamina.cli import main
from lamina.cli.foreign import find_foreign_distributions
from tests.cli.running import run


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A distribution `lamina-physics` 9.9, installed beside this one."""
    info = tmp_path / "lamina_physics-9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: lamina-physics\nVersion: 9.9\n", encoding="utf-8"
    )
    (info / "top_level.txt").write_text("lamina\n", encoding="utf-8")
    (info / "RECORD").write_text(
        "lamina/__init__.py,,\nlamina_physics-9.9.dist-info/METADATA,,\n", encoding="utf-8"
    )
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    return "lamina-physics 9.9"


def test_alone_there_is_no_clash() -> None:
    assert find_foreign_distributions() == []


def test_the_doctor_names_the_other_one_and_what_to_type(foreign: str) -> None:
    done = run("doctor")
    assert done.code == 1
    assert f"package: {foreign} also installs a package called lamina" in done.out
    assert (
        "pip uninstall -y lamina-physics && pip install --force-reinstall --no-deps lamina-context"
        in done.out
    )


def test_a_file_that_was_overwritten_is_no_bug_of_lamina(
    foreign: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def break_import(_: str) -> None:
        raise ImportError("cannot import name 'describe'")

    monkeypatch.setattr("lamina.cli._run", break_import)
    assert main(["demo"]) == 2
    said = capsys.readouterr().err
    assert foreign in said
    assert "bug" not in said
