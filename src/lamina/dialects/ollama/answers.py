"""Reads an answer of Ollama's chat API as segments, to be sent back, and writes lamina's own answers.

A streamed answer is put together first: text is joined, calls and pictures are collected, and any other
field has the value of the last event that has it. This API does not report how much of a prompt was cached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lamina.core.values import Segment
from lamina.dialects.json_values import LIST_TYPES, Json, drop_nulls, list_or_empty, text_or_empty
from lamina.dialects.ollama.fields import to_fields
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
    message: Json = {}
    if answer.get("message") is not None:
        message = _to_plain_dict(answer["message"], "message")
    return _make_absorbed(message, answer)


def absorb_stream(events: Sequence[Any]) -> Absorbed:
    """All events of a stream, in order.

    Each event has a piece of the text. Calls and pictures come whole, one or several in an event.
    """
    answer: Json = {}
    message: Json = {}
    pieces_of_text: dict[str, list[str]] = {}
    for event in events:
        chunk = _to_plain_dict(event, "event")
        delta: Json = {}
        if chunk.get("message") is not None:
            delta = _to_plain_dict(chunk.pop("message"), "event.message")
        answer |= drop_nulls(chunk)
        for name, value in drop_nulls(delta).items():
            if isinstance(value, list):
                message[name] = [*list_or_empty(message.get(name)), *value]
                continue
            message[name] = value
            if isinstance(value, str) and name in ("content", "thinking"):
                pieces_of_text.setdefault(name, []).append(value)
    for name, pieces in pieces_of_text.items():
        message[name] = "".join(pieces)
    return _make_absorbed(message, answer)


def _make_absorbed(message: dict[str, Any], answer: Mapping[str, Any]) -> Absorbed:
    """The answer. A message that says nothing gives no segments; a reported error is why it stopped.

    `{"done": true, "done_reason": "length"}` stopped for "length".
    """
    segments: tuple[Segment, ...] = ()
    if any(map(message.get, _FIELDS_THAT_SAY_SOMETHING)):
        segments = read_message({"role": "assistant", **message}, 0, OllamaCalls())
    stop = ""
    if answer.get("done") is True:
        stop = "stop"  # older servers give no reason
    stop = text_or_empty(answer.get("done_reason")) or stop
    if answer.get("error"):
        stop = "error"
    return Absorbed(segments=segments, usage=read_usage(answer), stop=stop)


def _to_plain_dict(value: Any, place: str) -> dict[str, Any]:
    """A dict of plain values at every level, to be kept and sent back."""
    return {name: _to_plain_value(inner, 0) for name, inner in to_fields(value, place).items()}


def _to_plain_value(value: Any, level: int) -> Any:
    """A value in which the SDK's objects are dicts.

    Lists are copied too, so that nothing that is kept changes with an object of the SDK.
    """
    if level > _DEEPEST_LEVEL:
        raise BadInput("a response is nested too deeply", place="response", hint="give plain JSON")
    if isinstance(value, LIST_TYPES):
        return [_to_plain_value(inner, level + 1) for inner in value]
    if isinstance(value, dict) or hasattr(value, "model_fields_set"):
        return {name: _to_plain_value(inner, level + 1) for name, inner in to_fields(value).items()}
    return value


def write_answer(answer: Mapping[str, Any], text: str) -> dict[str, Any]:
    """A whole answer, or a chunk of one, that says this text and nothing else."""
    message = {"role": "assistant", **(answer.get("message") or {}), "content": text}
    return {**answer, "message": message}


def write_closing_events(closing: Sequence[Mapping[str, Any]], text: str, _: int) -> list[dict[str, Any]]:
    """The chunks that end a stream. The last of them says this text."""
    return [*map(dict, closing[:-1]), write_answer(closing[-1], text)]
