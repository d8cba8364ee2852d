"""An answer of Ollama's chat API as segments: the message as the model gave it, ready to be sent back.

A streamed answer is put together first: text is joined, calls and pictures are collected, and any other
field has the value of the last event that has it. This API does not report how much of a prompt was cached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lamina.core.values import Segment
from lamina.dialects.json_values import text_or_empty
from lamina.dialects.ollama.fields import to_dict
from lamina.dialects.ollama.parse import OllamaCalls, read_message
from lamina.dialects.port import Absorbed
from lamina.dialects.usage import read_usage
from lamina.errors import BadInput

_DEEPEST_LEVEL = 64
"""Levels of a response that are read."""

_FIELDS_THAT_SAY_SOMETHING = ("content", "thinking", "tool_calls", "images")


def absorb(response: Any) -> Absorbed:
    """A chat response, as a dict or as the SDK's object."""
    answer = _to_plain_dict(response, "response")
    message = answer.get("message")
    if message is None:
        return _make_absorbed({}, answer)
    return _make_absorbed(_to_plain_dict(message, "message"), answer)


def absorb_stream(events: Sequence[Any]) -> Absorbed:
    """All events of a stream, in order."""
    answer: dict[str, Any] = {}
    message = _StreamedMessage()
    for event in events:
        chunk = _to_plain_dict(event, "event")
        delta = chunk.pop("message", None)
        answer |= {name: value for name, value in chunk.items() if value is not None}
        if delta is not None:
            message.add(_to_plain_dict(delta, "event.message"))
    return _make_absorbed(message.finish(), answer)


class _StreamedMessage:
    """A message that is still arriving. `_texts` has the pieces of each text, joined at the end."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {}

    def add(self, delta: Mapping[str, Any]) -> None:
        """Adds what one event brings."""
        for name, value in delta.items():
            if isinstance(value, str) and name in ("content", "thinking"):
                self._fields.setdefault(name, "")
                self._texts.setdefault(name, []).append(value)
            elif isinstance(value, list):
                if not isinstance(self._fields.get(name), list):
                    self._fields[name] = []
                self._fields[name].extend(value)
            elif value is not None:
                self._fields[name] = value

    def finish(self) -> dict[str, Any]:
        """The whole message, after the last event."""
        for name, pieces in self._texts.items():
            self._fields[name] = "".join(pieces)
        return self._fields


def _make_absorbed(message: dict[str, Any], answer: Mapping[str, Any]) -> Absorbed:
    """The answer. A message that says nothing gives no segments; a reported error is why it stopped."""
    segments: tuple[Segment, ...] = ()
    if any(message.get(name) for name in _FIELDS_THAT_SAY_SOMETHING):
        segments = read_message({"role": "assistant", **message}, OllamaCalls())
    stop = text_or_empty(answer.get("done_reason"))
    if answer.get("done") is True and not stop:
        stop = "stop"  # older servers give no reason
    if answer.get("error"):
        stop = "error"
    return Absorbed(segments=segments, usage=read_usage(answer), stop=stop)


def _to_plain_dict(value: Any, place: str) -> dict[str, Any]:
    """A dict of plain values at every level, to be kept and sent back."""
    return {name: _to_plain_value(inner, 0) for name, inner in to_dict(value, place).items()}


def _to_plain_value(value: Any, level: int) -> Any:
    """A value in which the SDK's objects are dicts."""
    if level > _DEEPEST_LEVEL:
        raise BadInput("a response is nested too deeply", place="response", hint="give plain JSON")
    if isinstance(value, list | tuple):
        return [_to_plain_value(inner, level + 1) for inner in value]
    if isinstance(value, dict) or hasattr(value, "model_fields_set"):
        return {name: _to_plain_value(inner, level + 1) for name, inner in to_dict(value).items()}
    return value
