"""Runs commands for the tests: in this process, or as a shell would."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from lamina.cli import main

BRIEF = {"role": "system", "content": "Be brief."}
HELLO = {"role": "user", "content": "Hello"}
SHORT: dict[str, Any] = {"model": "gpt-5", "messages": [BRIEF, HELLO]}
LONGER: dict[str, Any] = {
    "model": "gpt-5",
    "messages": [BRIEF, HELLO, {"role": "assistant", "content": "Hi."}, {"role": "user", "content": "News?"}],
}


class Ran(NamedTuple):
    code: int
    out: str
    err: str


def run(*arguments: str | Path, given: bytes = b"") -> Ran:
    """A command in this process, with `given` on its standard input."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(given), "utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(each) for each in arguments])
    finally:
        sys.stdin = before
    return Ran(code, _written(out), _written(err))


def shell(command: str, folder: Path) -> Ran:
    """A line of shell in which `lamina` is the command."""
    line = f'lamina() {{ "{sys.executable}" -m lamina "$@"; }}; {command}'
    done = subprocess.run(
        ["bash", "-c", line],  # noqa: S607 - what a user types
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=make_interruptible,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def make_interruptible() -> None:
    """Whoever runs the tests in the background has told them to ignore Ctrl-C, and a shell passes that on."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def saved(folder: Path, request: Any, name: str = "request.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(request), encoding="utf-8")
    return path


def read(step: int, text: str) -> list[dict[str, Any]]:
    """A call of a tool, and its result."""
    function = {"name": "read_file", "arguments": f'{{"path": "src/part_{step}.py"}}'}
    asked = {"id": f"call_{step}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [asked]},
        {"role": "tool", "tool_call_id": f"call_{step}", "content": text},
    ]


def long_session(steps: int) -> dict[str, Any]:
    read_so_far = [
        message for step in range(steps) for message in read(step, f"value_{step} = {step}\n" * 100)
    ]
    return {"model": "gpt-5", "max_completion_tokens": 500, "messages": [BRIEF, HELLO, *read_so_far]}


def _written(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()
