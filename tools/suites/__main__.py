"""Runs the tests of SDKs and frameworks without lamina and with it, and compares.

    python -m tools.suites [NAME...] [--all]    (all of them unless told)

Every client that a test of an SDK makes is wrapped, and every agent that a test of a framework makes has the
adapter. The tests come from the source distribution of each, in the version that requirements/suites.txt
pins. They are unpacked under build/suites/. By default the folders run that call an endpoint that lamina
wraps; with --all, everything else in them runs as well. Each test has to end with lamina as it ends without,
except those that exceptions.toml names, each with its reason. Tests that need an HTTP API talk to a scripted
one on the loopback address. Its bodies are compared, too: how many requests were sent, and how many of them
nobody sends without lamina. Fails at a difference that has no reason.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

from tests.wrapped.scripted_api import scripted_api
from tools.adapters import find_outcome, print_table

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = Path(__file__).resolve().parent
BUILD = ROOT / "build" / "suites"
PINS = ROOT / "requirements" / "suites.txt"


COLUMNS = (
    "suite",
    "version",
    "tests",
    "passed bare",
    "passed with lamina",
    "explained",
    "requests bare",
    "with lamina",
    "changed",
)


class Suite(NamedTuple):
    """The tests of one SDK, whose `clients` are wrapped, or of one framework, which gets its `adapter`.

    `tests` are those that run, `more_tests` those of --all. `api_tests` need an API at TEST_API_BASE_URL.
    """

    clients: tuple[str, ...] = ()
    adapter: str = ""
    tests: tuple[str, ...] = ()
    api_tests: tuple[str, ...] = ()
    more_tests: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


SUITES = {
    "openai": Suite(
        clients=("openai:OpenAI", "openai:AsyncOpenAI"),
        tests=("tests/lib/chat", "tests/lib/responses/test_responses.py", "tests/test_client.py"),
        api_tests=("tests/api_resources/chat/test_completions.py", "tests/api_resources/test_responses.py"),
        more_tests=("tests/lib",),
    ),
    "anthropic": Suite(
        clients=("anthropic:Anthropic", "anthropic:AsyncAnthropic"),
        tests=("tests/lib/streaming", "tests/lib/_parse", "tests/lib/test_client_copy.py"),
        api_tests=("tests/api_resources/test_messages.py", "tests/api_resources/beta/test_messages.py"),
        more_tests=("tests/lib", "tests/test_client.py"),
    ),
    "google-genai": Suite(
        clients=("google.genai:Client",),
        tests=("google/genai/tests/chats", "google/genai/tests/afc"),
        more_tests=("google/genai/tests/transformers", "google/genai/tests/models"),
        options=("--import-mode=importlib", "-o", "consider_namespace_packages=true"),
    ),
    "ollama": Suite(clients=("ollama:Client", "ollama:AsyncClient"), tests=("tests",)),
    "boto3": Suite(),
    "langchain": Suite(adapter="langchain", tests=("tests/unit_tests/agents",)),
    "openai-agents": Suite(
        adapter="openai-agents",
        tests=("tests/memory", "tests/deferred_session_writes", "tests/test_hitl_session_scenario.py"),
        more_tests=(
            "tests/test_agent_runner.py",
            "tests/test_agent_runner_streamed.py",
            "tests/test_soft_cancel.py",
        ),
    ),
}


class Outcomes(NamedTuple):
    """How each test ended, by its name, and the bodies that a scripted API got."""

    tests: dict[str, str]
    bodies: Counter[str]

    def count_passed(self) -> int:
        return list(self.tests.values()).count("passed")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.suites", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(SUITES)}")
    parser.add_argument("--all", action="store_true", help="run the slow rest of the suites as well")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in SUITES]
    if unknown:
        parser.error(f"no suite is called {unknown[0]}")
    reasons = tomllib.loads((HERE / "exceptions.toml").read_text("utf-8"))
    rows: list[tuple[str, ...]] = [COLUMNS]
    explained: Counter[tuple[str, str]] = Counter()
    unexplained: list[str] = []
    for name in options.names or SUITES:
        print(f"{name} ...", file=sys.stderr, flush=True)
        version = read_version(name)
        folder = unpack_sdist(name, version)
        suite = SUITES[name]
        if not has_tests(folder):
            rows.append((name, version, "the source distribution has no tests", "", "", "", "", "", ""))
            continue
        bare = run_suite(folder, suite, {}, everything=options.all)
        wrapped = run_suite(folder, suite, ask_for_lamina(suite), everything=options.all)
        differences = [test for test, end in bare.tests.items() if wrapped.tests.get(test) != end]
        causes = {test: find_reason(test, reasons.get(name, {})) for test in differences}
        explained.update((name, cause) for cause in causes.values() if cause)
        unexplained += [f"{name}: {test}" for test, cause in causes.items() if not cause]
        changed = (wrapped.bodies - bare.bodies).total()
        if changed:
            unexplained.append(f"{name}: {changed} requests were changed")
        passed = (bare.count_passed(), wrapped.count_passed(), sum(map(bool, causes.values())))
        sent = (bare.bodies.total(), wrapped.bodies.total(), changed)
        rows.append((name, version, *map(str, (len(bare.tests), *passed, *sent))))
    print_table(rows)
    reasons_found = [(name, str(count), reason) for (name, reason), count in explained.items()]
    print_table([("suite", "tests", "why they end otherwise with lamina"), *reasons_found])
    for line in unexplained:
        print(f"unexplained: {line}")
    return int(bool(unexplained))


def ask_for_lamina(suite: Suite) -> dict[str, str]:
    """The variables that the two plugins read."""
    return {"LAMINA_WRAPPED": ",".join(suite.clients), "LAMINA_ADAPTED": suite.adapter}


def read_version(name: str) -> str:
    for line in PINS.read_text("utf-8").splitlines():
        if line.startswith(f"{name}=="):
            return line.partition("==")[2].partition(" ")[0]
    raise SystemExit(f"{name} is not pinned in {PINS.relative_to(ROOT)}; run make lock")


def unpack_sdist(name: str, version: str) -> Path:
    """The folder of a source distribution. It is fetched unless it is there."""
    folder = BUILD / f"{name.replace('-', '_')}-{version}"
    if not folder.exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ]
        subprocess.run(
            [*command, "--no-binary", name, "--dest", str(BUILD), f"{name}=={version}"], check=True
        )
        with tarfile.open(folder.with_name(f"{folder.name}.tar.gz")) as archive:
            archive.extractall(BUILD, filter="data")
    return folder


def has_tests(folder: Path) -> bool:
    return any(folder.rglob("test_*.py"))


def run_suite(folder: Path, suite: Suite, variables: Mapping[str, str], *, everything: bool) -> Outcomes:
    """Run the tests of a suite with these variables for the plugins."""
    tests = suite.tests
    if everything:
        tests = (*tests, *suite.more_tests)
    outcomes = run_pytest(folder, [*suite.options, *tests], variables)
    if not suite.api_tests:
        return Outcomes(outcomes, Counter())
    with scripted_api(lambda _: ["Hello."]) as api:
        environment = {**variables, "TEST_API_BASE_URL": api.url}
        chosen = [*suite.options, "-k", "create", *suite.api_tests]
        outcomes |= run_pytest(folder, chosen, environment)
        bodies = Counter(json.dumps(body, sort_keys=True) for body in api.requests)
    return Outcomes(outcomes, bodies)


def run_pytest(folder: Path, arguments: Sequence[str], variables: Mapping[str, str]) -> dict[str, str]:
    """How each test ended: passed, failed or skipped."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-p", "wrapped_clients", "-p", "adapted_agents"]
        command += [f"--junitxml={report}", "-o", "filterwarnings=default", *arguments]
        environment = {"PATH": os.environ["PATH"], "HOME": scratch, "PYTHONPATH": str(HERE), **variables}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if not report.exists():
            raise SystemExit(f"pytest did not run in {folder}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        cases = ET.parse(report).getroot().iter("testcase")  # noqa: S314 - pytest wrote it just now
        return {f"{case.get('classname')}::{case.get('name')}": find_outcome(case) for case in cases}


def find_reason(test: str, reasons: Mapping[str, str]) -> str:
    """Why this test may end otherwise, "" if nothing says so."""
    for pattern, reason in reasons.items():
        if fnmatch(test, pattern):
            return reason
    return ""


if __name__ == "__main__":
    sys.exit(main())
