"""A made-up session on disk, for the tests of the inspector: with tools, usage and times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lamina.cli.recording import make_recording
from lamina.inspector.sessions import Sessions
from lamina.inspector.views import Inspector

FIRST_TIME = 1_790_000_000


def write_session(
    folder: Path, *, seed: int = 7, turns: int = 6, extra: list[dict[str, Any]] | None = None
) -> Path:
    """A file with one session. Its second half comes a day later, and its usage is invented but plausible."""
    recording = make_recording(seed, turns=turns)
    messages = recording["messages"] + (extra or [])
    usage: list[dict[str, Any]] = []
    last_role = "assistant"
    for index, message in enumerate(messages):
        if message["role"] == "assistant" and last_role != "assistant":
            moment = FIRST_TIME + 20 * len(usage) + (86_400 if index > len(messages) // 2 else 0)
            usage.append({"index": index, "ts": moment, "input_tokens": 50, "output_tokens": 20})
        last_role = message["role"]
    unused = {
        "type": "function",
        "function": {"name": "send_fax", "description": "Sends a fax.", "parameters": {}},
    }
    row = {
        "id": f"session-{seed}",
        "format": "openai-chat",
        "model": "gpt-5",
        "messages": messages,
        "tools": [*recording["tools"], unused],
        "meta": {"usage": usage},
    }
    path = folder / f"session-{seed}.jsonl"
    path.write_text(json.dumps(row) + "\n", "utf-8")
    return path


def open_inspector(*paths: Path) -> Inspector:
    return Inspector(Sessions([str(path) for path in paths]))
