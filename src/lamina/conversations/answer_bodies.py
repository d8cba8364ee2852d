"""The body of an answer: as the events that arrive, and read again from its bytes later.

Events are server-sent ones, lines of JSON as Ollama sends them, or the binary frames of Bedrock. An event
that the client gets unchanged is written in the bytes in which it came. A body that was kept is read as JSON
values, as segments, or as text for people.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from lamina.conversations.encodings import unpack_recorded
from lamina.conversations.record import Answered
from lamina.dialects import DIALECTS
from lamina.dialects.bedrock_converse import event_stream
from lamina.dialects.bedrock_converse.event_stream import read_events
from lamina.dialects.port import Absorbed
from lamina.errors import BadInput

_SSE_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")


def unpack_answer(body: bytes, encoding: str) -> bytes | None:
    """The answer as it was before it was packed; None if it cannot be unpacked here."""
    try:
        return unpack_recorded(body, encoding)
    except BadInput:
        return None


def read_values(body: bytes) -> list[Any]:
    """The JSON values of an answer: itself, or the events of its stream. What is not JSON is left out."""
    value = _decode(body)
    if value is not None:
        return [value]
    if body.startswith(b"\x00"):  # the length of a frame: no JSON, and no line of an event stream
        return list(read_events(body))
    splitter = EventSplitter(by_line=not body.lstrip(b" \t\r\n").startswith(_SSE_STARTS))
    events = [*splitter.take(body), *splitter.finish()]
    return [event.value for event in events if event.value is not None]


_STREAM_TYPES = ("event-stream", "ndjson", "eventstream")
"""Words in the content types of streams: server-sent events, Ollama's lines, and Amazon's frames."""


def is_stream(body: bytes, content_type: str) -> bool:
    """Whether an answer came as a stream of events."""
    if any(word in content_type for word in _STREAM_TYPES):
        return True
    return body.lstrip(b" \t\r\n").startswith((b"data:", b"event:"))


def read_answer(body: bytes, answer: Answered, dialect: str) -> Absorbed:
    """What a model said, as segments. Raises BadInput if these bytes are no answer of this dialect."""
    if dialect not in DIALECTS:
        hint = "a newer release wrote the record"
        raise BadInput(f"there is no dialect {dialect!r}", place="record", hint=hint)
    plain = unpack_recorded(body, answer.encoding)
    values = read_values(plain)
    if not values:
        raise BadInput("it is not JSON", place="answer", hint="its text is shown as it came")
    if is_stream(plain, answer.content_type):
        return DIALECTS[dialect].answers.absorb_stream(values)
    if isinstance(values[0], list):  # Gemini without alt=sse sends its stream as one list
        return DIALECTS[dialect].answers.absorb_stream(values[0])
    return DIALECTS[dialect].answers.absorb(values[0])


def read_answer_text(body: bytes, answer: Answered) -> str:
    """The bytes of an answer as text, for people: errors of a provider, and what no dialect can read."""
    return unpack_recorded(body, answer.encoding).decode("utf-8", "replace")


def _decode(text: bytes) -> Any:
    if not text.lstrip(b" \t\r\n").startswith((b"{", b"[")):
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


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


def splitter_for(content_type: str) -> FrameSplitter | EventSplitter:
    """A splitter for a stream of this type, which is in small letters."""
    if content_type.startswith(event_stream.CONTENT_TYPE):
        return FrameSplitter()
    return EventSplitter(by_line=not content_type.startswith("text/event-stream"))


class FrameSplitter:
    """Cuts a stream of Bedrock into frames. An event is an object with one field, which says its type."""

    def __init__(self) -> None:
        self._reader = event_stream.FrameReader()

    def take(self, piece: bytes) -> list[AnswerEvent]:
        """Take more bytes, and return the events that are complete now."""
        frames = self._reader.feed(piece)
        events = [
            AnswerEvent(source=frame.source, value=event_stream.decode_frame(frame)) for frame in frames
        ]
        if self._reader.is_broken:
            events += self.finish()  # bytes that are no frame are the client's to judge
        return events

    def finish(self) -> list[AnswerEvent]:
        """What came after the last complete event."""
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
            return AnswerEvent(source=source, value=decode_object(source))
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
        return AnswerEvent(source=source, value=decode_object(content), name=name, is_end=content == DONE)

    def write(self, value: Any, name: bytes) -> bytes:
        data = msgspec.json.encode(value)
        if self._by_line:
            return data + b"\n"
        if name:
            return b"event: " + name + b"\ndata: " + data + b"\n\n"
        return b"data: " + data + b"\n\n"


def decode_object(text: bytes) -> dict[str, Any] | None:
    """A JSON object; None for anything else."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        return value
    return None
