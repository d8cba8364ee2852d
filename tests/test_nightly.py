"""`make nightly` goes on after a part that failed, and says so at the end."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tools.nightly import Part, list_parts, main

MAKEFILE = Path(__file__).resolve().parent.parent / "Makefile"
IN_CI = {"deps", "interpreters", "test", "check"}
WRITES_OR_MEASURES = set(
    """help demo coverage house site bench proof mutants docs screenshots format lock wheel image man clean
    nightly""".split()
)
"""Targets with nothing that could fail overnight: they print figures, or write files."""


def say(text: str, *, status: int = 0) -> tuple[str, ...]:
    return (sys.executable, "-c", f"import sys; print({text!r}); sys.exit({status})")


def test_it_goes_on_after_a_failure_and_tells_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = [
        Part("first", say("the first is broken", status=1)),
        Part("second", say("never"), set_up=say("there is no npm", status=1)),
        Part("third", say("3 passed"), set_up=("true",)),
    ]
    assert main([], parts, logs=tmp_path) == 1
    table = capsys.readouterr().out.partition("All parts:")[2]
    rows = [line.split("min") for line in table.splitlines() if line]
    assert [row[0].split()[:-1] for row in rows] == [
        ["first", "failed"],
        ["second", "left", "out"],
        ["third", "ok"],
    ]
    assert [row[1].strip() for row in rows] == ["the first is broken", "there is no npm", "3 passed"]


def test_all_parts_that_pass_or_are_left_out_are_fine(tmp_path: Path) -> None:
    parts = [
        Part("first", say("ok")),
        Part("second", say("never"), set_up=("a-command-that-nobody-has",)),
        Part("third", say("no", status=3)),
    ]
    assert main(["first", "second"], parts, logs=tmp_path) == 0
    assert main(["fourth"], parts, logs=tmp_path) == 2


def test_every_target_that_ci_leaves_out_is_a_part() -> None:
    parts = list_parts()
    run = {word for part in parts for word in part.command if part.command[0] == "make"}
    rules = re.findall(r"^([a-z-]+):.*?## ", MAKEFILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(rules) - run - IN_CI - WRITES_OR_MEASURES == set()
    assert {"machine", "clients-codex"} <= {part.name for part in parts}
