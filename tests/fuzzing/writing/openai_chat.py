"""Requests of Chat Completions, as the SDK's users and compatible servers' clients write them."""

from __future__ import annotations

from typing import Any

from tests.fuzzing.history import Message, Piece, Settings

Json = dict[str, Any]


MARKED_SINCE = ("gpt-5.6", "gpt-6")
"""Models whose caches have breakpoints; the older ones refuse the field."""


def takes_markers(model: str) -> bool:
    return model.startswith(MARKED_SINCE)


def write_message(message: Message, settings: Settings) -> list[Json]:
    if message.voice == "tool":
        results = [
            {"role": "tool", "tool_call_id": piece.id, "content": piece.text}
            for piece in message.of("result")
        ]
        rest = [piece for piece in message.pieces if piece.sort != "result"]
        return [*results, *([{"role": "user", "content": _content(rest, message, settings)}] if rest else [])]
    if message.voice == "assistant":
        return [_answer(message, settings)]
    return [{"role": message.voice, "content": _content(message.pieces, message, settings)}]


def write_request(messages: list[Json], settings: Settings) -> Json:
    request: Json = {"model": settings.model}
    if settings.tools:
        request["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.schema,
                },
            }
            for tool in settings.tools
        ]
    if settings.answer_schema is not None:
        schema = {"name": "answer", "schema": settings.answer_schema}
        request["response_format"] = {"type": "json_schema", "json_schema": schema}
    if settings.output:
        request["max_completion_tokens"] = settings.output
    system: Any = settings.system
    if settings.system_in_blocks:
        system = [{"type": "text", "text": settings.system}]
    head = [{"role": "system", "content": system}] if settings.system else []
    request["messages"] = [*head, *messages]
    return request


def _answer(message: Message, settings: Settings) -> Json:
    said = message.of("text")
    calls = [
        {"id": piece.id, "type": "function", "function": {"name": piece.name, "arguments": piece.text}}
        for piece in message.of("call")
    ]
    answer: Json = {"role": "assistant", "content": _content(said, message, settings) if said else None}
    thoughts = message.of("thinking")
    if thoughts:
        answer["reasoning_content"] = thoughts[0].text
    if calls:
        answer["tool_calls"] = calls
    return answer


def _content(pieces: list[Piece], message: Message, settings: Settings) -> Any:
    alone = len(pieces) == 1 and pieces[0].sort == "text"
    marked = takes_markers(settings.model) and any(piece.marker for piece in pieces)
    if alone and message.as_string and not marked:
        return pieces[0].text
    return [_part(piece, marked=marked and bool(piece.marker)) for piece in pieces]


def _part(piece: Piece, *, marked: bool) -> Json:
    match piece.sort:
        case "image":
            part: Json = {
                "type": "image_url",
                "image_url": {"url": f"data:image/png;base64,{piece.data}", "detail": "low"},
            }
        case "document":
            part = {"type": "file", "file": {"filename": piece.name, "file_data": piece.data}}
        case _:
            part = {"type": "text", "text": piece.text}
    if marked:
        part["prompt_cache_breakpoint"] = {"mode": "explicit"}
    return part
