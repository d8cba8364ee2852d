"""The body of an answer, read again from its bytes: as JSON values, as segments, or as text for people."""

from __future__ import annotations

from typing import Any

import msgspec

from lamina.conversations.answer_events import EventSplitter
from lamina.conversations.encodings import unpack_recorded
from lamina.conversations.record import Answered
from lamina.dialects import DIALECTS
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
