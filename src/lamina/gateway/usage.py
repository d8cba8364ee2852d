"""What an answer reports: tokens read, cached, written. Read beside the stream, which passes unchanged.

The reader sees every piece of an answer, unpacks it for itself and looks only at events that speak of usage.
It stops at `LONGEST` bytes: an answer that long is passed on all the same.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lamina.dialects.anthropic.server import read_cleared
from lamina.dialects.usage import Usage, find_usage
from lamina.gateway.encodings import UNPACK_ERRORS, make_unpacker

LONGEST = 16 << 20
"""Bytes of a whole answer, or of one event, that are held to be read."""

_SIGNS = (b'"usage', b'"prompt_eval_count"', b'"context_management"')
"""What a line has that says something about usage, in any API."""


class UsageReader:
    """Collects the usage of one answer. `usage` is what was reported so far."""

    def __init__(self, content_type: str, encoding: str) -> None:
        self._unpacker = make_unpacker(encoding)
        self.is_stream = content_type.startswith(("text/event-stream", "application/x-ndjson"))
        self._parts: list[bytes] = []
        self._size = 0
        self.usage = Usage()

    def feed(self, piece: bytes) -> None:
        """Read one piece of the answer. A piece that cannot be unpacked ends the reading, not the stream."""
        if self._unpacker is None:
            return
        try:
            text = self._unpacker(piece)
        except UNPACK_ERRORS:
            self._unpacker = None
            return
        if self.is_stream:
            self._read_lines(text)
        else:
            self._hold(text)

    def finish(self) -> Usage:
        """The usage, once the whole answer has been read. It may be asked for again."""
        rest = self._take_parts()
        if self.is_stream:
            self._read_line(rest)
        elif rest:
            self._read_json(rest)
        return self.usage

    def _hold(self, text: bytes) -> None:
        """Hold a part of a line, or of the whole answer. What is too long is forgotten."""
        self._size += len(text)
        self._parts.append(text)
        if self._size > LONGEST:
            self._parts.clear()

    def _take_parts(self) -> bytes:
        text = b"".join(self._parts)
        if self._size > LONGEST:
            text = b""
        self._parts = []
        self._size = 0
        return text

    def _read_lines(self, text: bytes) -> None:
        first, newline, rest = text.partition(b"\n")
        self._hold(first)
        if not newline:
            return
        self._read_line(self._take_parts())
        *lines, last = rest.split(b"\n")
        for line in lines:
            self._read_line(line)
        self._hold(last)

    def _read_line(self, line: bytes) -> None:
        if not any(sign in line for sign in _SIGNS):
            return
        self._read_json(line.removeprefix(b"data:").strip(b" \t\r"))

    def _read_json(self, text: bytes) -> None:
        try:
            event = msgspec.json.decode(text)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return
        if isinstance(event, list):  # Gemini without alt=sse sends one list
            for item in event:
                self._read_event(item)
            return
        self._read_event(event)

    def _read_event(self, event: Any) -> None:
        """Take the usage of an event. Anthropic begins it in `message`, OpenAI ends it in `response`."""
        if not isinstance(event, dict):
            return
        for holder in (event, event.get("message"), event.get("response")):
            if isinstance(holder, dict):
                self._merge(find_usage(holder), holder)

    def _merge(self, usage: Usage, holder: dict[str, Any]) -> None:
        """A later report wins where it says more: the last event of a stream may repeat only the output."""
        last = self.usage
        cleared = read_cleared(holder)
        self.usage = Usage(
            input=max(usage.input, last.input),
            cached=max(usage.cached, last.cached),
            written=max(usage.written, last.written),
            written_long=max(usage.written_long, last.written_long),
            output=max(usage.output, last.output),
            cleared=cleared if cleared.tokens or cleared.tool_uses else last.cleared,
        )
