"""The events of an answer as it arrives, each with its bytes: server-sent events, or one JSON value a line.

An event that the client gets unchanged is written in the bytes in which it came.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_LONGEST_END = 4

DONE = b"[DONE]"
"""The data of the last event in a stream of OpenAI's Chat Completions."""


class AnswerEvent(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One event. `value` is its decoded data, None if that is not JSON: a comment, or the end of a stream."""

    source: bytes
    value: Any = None
    name: bytes = b""
    is_end: bool = False


class EventSplitter:
    """Cuts the bytes of an answer into events. `by_line`: an event is a line, as Ollama writes it."""

    def __init__(self, *, by_line: bool) -> None:
        self._by_line = by_line
        self._end = _EVENT_END
        if by_line:
            self._end = re.compile(rb"\n")
        self._rest = b""

    def take(self, piece: bytes) -> list[AnswerEvent]:
        """Take more bytes, and return the events that are complete now."""
        searched = max(len(self._rest) - _LONGEST_END, 0)
        text = self._rest + piece
        events: list[AnswerEvent] = []
        start = 0
        match = self._end.search(text, searched)
        while match is not None:
            events.append(self._read(text[start : match.end()]))
            start = match.end()
            match = self._end.search(text, start)
        self._rest = text[start:]
        return events

    def finish(self) -> list[AnswerEvent]:
        """What came after the last complete event."""
        rest = self._rest
        self._rest = b""
        if not rest:
            return []
        return [self._read(rest)]

    def _read(self, source: bytes) -> AnswerEvent:
        if self._by_line:
            return AnswerEvent(source=source, value=_decode(source))
        name = b""
        data: list[bytes] = []
        for line in _LINE_END.split(source):
            field, _, text = line.partition(b":")
            text = text.removeprefix(b" ")
            if field == b"event":
                name = text
            elif field == b"data":
                data.append(text)
        content = b"\n".join(data)
        return AnswerEvent(source=source, value=_decode(content), name=name, is_end=content == DONE)

    def write(self, value: Any, name: bytes) -> bytes:
        data = msgspec.json.encode(value)
        if self._by_line:
            return data + b"\n"
        if name:
            return b"event: " + name + b"\ndata: " + data + b"\n\n"
        return b"data: " + data + b"\n\n"


def _decode(text: bytes) -> Any:
    """A JSON object, or None."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        return value
    return None
