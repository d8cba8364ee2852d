"""Reads an answer of the Responses API as segments, to be sent back, and writes lamina's own answers.

Of a stream, an item is read as it was when it was done, since only then its encrypted content is whole. If
the stream broke off, the text of an unfinished message is read too. A call or reasoning that was not finished
is not, since nobody may act on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from lamina.dialects.json_values import (
    Json,
    list_or_empty,
    mapping_or_empty,
    read_list,
    text_or_empty,
    to_dict,
    to_dict_or_empty,
)
from lamina.dialects.openai_responses.item_scan import ItemScan
from lamina.dialects.openai_responses.items import find_streamed_id
from lamina.dialects.openai_responses.parts import render_assistant_text
from lamina.dialects.port import Absorbed
from lamina.dialects.usage import find_usage

_TEXT_EVENTS = ("response.output_text.delta", "response.refusal.delta")
_LAST_EVENTS = ("response.completed", "response.incomplete", "response.failed")


def absorb(response: Any) -> Absorbed:
    """Read a whole response: a dict, or an object of the SDK."""
    answer = to_dict(response, "response")
    sdk_items = getattr(response, "output", None)
    if isinstance(sdk_items, list):
        return _absorb_items(sdk_items, answer)
    return _absorb_items(read_list(answer, "output"), answer)


def absorb_stream(events: Sequence[Any]) -> Absorbed:
    """Read all events of a stream, in order.

    If no item was done, the last event may still have them all.
    """
    items = _StreamedItems()
    answer: Json = {}
    for value in events:
        event = to_dict(value, "event")
        if event.get("type") in _LAST_EVENTS:
            answer = to_dict_or_empty(event.get("response"))
        else:
            items.take(event)
    output: Sequence[Any] = items.finish()
    if not output and isinstance(answer.get("output"), list):
        output = answer["output"]
    return _absorb_items(output, answer)


def _absorb_items(items: Sequence[Any], answer: Json) -> Absorbed:
    """The answer. It ended for the reason why it is incomplete, else with its status."""
    segments = tuple(chain.from_iterable(ItemScan().read(items)))
    reason = to_dict_or_empty(answer.get("incomplete_details")).get("reason")
    if not isinstance(reason, str):
        reason = text_or_empty(answer.get("status"))
    return Absorbed(segments=segments, usage=find_usage(answer), stop=reason)


class _StreamedItems:
    """Items by their position in the answer: done, or begun with the text that has arrived so far."""

    def __init__(self) -> None:
        self.done: dict[int, Json] = {}
        self.begun: dict[int, Json] = {}
        self.texts: dict[int, dict[int, list[str]]] = {}
        self._positions: dict[str, int] = {}

    def take(self, event: Json) -> None:
        """Take in one event.

        `{"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "He"}` adds to
        the first text of the first item.
        """
        event_type = event.get("type")
        position = self._find_position(event)
        delta = event.get("delta")
        if event_type == "response.output_item.done":
            self.done[position] = to_dict_or_empty(event.get("item"))
        elif event_type == "response.output_item.added":
            self.begun[position] = to_dict_or_empty(event.get("item"))
        elif event_type in _TEXT_EVENTS and isinstance(delta, str):
            part_index = _read_index(event.get("content_index"))
            texts_of_item = self.texts.setdefault(position, {})
            texts_of_item.setdefault(part_index, []).append(delta)

    def _find_position(self, event: Json) -> int:
        """The position of the item that an event is about.

        Items without a number are told apart by their ids, in the order in which they begin. An event that
        has neither belongs to the first item.
        """
        index = event.get("output_index")
        item_id = find_streamed_id(event)
        if index is not None or not item_id:
            return _read_index(index)
        return self._positions.setdefault(item_id, len(self._positions))

    def finish(self) -> list[Json]:
        """The items that are done, and messages that were not finished.

        The id of such a message names nothing that was stored, so it is left out.
        """
        items = dict(self.done)
        for position in self.texts.keys() - self.done.keys():
            texts = self.texts[position]
            content = [render_assistant_text("".join(texts[index])) for index in sorted(texts)]
            message: Json = {"type": "message", "role": "assistant", "content": content}
            phase = self.begun.get(position, {}).get("phase")
            if phase:
                message["phase"] = phase
            items[position] = message
        return list(filter(None, map(items.get, sorted(items))))


def _read_index(value: Any) -> int:
    """A position in an answer; 0 for any other value."""
    if isinstance(value, int) and value > 0:
        return value
    return 0


def write_answer(answer: Mapping[str, Any], text: str) -> dict[str, Any]:
    """A whole answer that says this text and nothing else."""
    return {**answer, "output": [_write_item(text, answer.get("id"))]}


def write_closing_events(closing: Sequence[Mapping[str, Any]], text: str, index: int) -> list[dict[str, Any]]:
    """The events that end a stream, after those of one more item, which says this text."""
    answer_id = mapping_or_empty(closing[-1].get("response")).get("id")
    item = _write_item(text, answer_id)
    begun_item = {**item, "status": "in_progress", "content": []}
    place = {"item_id": item["id"], "output_index": index, "content_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": index, "item": begun_item},
        {"type": "response.content_part.added", **place, "part": _write_part("")},
        {"type": "response.output_text.delta", **place, "delta": text, "logprobs": []},
        {"type": "response.output_text.done", **place, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": _write_part(text)},
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]
    for event in closing:
        response = mapping_or_empty(event.get("response"))
        output = [*list_or_empty(response.get("output")), item]
        events.append({**event, "response": {**response, "output": output}})
    first_number = closing[0].get("sequence_number")
    if first_number is None:  # this server does not number its events
        return events
    for number, event in enumerate(events, first_number):
        event["sequence_number"] = number
    return events


def _write_item(text: str, answer_id: Any) -> dict[str, Any]:
    """The item that says a text. The API refuses a history in which two items have the same id."""
    return {
        "type": "message",
        "id": f"msg_lamina_{answer_id or 'notice'}",
        "role": "assistant",
        "status": "completed",
        "content": [_write_part(text)],
    }


def _write_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
