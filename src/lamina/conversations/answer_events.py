"""The events of an answer as it arrives, each with its bytes.

They are server-sent events, lines of JSON as Ollama sends them, or the binary frames of Bedrock.

An event that the client gets unchanged is written in the bytes in which it came.
"""

from __future__ import annotations

import re
from typing import Any, Protocol

import msgspec

from lamina.dialects.bedrock_converse import event_stream

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


class Splitter(Protocol):
    """Cuts the bytes of an answer into events, and writes events."""

    def take(self, piece: bytes) -> list[AnswerEvent]:
        """Take more bytes, and return the events that are complete now."""
        ...

    def finish(self) -> list[AnswerEvent]:
        """What came after the last complete event."""
        ...

    def write(self, value: Any, name: bytes) -> bytes:
        """The bytes of an event with this value."""
        ...


def splitter_for(content_type: str) -> Splitter:
    """A splitter for a stream of this type, which is in small letters."""
    if content_type.startswith(event_stream.CONTENT_TYPE):
        return FrameSplitter()
    return EventSplitter(by_line=not content_type.startswith("text/event-stream"))


class FrameSplitter:
    """Cuts a stream of Bedrock into frames. An event is an object with one field, which says its type."""

    def __init__(self) -> None:
        self._reader = event_stream.FrameReader()

    def take(self, piece: bytes) -> list[AnswerEvent]:
        frames = self._reader.feed(piece)
        events = [
            AnswerEvent(source=frame.source, value=event_stream.decode_frame(frame)) for frame in frames
        ]
        if self._reader.is_broken:
            events += self.finish()  # bytes that are no frame are the client's to judge
        return events

    def finish(self) -> list[AnswerEvent]:
        rest = self._reader.rest
        self._reader.rest = b""
        if not rest:
            return []
        return [AnswerEvent(source=rest)]

    def write(self, value: Any, name: bytes) -> bytes:  # noqa: ARG002 - a frame has its name from the value
        [(event_type, payload)] = value.items()
        return event_stream.write_frame(event_type, msgspec.json.encode(payload))


class EventSplitter:
    """Cuts the bytes of an answer into events. `by_line`: an event is a line, as Ollama writes it."""

    def __init__(self, *, by_line: bool) -> None:
        self._by_line = by_line
        self._end = _EVENT_END
        if by_line:
            self._end = re.compile(rb"\n")
        self._rest = b""

    def take(self, piece: bytes) -> list[AnswerEvent]:
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
