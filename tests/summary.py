"""What a run says at its end: which files took longest, and what was not run, with the reason.

It knows reports and nothing of tests. A short run is read at a glance and says nothing of its files.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from operator import itemgetter

import pytest

FILES = 12
LONG = 30.0
"""Seconds in tests from which on a run says where they went."""


def summarize(terminal: pytest.TerminalReporter) -> None:
    told = (report for group in terminal.stats.values() for report in group)
    reports = [report for report in told if isinstance(report, pytest.TestReport)]
    for title, lines in (("slowest files", slowest(reports)), ("not run here", left_out(reports))):
        found = list(lines)
        if found:
            terminal.section(title)
        for line in found:
            terminal.line(line)


def slowest(reports: Iterable[pytest.TestReport]) -> Iterator[str]:
    """Files with the time of their tests and of what these needed, the longest first."""
    seconds: defaultdict[str, float] = defaultdict(float)
    tests: Counter[str] = Counter()
    for report in reports:
        file = report.nodeid.partition("::")[0]
        seconds[file] += report.duration
        tests[file] += report.when == "call"
    whole = sum(seconds.values())
    if whole < LONG:
        return
    for file, taken in sorted(seconds.items(), key=itemgetter(1), reverse=True)[:FILES]:
        yield f"{taken:7.1f} s  {taken / whole:4.0%}  {file}  ({tests[file]} tests)"
    yield f"{whole:7.1f} s in {len(seconds)} files, in all processes together"


def left_out(reports: Iterable[pytest.TestReport]) -> Iterator[str]:
    """Each reason for which tests were skipped, with their number."""
    skipped = (report for report in reports if report.skipped and not hasattr(report, "wasxfail"))
    reasons = Counter(map(_reason, skipped))
    for reason, tests in sorted(reasons.items()):
        yield f"{tests:5}  {reason}"


def _reason(report: pytest.TestReport) -> str:
    told = report.longrepr
    text = told[2] if isinstance(told, tuple) else str(told)
    return text.removeprefix("Skipped: ")
