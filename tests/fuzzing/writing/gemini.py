"""Requests of generateContent, as Gemini CLI (a REST body) and the SDK's users (`config`) write them."""

from __future__ import annotations

import json
from typing import Any

from tests.fuzzing.history import Message, Piece, Settings

Json = dict[str, Any]


def write_message(message: Message, settings: Settings) -> list[Json]:
    role = "model" if message.voice == "assistant" else "user"
    return [{"role": role, "parts": [_part(piece, settings) for piece in message.pieces]}]


def write_request(contents: list[Json], settings: Settings) -> Json:
    system = {"parts": [{"text": settings.system}]} if settings.system else None
    declared = [
        {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.schema}
        for tool in settings.tools
    ]
    answer: Json = {}
    if settings.answer_schema is not None:
        answer = {"responseMimeType": "application/json", "responseJsonSchema": settings.answer_schema}
    if settings.output:
        answer["maxOutputTokens"] = settings.output
    request: Json = {"model": settings.model, "contents": contents}
    if settings.in_config:
        config = {_snake(name): value for name, value in answer.items()}
        if system is not None:
            config["system_instruction"] = settings.system
        if declared:
            config["tools"] = [{"functionDeclarations": declared}]
        return {**request, "config": config} if config else request
    if system is not None:
        request["systemInstruction"] = system
    if declared:
        request["tools"] = [{"functionDeclarations": declared}]
    if answer:
        request["generationConfig"] = answer
    return request


def _part(piece: Piece, settings: Settings) -> Json:
    id_ = {"id": piece.id} if settings.call_ids else {}
    signature = {"thoughtSignature": piece.signature} if piece.signature else {}
    match piece.sort:
        case "call":
            return {
                "functionCall": {**id_, "name": piece.name, "args": json.loads(piece.text)},
                **signature,
            }
        case "result":
            return {"functionResponse": {**id_, "name": piece.name, "response": {"output": piece.text}}}
        case "image":
            return {"inlineData": {"mimeType": "image/png", "data": piece.data}}
        case "document":
            return {"inlineData": {"mimeType": "application/pdf", "data": piece.data}}
        case "thinking":
            return {"text": piece.text, "thought": True, **signature}
    return {"text": piece.text}


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
