"""What a client gets from a model that only recalls: a sentence that says so.

After `lamina.fitting.recall_loop.ROUNDS` recalls in a row the model is told to answer. If it recalls again
and has said nothing at all, its answer would be empty. Clients take an empty answer for a broken one, and
most APIs refuse it as a part of the history. So the answer gets this one sentence.
"""

from __future__ import annotations

from typing import Any

from lamina.dialects.port import Dialect

NOTICE = "[lamina: the model recalled earlier parts of this conversation again and again, and did not answer]"

_ITEM_ID = "msg_lamina_notice"


def fill_answer(answer: Any, dialect: Dialect) -> Any:
    """Return a whole answer, or the last chunk of one, that says the notice and nothing else."""
    if not isinstance(answer, dict):
        return answer
    if dialect.name == "anthropic":
        return {**answer, "content": [_text_block(NOTICE)]}
    if dialect.name == "openai_responses":
        return {**answer, "output": [_response_item()]}
    if dialect.name == "openai_chat":
        return _fill_first(answer, "choices", "message", {"content": NOTICE})
    if dialect.name == "gemini":
        return _fill_first(answer, "candidates", "content", {"parts": [{"text": NOTICE}]})
    message = answer.get("message") or {"role": "assistant"}
    return {**answer, "message": {**message, "content": NOTICE}}


def fill_stream(closing: list[Any], dialect: Dialect) -> list[Any]:
    """Return the events that end a stream, with the notice before them or in them.

    Nothing of the answer was shown before, so the notice is its first block.
    """
    if not closing:
        return closing
    if dialect.name == "anthropic":
        return [*_message_events(), *closing]
    if dialect.name == "openai_responses":
        return _fill_response_events(closing)
    if dialect.name == "openai_chat":
        chunk = {name: value for name, value in closing[0].items() if name != "usage"}
        choice = {"index": 0, "delta": {"content": NOTICE}, "finish_reason": None}
        return [{**chunk, "choices": [choice]}, *closing]
    return [*closing[:-1], fill_answer(closing[-1], dialect)]


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _message_events() -> list[Any]:
    delta = {"type": "text_delta", "text": NOTICE}
    return [
        {"type": "content_block_start", "index": 0, "content_block": _text_block("")},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
    ]


def _response_item() -> dict[str, Any]:
    """The notice as an item of OpenAI's Responses API."""
    return {
        "type": "message",
        "id": _ITEM_ID,
        "role": "assistant",
        "status": "completed",
        "content": [_text_part(NOTICE)],
    }


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}


def _fill_response_events(closing: list[Any]) -> list[Any]:
    item = _response_item()
    begun_item = {**item, "status": "in_progress", "content": []}
    place = {"item_id": _ITEM_ID, "output_index": 0, "content_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": 0, "item": begun_item},
        {"type": "response.content_part.added", **place, "part": _text_part("")},
        {"type": "response.output_text.delta", **place, "delta": NOTICE, "logprobs": []},
        {"type": "response.output_text.done", **place, "text": NOTICE, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": _text_part(NOTICE)},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    ]
    events += [{**event, "response": {**event["response"], "output": [item]}} for event in closing]
    first_number = closing[0].get("sequence_number", 0)
    for number, event in enumerate(events, first_number):
        event["sequence_number"] = number
    return events


def _fill_first(answer: dict[str, Any], holder: str, name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with other fields in one part of its first alternative."""
    alternatives = answer.get(holder) or [{"index": 0}]
    part = alternatives[0].get(name) or {}
    first = {**alternatives[0], name: {**part, **fields}}
    return {**answer, holder: [first, *alternatives[1:]]}
