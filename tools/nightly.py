"""Runs everything that CI leaves out, one part after the other, and prints how each went.

    python -m tools.nightly [PART...]    (all of them unless told)

A part that fails does not stop the others. Its log is in build/nightly/, and the end of it is printed. A part
whose set-up is not possible here, such as a client that cannot be installed, is left out and says why. Fails
if a part failed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tools.clients.rows import TRIALS

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "nightly"
PRINTED_LINES = 40
"""Lines of a log that are printed if its part failed."""

MACHINE_TESTS = ("tests/stores/test_postgres_pooled.py",)
"""Tests that need PgBouncer, which CI does not install."""


class Part(NamedTuple):
    """A command, and the one that sets it up. If the set-up fails, the part is left out."""

    name: str
    command: Sequence[str]
    set_up: Sequence[str] = ()


class Outcome(NamedTuple):
    """How a part went: "ok", "failed" or "left out", and the last line that it printed."""

    name: str
    result: str
    seconds: float
    last_line: str


def list_parts() -> list[Part]:
    machine = ("sh", "tools/machine_tools.sh")
    tests = (sys.executable, "-m", "pytest", "-q", "-n", "2", *MACHINE_TESTS)
    parts = [
        Part("seeds", ("make", "seeds")),
        Part("machine", tests, set_up=machine),
        Part("adapters", ("make", "adapters")),
        Part("suites", ("make", "suites", "ARGS=--all")),
        Part("scale", ("make", "scale")),
        Part("conformance", ("make", "conformance")),
        Part("matrix", ("make", "matrix")),
        Part("torture-sqlite", ("make", "torture", "ARGS=sqlite:")),
        Part("torture-files", ("make", "torture", "ARGS=files:")),
        Part("torture-postgres", ("make", "torture", "ARGS=postgres:")),
        Part("torture-gateways", ("make", "torture", "ARGS=gateways:")),
        Part("newcomer", ("make", "newcomer")),
        Part("peers", ("make", "peers")),
        Part("models", ("make", "models", "ARGS=--dry-run")),
        Part("release", ("make", "release-check")),
    ]
    for name in TRIALS:
        install = ("sh", "tools/clients.sh", name)
        parts.append(Part(f"clients-{name}", ("make", "clients", f"NAMES={name}"), set_up=install))
    return parts


def main(names: Sequence[str], parts: Sequence[Part], *, logs: Path = LOGS) -> int:
    unknown = sorted(set(names) - {part.name for part in parts})
    if unknown:
        known = ", ".join(part.name for part in parts)
        print(f"no part is called {unknown[0]}; there are {known}", file=sys.stderr)
        return 2
    logs.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    for part in parts:
        if not names or part.name in names:
            outcomes.append(run_part(part, logs / f"{part.name}.log"))
            print(describe(outcomes[-1]), flush=True)
    print("\nAll parts:")
    for outcome in outcomes:
        print(describe(outcome))
    return int(any(outcome.result == "failed" for outcome in outcomes))


def run_part(part: Part, log: Path) -> Outcome:
    """Set a part up and run it. What both print goes into the log."""
    began = time.monotonic()
    result = "ok"
    with log.open("wb") as file:
        if part.set_up and run(part.set_up, file.fileno()):
            result = "left out"
        elif run(part.command, file.fileno()):
            result = "failed"
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if result == "failed":
        print("\n".join(lines[-PRINTED_LINES:]), flush=True)
    return Outcome(part.name, result, time.monotonic() - began, "".join(lines[-1:]))


def run(command: Sequence[str], output: int) -> int:
    try:
        return subprocess.run(command, cwd=ROOT, stdout=output, stderr=output, check=False).returncode
    except FileNotFoundError:
        return 127


def describe(outcome: Outcome) -> str:
    minutes = outcome.seconds / 60
    return f"{outcome.name:<18} {outcome.result:<9} {minutes:5.1f} min  {outcome.last_line[:100]}".rstrip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], list_parts()))
