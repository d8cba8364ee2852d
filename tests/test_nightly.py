"""`make nightly` runs every target that `.ci/run` leaves out."""

from __future__ import annotations

import re
from pathlib import Path

from tools.nightly import list_parts

MAKEFILE = Path(__file__).resolve().parent.parent / "Makefile"
IN_CI = {"deps", "interpreters", "test", "check"}
WRITES_OR_MEASURES = set(
    """help demo coverage house site bench proof mutants docs screenshots format lock wheel image man clean
    nightly""".split()
)
"""Targets with nothing that could fail overnight: they print figures, or write files."""


def test_every_target_that_ci_leaves_out_is_a_part() -> None:
    parts = list_parts()
    run = {word for part in parts for word in part.command if part.command[0] == "make"}
    rules = re.findall(r"^([a-z-]+):.*?## ", MAKEFILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(rules) - run - IN_CI - WRITES_OR_MEASURES == set()
    assert {"machine", "clients-codex"} <= {part.name for part in parts}
