"""Answers that lamina writes in the place of the model: one text, in the words of the Responses API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lamina.dialects.json_values import list_or_empty, mapping_or_empty


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
