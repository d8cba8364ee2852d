"""Finds the interpreters of this machine, and gives each a small environment for the tests of `make matrix`.

    python -m tools.interpreters     makes or renews the environments under .matrix/ and says what was found

Looked for are the names on the PATH, those in the usual folders of a system, and the versions of pyenv. One
of each release is taken. Nothing is downloaded but pinned packages. An interpreter for which they cannot be
installed (one that is too new to have them, for example) is left out, and named with the reason.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".matrix"
PINS = ROOT / "requirements" / "matrix.txt"
OLDEST = (3, 11)
NEEDED = ("anyio", "msgspec", "splintr")
"""What lamina itself imports."""

USUAL_FOLDERS = ("/usr/local/bin", "/usr/bin", "/opt/homebrew/bin")

_ASK = """
import json, platform, sys
print(json.dumps([platform.python_implementation(), platform.python_version(), sys.version_info[:3]]))
"""
_NAME = re.compile(r"python3(?:\.[0-9]{1,2})?")


class Interpreter(NamedTuple):
    """A release of Python and where it is."""

    release: str
    path: Path


class Environment(NamedTuple):
    """An interpreter with the packages that lamina needs; `problem` says why it has none."""

    interpreter: Interpreter
    python: Path
    problem: str = ""


def interpreters() -> list[Interpreter]:
    """One interpreter of each release that lamina supports, oldest first."""
    found: dict[tuple[int, ...], Interpreter] = {}
    for path in candidates():
        told = asked(path)
        if told is not None:
            version, release = told
            found.setdefault(version, Interpreter(release, path))
    return [found[version] for version in sorted(found)]


def candidates() -> Iterator[Path]:
    """Every file that may be an interpreter; the same one may come under several names."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    folders = [*map(Path, USUAL_FOLDERS), *sorted(versions.glob("3.*/bin")), *map(Path, os.get_exec_path())]
    for folder in dict.fromkeys(folders):
        if folder.is_dir():
            yield from sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))


def asked(path: Path) -> tuple[tuple[int, ...], str] | None:
    """The version of an interpreter, and its name; None if it is none, or too old."""
    try:
        run = subprocess.run([path, "-c", _ASK], capture_output=True, text=True, check=True, timeout=60)
        kind, release, version = json.loads(run.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None  # a shim without a version behind it, or something else by this name
    if kind != "CPython" or tuple(version) < OLDEST:
        return None
    return tuple(version), release


def environments(found: Iterable[Interpreter]) -> Iterator[Environment]:
    """An environment for each interpreter, made or renewed where it is missing or out of date."""
    for interpreter in found:
        environment = environment_of(interpreter)
        if not is_ready(environment):
            print(f"Installing {PINS.name} for Python {interpreter.release}", flush=True)
            environment = installed(environment)
        yield environment


def usable() -> list[Environment]:
    """The environments in this checkout that have what lamina needs, one of each release; none is made."""
    found: dict[str, Environment] = {}
    for python in sorted((*FOLDER.glob("*/bin/python"), *ROOT.glob(".venv*/bin/python"))):
        told = asked(python) if can_import(python, *NEEDED) else None
        if told is not None:
            found.setdefault(told[1], Environment(Interpreter(told[1], python), python))
    return list(found.values())


def can_import(python: Path, *modules: str) -> bool:
    command = [str(python), "-c", f"import {', '.join(modules)}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def environment_of(interpreter: Interpreter) -> Environment:
    return Environment(interpreter, FOLDER / interpreter.release / "bin" / "python")


def is_ready(environment: Environment) -> bool:
    """Whether the packages that are pinned now were installed; a copy of the pins is kept beside them."""
    copy = environment.python.parent.parent / PINS.name
    return copy.is_file() and copy.read_bytes() == PINS.read_bytes() and asked(environment.python) is not None


def installed(environment: Environment) -> Environment:
    home = environment.python.parent.parent
    shutil.rmtree(home, ignore_errors=True)
    install = [installer(), "pip", "install", "--quiet", "--require-hashes", "--no-build"]
    steps = (
        [installer(), "venv", "--quiet", "--python", str(environment.interpreter.path), str(home)],
        [*install, "--python", str(environment.python), "-r", str(PINS)],
    )
    for step in steps:
        run = subprocess.run(step, env=offline_interpreters(), capture_output=True, text=True, check=False)
        if run.returncode:
            shutil.rmtree(home, ignore_errors=True)
            return environment._replace(problem=first_words(run.stderr))
    shutil.copy(PINS, home / PINS.name)
    return environment


def installer() -> str:
    """uv: beside this interpreter, or on the PATH."""
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else "uv"


def offline_interpreters() -> dict[str, str]:
    return {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}


def first_words(problem: str) -> str:
    return " ".join(problem.split())[:300]


def surroundings() -> dict[str, str]:
    """The environment variables with which an interpreter finds this checkout."""
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}


def main() -> int:
    for environment in environments(interpreters()):
        state = (
            f"left out: {environment.problem}" if environment.problem else str(environment.interpreter.path)
        )
        print(f"Python {environment.interpreter.release:<8} {state}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
