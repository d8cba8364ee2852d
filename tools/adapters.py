"""Tests every adapter in an environment of its framework, and prints how the frameworks' own suites go.

    python -m tools.adapters [NAME...]    (all of them unless told)

`tools/environments.sh` makes each environment from the pinned requirements in requirements/adapters/. A test
that runs a framework's suite records its score as a property. The score of the framework's own part stands
beside that of lamina's. The long session of an adapter is a row: its requests, how many are over the room
without lamina and with it, its cuts, its largest request and its recalls. So is each way in which its own
clients talked to a strict server. Fails if a test fails.
"""

from __future__ import annotations

import collections
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".adapters"
TESTS = ROOT / "tests" / "adapters"
SESSION_COLUMNS = ("session", "requests", "over without", "over", "cuts", "largest", "recalls")
"""What `tests.adapters.long_session` records of each framework's long session."""

WIRE_COLUMNS = ("over the wire", "API and mode", "requests", "cuts", "largest", "recalls")
"""What `tests.adapters.over_wire` records of each way to a strict server. It refused none of the requests."""


@dataclass(frozen=True)
class Framework:
    """One environment: the package whose version counts, and the modules that are tested in it."""

    package: str
    modules: tuple[str, ...]


FRAMEWORKS = {
    "langchain": Framework("langchain", ("langchain",)),
    "pydantic-ai": Framework("pydantic-ai-slim", ("pydantic_ai",)),
    "openai-agents": Framework("openai-agents", ("openai_agents",)),
    "claude-agent": Framework("claude-agent-sdk", ("claude_agent",)),
    "litellm": Framework("litellm", ("litellm",)),
    "strands": Framework("strands-agents", ("strands",)),
    "google-adk": Framework("google-adk", ("google_adk",)),
    "llama-index": Framework("llama-index-core", ("llama_index",)),
    "agent-framework": Framework("agent-framework-core", ("agent_framework",)),
    "haystack": Framework("haystack-ai", ("haystack",)),
    "inspect-ai": Framework("inspect-ai", ("inspect_ai",)),
    "smolagents": Framework("smolagents", ("smolagents",)),
    "crewai": Framework("crewai", ("crewai",)),
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in FRAMEWORKS]
    if unknown:
        print(f"no adapter is called {unknown[0]}; there are {', '.join(FRAMEWORKS)}", file=sys.stderr)
        return 2
    failed = False
    rows: list[tuple[str, ...]] = [("framework", "version", "tests", "failed", "seconds")]
    sessions: list[tuple[str, ...]] = [SESSION_COLUMNS]
    wires: list[tuple[str, ...]] = [WIRE_COLUMNS]
    scores: list[tuple[str, ...]] = [("suite", "passed/total")]
    for name in names or list(FRAMEWORKS):
        print(f"{name} ...", file=sys.stderr)
        report = run_tests(name)
        counts = count_outcomes(report)
        failed = failed or counts.failed > 0 or counts.tests == 0
        version = read_version(name)
        rows.append((name, version, str(counts.tests), str(counts.failed), f"{counts.seconds:.0f}"))
        sessions += [(name, *session.split()) for session in list_properties(report, "session")]
        wires += [(name, *wire.rsplit(" ", 4)) for wire in list_properties(report, "wire")]
        scores += list_scores(report)
    print_table(rows)
    print_table(sessions)
    print_table(wires)
    print_table(scores)
    return int(failed)


@dataclass(frozen=True)
class Counts:
    tests: int
    failed: int
    seconds: float


def run_tests(name: str) -> ET.Element:
    """Run the tests of one framework in its environment, and return pytest's report."""
    tests = [str(TESTS / f"test_{module}.py") for module in (*FRAMEWORKS[name].modules, "examples")]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [str(ENVIRONMENTS / name / "bin" / "python"), "-m", "pytest", "-q", "--noconftest"]
        command += ["-p", "no:cacheprovider", "-o", "filterwarnings=default", f"--junitxml={report}", *tests]
        if name == "langchain":
            command += ["-o", "asyncio_mode=auto"]
        environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": "/usr/bin:/bin", "HOME": folder}
        environment["LAMINA_LONG_SESSIONS"] = "1"
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stdout[-6000:], done.stderr[-2000:], file=sys.stderr)
        if not report.exists():
            return ET.Element("testsuites")
        return ET.parse(report).getroot()  # noqa: S314 - pytest wrote it just now


def count_outcomes(report: ET.Element) -> Counts:
    suites = list(report.iter("testsuite"))
    tests = sum(int(suite.get("tests", 0)) for suite in suites)
    bad = sum(int(suite.get("failures", 0)) + int(suite.get("errors", 0)) for suite in suites)
    return Counts(tests, bad, sum(float(suite.get("time", 0)) for suite in suites))


def list_scores(report: ET.Element) -> Iterator[tuple[str, str]]:
    """Scores that tests recorded, and the tests of classes that a framework's suite is the base of."""
    classes: dict[str, collections.Counter[str]] = {}
    for case in report.iter("testcase"):
        for each in case.iter("property"):
            if each.get("name") not in ("session", "wire"):
                yield each.get("name", ""), each.get("value", "")
        class_name = case.get("classname", "").rpartition(".")[2]
        if class_name.startswith("Test"):
            outcomes = classes.setdefault(class_name.removeprefix("Test"), collections.Counter())
            outcomes[find_outcome(case)] += 1
    for class_name, outcomes in classes.items():
        total = outcomes["passed"] + outcomes["failed"]
        score = f"{outcomes['passed']}/{total}"
        if outcomes["skipped"]:
            score += f", {outcomes['skipped']} skipped"
        yield class_name, score


def list_properties(report: ET.Element, name: str) -> list[str]:
    properties = [each for each in report.iter("property") if each.get("name") == name]
    return [each.get("value", "") for each in properties]


def find_outcome(case: ET.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    if case.find("skipped") is not None:
        return "skipped"
    return "passed"


def read_version(name: str) -> str:
    pins = (ROOT / "requirements" / "adapters" / f"{name}.txt").read_text(encoding="utf-8")
    package = FRAMEWORKS[name].package
    for line in pins.splitlines():
        if line.startswith(f"{package}=="):
            return line.partition("==")[2].partition(" ")[0]
    return "?"


def print_table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
