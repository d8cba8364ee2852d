"""The page of capabilities, these tests and the library speak of the same things."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "notes"
PAGE = (DOCS / "capabilities.md").read_text("utf-8")
IN_SEEDS = (*range(23, 29), *range(35, 38))
"""Rows of systems 002 and 004 of which tests/seeds tries every case."""

ROWS = re.findall(r"^\| (\d+|[A-M]) \| ([^|]+) \|", PAGE, re.MULTILINE)


def test_every_row_has_a_test_and_every_test_a_row() -> None:
    numbers = [number for number, _ in ROWS]
    assert numbers == [*(str(number) for number in range(1, 39)), *"ABCDEFGHIJKLM"]
    tests = "\n".join(path.read_text("utf-8") for path in HERE.glob("test_00*.py"))
    named = set(re.findall(r"^(?:async )?def test_(\d\d|[a-m])_", tests, re.MULTILINE))
    named |= {str(number) for number in IN_SEEDS}
    assert named == {number.rjust(2, "0") if number.isdigit() else number.lower() for number in numbers}


def test_every_row_names_the_heading_of_its_document() -> None:
    """A row of its own table belongs to the document above it; a finer one names the document too."""
    for number, capability in ROWS:
        heading = re.search(r"\(\*(.+)\*\)$", capability)
        assert heading is not None, number
        assert number.isdigit() or re.match(r"00[0-4], ", heading[1]), number


@pytest.mark.parametrize("page", ["capabilities.md", *(path.name for path in sorted(DOCS.glob("from-*.md")))])
def test_what_the_page_names_is_there(page: str) -> None:
    names = set(re.findall(r"`(lamina(?:\.\w+)+)", (DOCS / page).read_text("utf-8")))
    missing = [name for name in sorted(names) if not exists(name)]
    assert missing == []


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return hasattr(importlib.import_module(module), attribute)
    return True
