"""Reads the answer of a recorded response: its items as they are sent back, and its usage.

A response may be whole, or the events of a stream, as a list or as the text of the stream.
"""

from __future__ import annotations

from typing import Any

from lamina.dialects import DIALECTS
from lamina.dialects.origins import read_origin
from lamina.errors import BadInput
from lamina.replay.traces.json_fields import json_field
from lamina.replay.traces.lines import decode_json

Answer = tuple[list[dict[str, Any]], Any]
"""The items of an answer, and the usage in the provider's own words."""


def read_answer(dialect: str, response: Any) -> Answer:
    """The answer as items to send back, and the usage; of a stream, put together from its events."""
    events = _find_events(response)
    if events is not None:
        return _absorb_events(dialect, events)
    return _answer_items(dialect, response), json_field(response, "usage")


def _answer_items(dialect: str, response: Any) -> list[dict[str, Any]]:
    """The items of a whole response: its output, its content, or the message of its first choice.

    `{"choices": [{"message": {"content": "Hi"}}]}` has one item, a message of the assistant.
    """
    match dialect, response:
        case "openai_responses", {"output": [*items]}:
            return [item for item in items if isinstance(item, dict)]
        case "anthropic", {"content": [_, *_] as content}:
            return [{"role": "assistant", "content": content}]
        case "openai_chat", {"choices": [{"message": dict() as message}, *_]} if message:
            return [{"role": "assistant", **message}]
        case _:
            return []


def _find_events(response: Any) -> list[Any] | None:
    """The events of a streamed answer: a list of them, or the text of the stream; None if it is whole.

    `data: {"type": "message_stop"}` is an event, and a line `event: message_stop` is not.
    """
    events = response
    if isinstance(response, str):
        events = [_decode_event(line) for line in response.splitlines()]
    if not isinstance(events, list):
        return None
    return [event for event in events if isinstance(event, dict)]


def _decode_event(line: str) -> Any:
    """The event in a line of a stream; None for `[DONE]` and for what is not JSON.

    `data: {"type": "message_stop"}` is an event. Lines of other fields, such as `event:`, are none.
    """
    field, _, value = line.partition(":")
    data = value.strip()
    if field != "data" or not data.startswith("{"):
        return None
    try:
        return decode_json(data.encode("utf-8", "replace"))
    except BadInput:
        return None


def _absorb_events(dialect: str, events: list[Any]) -> Answer:
    """The items and the usage of a stream, as its dialect reads it; nothing if it cannot be read.

    The usage is written in the names that `parse_usage` reads.
    """
    try:
        absorbed = DIALECTS[dialect].answers.absorb_stream(events)
    except BadInput:
        return [], None
    items = []
    for segment in absorbed.segments:
        origin = read_origin(segment)
        if origin is not None and origin.is_first and isinstance(origin.message, dict):
            items.append(origin.message)
    return items, absorbed.usage
