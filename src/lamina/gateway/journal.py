"""The log: one JSON object to a line, on standard error. It has ids, sizes, times and causes, no content.

JSON escapes control characters, so nothing that a client sends can begin a line of its own.
"""

from __future__ import annotations

import sys
from time import time
from typing import Any, TextIO

import msgspec


class Journal:
    """Writes events. Keys and tokens never get here: no caller has a header or a body at hand."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    def write(self, event: str, **facts: Any) -> None:
        line = msgspec.json.encode({"at": round(time(), 3), "event": event, **facts}).decode()
        stream = self._stream or sys.stderr
        try:
            stream.write(f"{line}\n")
            stream.flush()
        except (OSError, ValueError):  # nobody listens; requests go on
            return
