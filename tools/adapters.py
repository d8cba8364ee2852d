"""Tests every adapter and every recipe of docs/frameworks.md in an environment of its framework.

    python -m tools.adapters [NAME...]    (all of them unless told)

`tools/environments.sh` makes the environment of an adapter from the pinned requirements in
requirements/adapters/. A recipe runs with the newest release of its framework, which is installed anew each
time. The long session of an adapter is a row: its requests, how many are over the room without lamina and
with it, its cuts, its largest request and its recalls. So is each way in which an agent talked to a strict
server. Fails if a test fails.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
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
    """One environment: the package whose version counts, and the modules that are tested in it.

    `newest` are the packages of a recipe, which are not pinned.
    """

    package: str
    modules: tuple[str, ...] = ("recipes",)
    newest: tuple[str, ...] = ()


FRAMEWORKS = {
    "langchain": Framework("langchain", ("langchain", "examples", "pages")),
    "pydantic-ai": Framework("pydantic-ai-slim", ("pydantic_ai", "examples", "pages")),
    "openai-agents": Framework("openai-agents", ("openai_agents", "examples", "pages")),
    "litellm": Framework("litellm", ("litellm", "examples", "pages")),
    "agent-framework": Framework("agent-framework-core", newest=("agent-framework-openai",)),
    "crewai": Framework("crewai", newest=("crewai",)),
    "google-adk": Framework("google-adk", newest=("google-adk",)),
    "haystack": Framework("haystack-ai", newest=("haystack-ai",)),
    "inspect-ai": Framework("inspect-ai", newest=("inspect-ai", "openai")),
    "llama-index": Framework("llama-index-core", newest=("llama-index-llms-openai",)),
    "smolagents": Framework("smolagents", newest=("smolagents[openai]",)),
    "strands": Framework("strands-agents", newest=("strands-agents[openai]",)),
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
    for name in names or list(FRAMEWORKS):
        print(f"{name} ...", file=sys.stderr)
        install(name)
        report = run_tests(name)
        counts = count_outcomes(report)
        failed = failed or counts.failed > 0 or counts.tests == 0
        version = read_version(name)
        rows.append((name, version, str(counts.tests), str(counts.failed), f"{counts.seconds:.0f}"))
        sessions += [(name, *session.split()) for session in list_properties(report, "session")]
        wires += [(name, *wire.rsplit(" ", 4)) for wire in list_properties(report, "wire")]
    print_table(rows)
    print_table(sessions)
    print_table(wires)
    return int(failed)


@dataclass(frozen=True)
class Counts:
    tests: int
    failed: int
    seconds: float


def install(name: str) -> None:
    """Make the environment of a framework: with the pins of its adapter, or for a recipe with the newest."""
    environment = ENVIRONMENTS / name
    newest = FRAMEWORKS[name].newest
    if not newest:
        script = ["sh", "tools/environments.sh", str(Path(sys.prefix)), "adapters", name]
        subprocess.run(script, cwd=ROOT, check=True)
        return
    uv = str(Path(sys.executable).parent / "uv")
    subprocess.run(
        [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(environment)], check=True
    )
    packages = ["-r", str(ROOT / "pyproject.toml"), "pytest", *newest]
    python = str(environment / "bin" / "python")
    subprocess.run([uv, "pip", "install", "--quiet", "--no-build", "--python", python, *packages], check=True)


def run_tests(name: str) -> ET.Element:
    """Run the tests of one framework in its environment, and return pytest's report."""
    tests = [str(TESTS / f"test_{module}.py") for module in FRAMEWORKS[name].modules]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [str(ENVIRONMENTS / name / "bin" / "python"), "-m", "pytest", "-q", "--noconftest"]
        command += ["-p", "no:cacheprovider", "-o", "filterwarnings=default", f"--junitxml={report}", *tests]
        if name == "langchain":
            command += ["-o", "asyncio_mode=auto"]
        environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": "/usr/bin:/bin", "HOME": folder}
        environment["LAMINA_LONG_SESSIONS"] = "1"
        environment["LAMINA_PYTHON"] = sys.executable  # it has what a gateway needs
        environment |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true"}
        environment |= {"OPENAI_AGENTS_DISABLE_TRACING": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
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
    program = f"from importlib.metadata import version; print(version({FRAMEWORKS[name].package!r}))"
    command = [str(ENVIRONMENTS / name / "bin" / "python"), "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def print_table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
