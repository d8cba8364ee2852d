"""Runs the code of each framework's section as it is written, with no more installed than the section says.

    python -m tools.adapter_pages [NAME...]    (all of them unless told)

For each section of docs/frameworks.md it makes an empty environment and types the section's install line,
with the wheel of this checkout in place of the published one. Packages that requirements/adapters/ pins have
these versions. Then it runs the blocks of the section, one after the other, in an empty folder. A server on
this machine plays the APIs of OpenAI and Gemini: its model reads one page of a manual with the tool that it
is offered, and then answers. Fails if a block raises, or if the model never got a tool's result.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from tests.wrapped.scripted_api import Call, Said, scripted_api
from tools.clients.upstream import list_tools
from tools.docs import ROOT, fences

PAGE = ROOT / "docs" / "frameworks.md"
PINS = ROOT / "requirements" / "adapters"
OWN = "lamina-context"
"""The package that this checkout is."""

WITHOUT_CALLS = frozenset(("claude-agent",))
"""Sections whose code calls no model."""

MANUAL = "press the key"
"""What the tool of every section returns."""

RUNNER = """
import ast, asyncio, sys
async def main():
    names = {"__name__": "__main__"}
    for path in sys.argv[1:]:
        code = compile(open(path).read(), path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        waiting = eval(code, names)
        if waiting is not None:
            await waiting
asyncio.run(main())
"""


class Outcome(NamedTuple):
    """How a section went: what was installed, how often the model was asked, and what went wrong."""

    install: str
    requests: int
    trouble: str


def main(names: list[str]) -> int:
    sections = read_sections()
    failed = False
    with tempfile.TemporaryDirectory(prefix="lamina-pages-") as folder:
        wheel = build_wheel(Path(folder))
        for name in names or sorted(sections):
            outcome = run_section(name, sections[name], wheel, Path(folder) / name)
            failed = failed or bool(outcome.trouble)
            print(
                f"{name}: {outcome.install}: {outcome.requests} requests, {outcome.trouble or 'ok'}",
                flush=True,
            )
    return int(failed)


def read_sections() -> dict[str, str]:
    """The sections of the page that install something, by the extra that they install."""
    headed = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    return {read_install(text).partition("[")[2].partition("]")[0]: text for text in headed}


def run_section(name: str, section: str, wheel: Path, folder: Path) -> Outcome:
    """Install what the section says, and run its blocks."""
    install = read_install(section)
    work = folder / "work"
    work.mkdir(parents=True)
    make_environment(name, install, wheel, folder)
    blocks = write_blocks(section, name, folder)
    (folder / "run.py").write_text(RUNNER, encoding="utf-8")
    with scripted_api(read_manual) as api:
        command = [str(folder / "venv/bin/python"), "-W", "ignore", str(folder / "run.py")]
        done = subprocess.run(
            [*command, *blocks],
            cwd=work,
            env=write_environment(api.url, folder),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        trouble = ""
        if done.returncode:
            trouble = done.stderr[-3000:]
        elif name not in WITHOUT_CALLS and MANUAL not in json.dumps(api.requests[-1:]):
            trouble = f"the model got no result of a tool in its {len(api.requests)} requests"
        return Outcome(install, len(api.requests), trouble)


def write_blocks(section: str, name: str, folder: Path) -> list[str]:
    """Write each block into a file of its own: some frameworks read the source of their tools."""
    lines = section.splitlines()
    paths: list[str] = []
    for fence in fences(lines, name):
        if fence.language == "python":
            path = folder / f"block_{len(paths)}.py"
            path.write_text("\n".join(lines[fence.start : fence.end]), encoding="utf-8")
            paths.append(str(path))
    return paths


def read_install(section: str) -> str:
    """What the first install line of a section installs."""
    line = re.search(r"`pip install ([^`]+)`", section)
    if line is None:
        raise SystemExit("a section has no install line")
    return line[1]


def make_environment(name: str, install: str, wheel: Path, folder: Path) -> None:
    """Make an environment with these packages, in the versions that the tests of the adapter pin."""
    pins = (PINS / f"{name}.txt").read_text(encoding="utf-8")
    constraints = folder / "constraints.txt"
    constraints.write_text("".join(f"{line}\n" for line in re.findall(r"(?m)^[a-z][^\\\n]*", pins)))
    uv = str(Path(sys.executable).parent / "uv")
    python = str(folder / "venv/bin/python")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(folder / "venv")], check=True)
    options = ["--quiet", "--no-build", "--python", python, "--constraint", str(constraints)]
    subprocess.run([uv, "pip", "install", *options, *list_packages(install, wheel)], check=True)


def list_packages(install: str, wheel: Path) -> list[str]:
    """What an install line installs, with the wheel of this checkout in place of the published one."""
    packages: list[str] = []
    for package in shlex.split(install):
        if package.startswith(f"{OWN}["):
            packages.append(f"{package} @ {wheel.as_uri()}")
        else:
            packages.append(package)
    return packages


def build_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def write_environment(url: str, folder: Path) -> dict[str, str]:
    """Return the variables with which the frameworks find the model, and look for nothing else."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder / "work"),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "OPENAI_API_KEY": "none",
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_BASE": f"{url}/v1",
        "GOOGLE_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": url,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "CREWAI_DISABLE_TELEMETRY": "true",
        "OTEL_SDK_DISABLED": "true",
        "HAYSTACK_TELEMETRY_ENABLED": "False",
        "INSPECT_DISPLAY": "none",
        "NO_PROXY": "127.0.0.1",
    }


def read_manual(request: dict[str, Any]) -> Said:
    """Play the model: read a page, and answer when its text is there. smolagents answers with a tool, too."""
    tools = list_tools(request)
    if MANUAL not in json.dumps(request):
        return [Call("read_page", {"number": 7}, "call_1")]
    if "final_answer" in tools:
        return [Call("final_answer", {"answer": "Press the key."}, "call_2")]
    return ["Press the key."]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
