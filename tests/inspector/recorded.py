"""Made-up sessions on disk, for the tests of the inspector: with tools, usage and times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lamina.cli.recording import make_recording
from lamina.inspector import Inspector, Sessions

FIRST_TIME = 1_790_000_000
DAY = 86_400

Message = dict[str, Any]


def write_session(
    folder: Path, *, seed: int = 7, turns: int = 6, extra: list[Message] | None = None, name: str = ""
) -> Path:
    """A file with one session. Its second half comes a day later, and its usage is invented but plausible."""
    recording = make_recording(seed, turns=turns)
    messages = recording["messages"] + (extra or [])
    unused = {
        "type": "function",
        "function": {"name": "send_fax", "description": "Sends a fax.", "parameters": {}},
    }
    row = {
        "id": name or f"session-{seed}",
        "format": "openai-chat",
        "model": "gpt-5",
        "messages": messages,
        "tools": [*recording["tools"], unused],
        "meta": {"usage": invent_usage(messages)},
    }
    path = folder / f"session-{seed}.jsonl"
    path.write_text(json.dumps(row) + "\n", "utf-8")
    return path


def invent_usage(messages: list[Message]) -> list[dict[str, Any]]:
    """Usage as a provider would report it: each call reads what the last one sent, but not after a day."""
    usage: list[dict[str, Any]] = []
    size = 0
    sent_before = 0
    last_role = "assistant"
    for index, message in enumerate(messages):
        if message["role"] == "assistant" and last_role != "assistant":
            is_next_day = index > len(messages) // 2
            moment = FIRST_TIME + 20 * len(usage) + DAY * is_next_day
            is_cold = bool(usage) and moment - usage[-1]["ts"] > DAY / 2
            cached = 0 if is_cold else sent_before
            tokens = {"input_tokens": size, "cached_input_tokens": cached, "output_tokens": 20}
            usage.append({"index": index, "ts": moment, **tokens})
            sent_before = size
        size += len(json.dumps(message)) // 4
        last_role = message["role"]
    return usage


def make_reading_turns(count: int) -> list[Message]:
    """Turns that read one large file each, about 7,000 tokens."""
    messages: list[Message] = []
    for turn in range(count):
        arguments = json.dumps({"path": f"src/part_{turn}.py"})
        function = {"name": "read_file", "arguments": arguments}
        call = {"id": f"r{turn}", "type": "function", "function": function}
        lines = [f"def step_{turn}_{line}(value):  # adds {line * 7}" for line in range(400)]
        messages += [
            {"role": "user", "content": f"Read part {turn} and say what it does."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"r{turn}", "content": "\n".join(lines)},
            {"role": "assistant", "content": f"Part {turn} has 400 steps."},
        ]
    return messages


def write_agent_log(folder: Path) -> Path:
    """A session of Claude Code with a sub-agent, as that client writes it: no system text and no tools."""
    lines: list[dict[str, Any]] = []

    def add(
        kind: str, content: Any, second: int, agent: str = "", usage: dict[str, int] | None = None
    ) -> None:
        number = len(lines)
        message: dict[str, Any] = {"role": kind, "content": content}
        if usage:
            message |= {"id": f"msg_{number}", "model": "claude-sonnet-4-5", "usage": usage}
        line: dict[str, Any] = {
            "type": kind,
            "uuid": f"u{number}",
            "sessionId": "session-a",
            "message": message,
            "timestamp": f"2026-09-21T14:{second // 60:02}:{second % 60:02}.000Z",
        }
        if agent:
            line |= {"isSidechain": True, "agentId": agent}
        lines.append(line)

    def usage(read: int, written: int) -> dict[str, int]:
        return {
            "input_tokens": 4,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written,
            "output_tokens": 40,
        }

    add("user", "Find out why the tests fail.", 0)
    add("assistant", [{"type": "text", "text": "I ask a colleague."}], 5, usage=usage(0, 18_000))
    add("user", "Look into the log of the tests.", 8, agent="agent-1")
    add(
        "assistant",
        [{"type": "text", "text": "A file is missing."}],
        11,
        agent="agent-1",
        usage=usage(0, 9_000),
    )
    add("user", "And now?", 30)
    add(
        "assistant", [{"type": "text", "text": "A file is missing: restore it."}], 40, usage=usage(18_000, 90)
    )
    path = folder / "agent.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def open_inspector(*paths: Path) -> Inspector:
    return Inspector(Sessions([str(path) for path in paths]))
