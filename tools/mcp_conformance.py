"""Runs the conformance suite of the Model Context Protocol on `lamina mcp`, and prints passed/total.

    python -m tools.mcp_conformance             the scenarios that apply
    python -m tools.mcp_conformance --all       all of them; most need tools that only a sample server has

The suite is the npm package `@modelcontextprotocol/conformance`. It needs Node 22. Both are installed into
build/mcp-conformance, unless $LAMINA_MCP_CONFORMANCE names a folder that has them in its node_modules.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from lamina.sessions import Session
from lamina.stores import open_store

ROOT = Path(__file__).resolve().parent.parent
FOLDER_VARIABLE = "LAMINA_MCP_CONFORMANCE"
PACKAGES = ("node@22", "@modelcontextprotocol/conformance@0.1.16")

APPLICABLE = (
    "server-initialize",
    "ping",
    "tools-list",
    "server-sse-polling",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
)
"""Scenarios for a server with tools. The others need prompts, resources, logging, or tools named `test_…`."""


def main(arguments: list[str]) -> int:
    folder = find_suite()
    if folder is None:
        print("skipped: npm is not installed")
        return 0
    scenarios = list(APPLICABLE)
    if "--all" in arguments:
        scenarios = list_scenarios(folder)
    passed = 0
    with tempfile.TemporaryDirectory() as place, serving(Path(place) / "kept.db") as url:
        for scenario in scenarios:
            outcome = run_scenario(folder, url, scenario)
            passed += outcome
            print(f"{'passed' if outcome else 'failed'}  {scenario}", flush=True)
    print(f"{passed}/{len(scenarios)} scenarios passed")
    return int(passed < len(scenarios) and "--all" not in arguments)


def find_suite() -> Path | None:
    """The folder with the suite. It is installed if it is not there; None without npm."""
    folder = Path(os.environ.get(FOLDER_VARIABLE) or ROOT / "build" / "mcp-conformance")
    if (folder / "node_modules" / ".bin" / "conformance").exists():
        return folder
    npm = shutil.which("npm")
    if npm is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [npm, "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(folder), *PACKAGES],
        check=True,
    )
    return folder


def list_scenarios(folder: Path) -> list[str]:
    return re.findall(r"^  - (\S+)", run_suite(folder, "list", "--server").stdout, re.MULTILINE)


def run_scenario(folder: Path, url: str, scenario: str) -> bool:
    """Whether every check of a scenario passed."""
    done = run_suite(folder, "server", "--url", url, "--scenario", scenario)
    return done.returncode == 0


def run_suite(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    modules = folder / "node_modules"
    path = f"{modules / 'node' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as results:  # the suite writes its results where it is started
        return subprocess.run(
            [str(modules / ".bin" / "conformance"), *arguments],
            env={**os.environ, "PATH": path},
            cwd=results,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )


@contextmanager
def serving(store: Path) -> Iterator[str]:
    """The URL of `lamina mcp` over a store with one short session."""
    anyio.run(fill, str(store))
    command = [sys.executable, "-m", "lamina", "mcp", "--http", "--store", str(store)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None  # noqa: S101 - for the type checker
    try:
        line = process.stderr.readline()
        address = re.search(r"http://\S+", line)
        if address is None:
            raise RuntimeError(f"the server did not start: {line}")
        yield address[0]
    finally:
        process.terminate()
        process.wait(30)
        process.stderr.close()


async def fill(address: str) -> None:
    async with open_store(address) as store, Session.open(store, "chat") as session:
        await session.ask("How many retries?")
        await session.record("Three.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
