"""Logs of any size as a proxy writes them: one line for each call, with the whole request and its answer.

A request sends again what the one before it sent, so a session of 300 kB makes some 20 MB of log. Every
eighth session is one line with all its messages instead, as an application keeps it. The same seed gives the
same bytes. Memory holds one session, whatever the size of the logs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from bench.samples import BEGUN, MODELS, recorded_session, reported_usage

FILE_SIZE = 64 << 20
"""Bytes after which the next file begins, at the end of a session."""

WHOLE_SESSIONS = 8
"""Of so many sessions, one is a single line."""

FORM = "openai-chat"


class GeneratedLogs(NamedTuple):
    """What was written."""

    files: list[Path]
    sessions: int
    size: int


def write_logs(
    folder: Path, size: int, *, seed: int = 0, turns: int = 20, file_size: int = FILE_SIZE
) -> GeneratedLogs:
    """Files of about `file_size` bytes in this folder, at least `size` bytes together.

    Sessions have from one turn to `turns`, so that some workers have more to do than others.
    """
    folder.mkdir(parents=True)
    files: list[Path] = []
    sessions = 0
    written = 0
    while written < size:
        path = folder / f"{len(files):05}.jsonl"
        files.append(path)
        with path.open("wb") as file:
            while file.tell() < file_size and written + file.tell() < size:
                for line in _session_lines(seed + sessions, turns=1 + (7 * sessions) % turns):
                    file.write(line)
                sessions += 1
            written += file.tell()
    return GeneratedLogs(files, sessions, written)


def _session_lines(seed: int, *, turns: int) -> Iterator[bytes]:
    session = recorded_session(seed, FORM, turns=turns)
    if seed % WHOLE_SESSIONS == 0:
        yield _encode(session) + b"\n"
        return
    messages = session["messages"]
    encoded = [_encode(message) for message in messages]
    for usage in reported_usage(messages):
        yield _call_line(f"{seed}-{usage['index']}", encoded, usage)


def _call_line(name: str, encoded: list[bytes], usage: dict[str, Any]) -> bytes:
    """One call. Its messages are joined as bytes: encoding them anew would take far longer than writing."""
    index = usage["index"]
    moment = BEGUN + timedelta(seconds=20 * index)
    opening = {"timestamp": moment.isoformat(), "session": name}
    reported = {
        "prompt_tokens": usage["input_tokens"] + usage["cache_read"],
        "completion_tokens": usage["output_tokens"],
        "prompt_tokens_details": {"cached_tokens": usage["cache_read"]},
    }
    return b"".join(
        (
            _encode(opening)[:-1],
            b', "request": {"model": ',
            _encode(MODELS[FORM]),
            b', "messages": [',
            b", ".join(encoded[:index]),
            b']}, "response": {"id": ',
            _encode(f"resp-{name}"),
            b', "choices": [{"message": ',
            encoded[index],
            b'}], "usage": ',
            _encode(reported),
            b"}}\n",
        )
    )


def _encode(value: Any) -> bytes:
    return json.dumps(value).encode()
