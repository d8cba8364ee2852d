"""The answer of a recorded request, read again from its bytes."""

from __future__ import annotations

from typing import Any

import msgspec

from lamina.conversations.answer_events import EventSplitter
from lamina.conversations.encodings import unpack_recorded
from lamina.conversations.record import Answered
from lamina.dialects import DIALECTS
from lamina.dialects.port import Absorbed
from lamina.errors import BadInput

_BY_LINE = "application/x-ndjson"
_STREAMS = ("text/event-stream", _BY_LINE)


def read_answer(body: bytes, answer: Answered, dialect: str) -> Absorbed:
    """What a model said, as segments. Raises BadInput if these bytes are no answer of this dialect."""
    text = unpack_recorded(body, answer.encoding)
    if answer.content_type.startswith(_STREAMS):
        splitter = EventSplitter(by_line=answer.content_type.startswith(_BY_LINE))
        events = [*splitter.take(text), *splitter.finish()]
        return _absorb_events([event.value for event in events if event.value is not None], dialect)
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        hint = "its text is shown as it came"
        raise BadInput(f"it is not JSON: {error}", place="answer", hint=hint) from None
    if isinstance(value, list):  # Gemini without alt=sse sends its stream as one list
        return _absorb_events(value, dialect)
    return _find_dialect(dialect).absorb(value)


def read_answer_text(body: bytes, answer: Answered) -> str:
    """The bytes of an answer as text, for people: errors of a provider, and what no dialect can read."""
    return unpack_recorded(body, answer.encoding).decode("utf-8", "replace")


def _absorb_events(events: list[Any], dialect: str) -> Absorbed:
    return _find_dialect(dialect).absorb_stream(events)


def _find_dialect(name: str) -> Any:
    if name not in DIALECTS:
        hint = "a newer release wrote the record"
        raise BadInput(f"there is no dialect {name!r}", place="record", hint=hint)
    return DIALECTS[name]
