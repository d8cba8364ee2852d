from __future__ import annotations

from typing import Literal

import pytest

from tests.summary import left_out, slowest


def report(
    name: str, seconds: float, when: Literal["setup", "call", "teardown"] = "call", *, skipped: str = ""
) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=name,
        location=(name, 1, name),
        keywords={},
        outcome="skipped" if skipped else "passed",
        longrepr=(name, 1, f"Skipped: {skipped}") if skipped else None,
        when=when,
        duration=seconds,
    )


def test_files_are_told_with_what_their_tests_and_fixtures_took() -> None:
    reports = [
        report("tests/a.py::one", 9.0),
        report("tests/a.py::one", 21.0, "setup"),
        report("tests/b.py::one", 35.0),
        report("tests/b.py::two", 35.0),
    ]
    assert list(slowest(reports)) == [
        "   70.0 s   70%  tests/b.py  (2 tests)",
        "   30.0 s   30%  tests/a.py  (1 tests)",
        "  100.0 s in 2 files, in all processes together",
    ]
    assert list(slowest(reports[:1])) == []


def test_what_was_not_run_is_told_with_its_reasons() -> None:
    reports = [report("a.py::one", 0, "setup", skipped="no browser") for _ in range(3)]
    reports += [report("b.py::one", 0, skipped="no database"), report("b.py::two", 1)]
    assert list(left_out(reports)) == ["    3  no browser", "    1  no database"]
