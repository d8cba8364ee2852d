"""A client for tests of `lamina run`: a program that speaks to the address in its environment, and retries.

    python scripted_client.py WHAT [NUMBER]

It writes what it got to the file in $REPORT, and ends with the status in $STATUS.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from http.client import HTTPException
from pathlib import Path
from urllib.request import Request, urlopen

from tests.gateway.growing import dump, messages_request

POINTING = ("BASE_URL", "API_BASE", "OPENCODE", "CLAUDE_CODE", "NO_PROXY")
GATEWAY = b"lamina.gateway.supervised"


def main() -> None:
    what = sys.argv[1]
    number = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    report = {"variables": _read_variables(), "arguments": sys.argv[1:]}
    if what == "sdks":
        report["answers"] = _ask_both_sdks()
    elif what == "ask":
        _ask_plainly()
    elif what == "grow":
        _grow(number, killed_at=int(os.environ.get("KILLED_AT", "-1")))
    elif what == "wait":
        _wait_for_signal()
    Path(os.environ["REPORT"]).write_text(json.dumps(report))
    sys.exit(int(os.environ.get("STATUS", "0")))


def _read_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if any(part in name for part in POINTING)}


def _ask_plainly(step: int = 0) -> None:
    """One request, without an SDK: that is quicker to start."""
    url = f"{os.environ['ANTHROPIC_BASE_URL']}/v1/messages"
    headers = {"content-type": "application/json", "x-api-key": "k"}
    request = Request(url, data=dump(messages_request(step)), headers=headers)  # noqa: S310
    with urlopen(request) as answer:  # noqa: S310 - an address of this test
        answer.read()


def _ask_both_sdks() -> list[str]:
    import anthropic  # noqa: PLC0415 - the other ways need no SDK
    import openai  # noqa: PLC0415 - the other ways need no SDK

    question = {"role": "user", "content": "Hello"}
    message = anthropic.Anthropic(api_key="k").messages.create(
        model="claude-sonnet-5",
        max_tokens=50,
        messages=[question],  # type: ignore[list-item]
    )
    completion = openai.OpenAI(api_key="k").chat.completions.create(
        model="gpt-5",
        messages=[question],
    )
    return [message.content[0].text, completion.choices[0].message.content or ""]  # type: ignore[union-attr]


def _grow(steps: int, *, killed_at: int) -> None:
    """A conversation that grows past the window. What is broken off is sent again, as SDKs do."""
    for step in range(steps):
        if step == killed_at:
            _wait_for_lines(step)
            _kill_gateways()
        _ask_until_answered(step)


def _ask_until_answered(step: int) -> None:
    for _ in range(1_500):
        try:
            _ask_plainly(step)
        except (OSError, HTTPException):
            time.sleep(0.02)
        else:
            return
    raise RuntimeError("no answer")


def _wait_for_lines(answers: int) -> None:
    """Wait until the log has a line for each answer. Before that, only the parent knows of the last one."""
    log = Path(os.environ["REPORT"]).parent / "g.db.requests.jsonl"
    for _ in range(1_500):
        if log.read_bytes().count(b'"event":"answered"') >= answers:
            return
        time.sleep(0.02)
    raise RuntimeError("the log lacks an answer")


def _kill_gateways() -> None:
    """Kill -9 the gateway that serves and the spare one."""
    for process in Path("/proc").iterdir():
        try:
            if GATEWAY not in (process / "cmdline").read_bytes():
                continue
            parent = int((process / "stat").read_text().rpartition(") ")[2].split(" ")[1])
        except OSError:
            continue
        if parent == os.getppid():
            os.kill(int(process.name), signal.SIGKILL)


def _wait_for_signal() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(33))
    Path(os.environ["REPORT"]).write_text(str(os.getpid()))
    time.sleep(60)


if __name__ == "__main__":
    main()
