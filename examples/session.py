"""A chat that survives its program: the second run goes on where the first one stopped.

    python examples/session.py             # two runs, with a store in a temporary folder
    python examples/session.py chats.db    # one run, with a store of your own: run it twice

No model is asked here; `answered` stands where the call of an SDK would.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from lamina.blocking import Session
from lamina.segments import note

SPEC = "# Limits\n\nAt most 20 requests a minute.\n\n# Retries\n\nThree, with a growing pause.\n"


def main(path: str) -> None:
    with Session.open(path, "example", model="gpt-5", persona="You review code.") as session:
        session.ask(f"Question {session.turns + 1}", attach=[note("docs/spec.md", SPEC * 20)])
        session.record(answered(session.request()))
        for said in session.dialogue():
            print(f"{said.role}: {said.text}")
        report = session.report()
        print(f"{report.metrics.referenced:.0%} of the segments are references; {len(session.log)} are kept")


def answered(request: dict[str, Any]) -> dict[str, Any]:
    """What a model would have said to the request."""
    message = {"role": "assistant", "content": f"I read {len(request['messages'])} messages."}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


def run_twice() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for run in (1, 2):
            print(f"--- run {run}")
            main(str(Path(folder) / "chats.db"))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        run_twice()
