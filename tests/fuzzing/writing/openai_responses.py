"""Requests of the Responses API, as Codex and the SDK's users write them.

Nothing is stored by the server, unless the client refers to what is.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.fuzzing.history import Message, Piece, Settings
from tests.fuzzing.writing.openai_chat import takes_markers

Json = dict[str, Any]


def write_message(message: Message, settings: Settings) -> list[Json]:
    if message.voice == "assistant":
        return _of_message(message)
    items = [_output(piece) for piece in message.of("result")]
    items += [dict(piece.data) for piece in message.of("item")]
    rest = [piece for piece in message.pieces if piece.sort not in ("result", "item")]
    if rest:
        role = "user" if message.voice == "tool" else message.voice
        items.append(
            {"role": "developer" if role == "system" else role, "content": _content(rest, message, settings)}
        )
    return items


def write_request(items: list[Json], settings: Settings) -> Json:
    refers = any(item.get("type") == "item_reference" for item in items)
    request: Json = {"model": settings.model, "store": refers}
    if settings.system and not settings.system_in_blocks:
        request["instructions"] = settings.system
    if settings.tools:
        request["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.schema,
            }
            for tool in settings.tools
        ]
    if settings.answer_schema is not None:
        text_format = {"type": "json_schema", "name": "answer", "schema": settings.answer_schema}
        request["text"] = {"format": text_format}
    if settings.output:
        request["max_output_tokens"] = settings.output
    head: list[Json] = []
    if settings.system and settings.system_in_blocks:
        words = [{"type": "input_text", "text": settings.system}]
        head = [{"type": "message", "role": "developer", "content": words}]
    request["input"] = [*head, *items]
    return request


def _of_message(message: Message) -> list[Json]:
    """The items of one answer. Each keeps its id when others of its message are taken away."""
    numbers: Counter[str] = Counter()
    items = []
    for piece in message.pieces:
        numbers[piece.sort] += 1
        items.append(_of_model(piece, f"{message.number}_{numbers[piece.sort]}"))
    return items


def _of_model(piece: Piece, own: str) -> Json:
    """An item of the model; `own` names it."""
    match piece.sort:
        case "thinking" | "redacted":
            summary = [{"type": "summary_text", "text": piece.text}] if piece.text else []
            return {
                "type": "reasoning",
                "id": f"rs_{own}",
                "summary": summary,
                "encrypted_content": piece.signature or piece.data,
            }
        case "call":
            return {
                "type": "function_call",
                "id": f"fc_{own}",
                "call_id": piece.id,
                "name": piece.name,
                "arguments": piece.text,
            }
        case "item":
            return dict(piece.data)
    words = {"type": "output_text", "text": piece.text, "annotations": []}
    return {
        "type": "message",
        "id": f"msg_{own}",
        "role": "assistant",
        "status": "completed",
        "content": [words],
    }


def _output(piece: Piece) -> Json:
    output: Any = piece.text
    if piece.data is not None:
        image = {"type": "input_image", "image_url": f"data:image/png;base64,{piece.data}"}
        output = [{"type": "input_text", "text": piece.text}, image]
    return {"type": "function_call_output", "call_id": piece.id, "output": output}


def _content(pieces: list[Piece], message: Message, settings: Settings) -> Any:
    alone = len(pieces) == 1 and pieces[0].sort == "text"
    marked = takes_markers(settings.model) and any(piece.marker for piece in pieces)
    if alone and message.as_string and not marked:
        return pieces[0].text
    return [_part(piece, marked=marked and bool(piece.marker)) for piece in pieces]


def _part(piece: Piece, *, marked: bool) -> Json:
    match piece.sort:
        case "image":
            part: Json = {"type": "input_image", "image_url": f"data:image/png;base64,{piece.data}"}
        case "document":
            part = {"type": "input_file", "filename": piece.name, "file_data": piece.data}
        case _:
            part = {"type": "input_text", "text": piece.text}
    if marked:
        part["prompt_cache_breakpoint"] = {"mode": "explicit"}
    return part
