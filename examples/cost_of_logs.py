"""Way in 3: what did my sessions cost, and what would they have cost? `lamina cost` on a recorded session.

    python examples/cost_of_logs.py           # a recorded session that is made up here
    python examples/cost_of_logs.py PATH...    # your own: ~/.claude/projects, ~/.codex/sessions …

Nothing leaves the machine and no model is asked.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from lamina.cli import main as run_lamina

CALLS = 40


def main(*paths: str) -> None:
    if paths:
        run_lamina(["cost", *paths])
        return
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "proxy.jsonl"
        log.write_text("".join(f"{json.dumps(record)}\n" for record in make_records()), encoding="utf-8")
        run_lamina(["cost", str(log), "--jobs", "1"])


def make_records() -> list[dict[str, Any]]:
    """One session as a proxy records it: every request with its answer and what the provider reported."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Find out why parcels are late."}]
    records = []
    for number in range(CALLS):
        request = {"model": "claude-sonnet-4-5", "max_tokens": 500, "messages": list(messages)}
        path = f"src/depot_{number}.py"
        call = {"type": "tool_use", "id": f"toolu_{number}", "name": "read_file", "input": {"path": path}}
        usage = {"input_tokens": 900, "output_tokens": 40, "cache_read_input_tokens": 800 * number}
        response = {"role": "assistant", "content": [call], "model": request["model"], "usage": usage}
        records.append({"request": request, "response": response})
        source = f"def route_{number}(parcel):\n    return parcel.depot_{number}\n" * 40
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": source}
        messages.append({"role": "assistant", "content": [call]})
        messages.append({"role": "user", "content": [result]})
    return records


if __name__ == "__main__":
    main(*sys.argv[1:])
