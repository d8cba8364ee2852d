"""Requests of the Messages API, as Claude Code and the SDK's users write them."""

from __future__ import annotations

import json
from typing import Any

from tests.fuzzing.history import Message, Piece, Settings

Json = dict[str, Any]


def write_message(message: Message, settings: Settings) -> list[Json]:
    del settings
    if message.voice == "system":
        return [{"role": "system", "content": _content(message)}]
    if message.voice != "tool":
        return [{"role": message.voice, "content": _content(message)}]
    results = message.of("result")
    if not message.apart or len(results) < 2:
        return [{"role": "user", "content": _content(message)}]
    rest = [piece for piece in message.pieces if piece.sort != "result"]
    apart = [{"role": "user", "content": [_block(result)]} for result in results]
    return [*apart, {"role": "user", "content": [_block(piece) for piece in rest]}] if rest else apart


def write_request(messages: list[Json], settings: Settings) -> Json:
    request: Json = {"model": settings.model, "max_tokens": settings.output}
    if settings.system:
        block = {"type": "text", "text": settings.system}
        request["system"] = [block] if settings.system_in_blocks else settings.system
    if settings.tools:
        request["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
            for tool in settings.tools
        ]
    if settings.answer_schema is not None:
        request["output_config"] = {"format": {"type": "json_schema", "schema": settings.answer_schema}}
    request["messages"] = messages
    return request


def _content(message: Message) -> Any:
    alone = len(message.pieces) == 1 and message.pieces[0].sort == "text"
    if alone and message.as_string and not message.pieces[0].marker:
        return message.pieces[0].text
    return [_block(piece) for piece in message.pieces]


def _block(piece: Piece) -> Json:
    block = _unmarked(piece)
    if piece.marker:
        lifetime = {} if piece.marker == "-" else {"ttl": piece.marker}
        block["cache_control"] = {"type": "ephemeral", **lifetime}
    return block


def _unmarked(piece: Piece) -> Json:
    block: Json
    match piece.sort:
        case "thinking":
            block = {"type": "thinking", "thinking": piece.text, "signature": piece.signature}
        case "redacted":
            block = {"type": "redacted_thinking", "data": piece.data}
        case "call":
            block = {"type": "tool_use", "id": piece.id, "name": piece.name, "input": json.loads(piece.text)}
        case "result":
            block = _result(piece)
        case "image":
            block = {"type": "image", "source": _picture(piece)}
        case "document":
            source = {"type": "text", "media_type": "text/plain", "data": piece.text}
            block = {"type": "document", "source": source, "title": piece.name}
        case _:
            block = {"type": "text", "text": piece.text}
    return block


def _picture(piece: Piece) -> Json:
    return {"type": "base64", "media_type": "image/png", "data": piece.data}


def _result(piece: Piece) -> Json:
    content: Any = piece.text
    if piece.data is not None:
        content = [{"type": "text", "text": piece.text}, {"type": "image", "source": _picture(piece)}]
    failed = {"is_error": True} if piece.failed else {}
    return {"type": "tool_result", "tool_use_id": piece.id, "content": content, **failed}
