"""The types of the official SDKs say whether their API would take a request."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import ollama
from google.genai import types
from ollama._types import ChatRequest
from openai.types.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses import ResponseInputItemParam
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import TypeAdapter

Json = dict[str, Any]

ITEM: TypeAdapter[Any] = TypeAdapter(ResponseInputItemParam)
RESPONSE: TypeAdapter[Any] = TypeAdapter(ResponseCreateParamsNonStreaming)
COMPLETION: TypeAdapter[Any] = TypeAdapter(CompletionCreateParamsNonStreaming)


def accepted_by_ollama(request: Json) -> None:
    """The request as the official client builds it from these arguments."""
    messages = []
    for message in request["messages"]:
        fields = {name: value for name, value in dict(message).items() if value}
        if "images" in fields:
            fields["images"] = [ollama.Image(value=value) for value in fields["images"]]
        messages.append(ollama.Message.model_validate(fields))
    body = ChatRequest.model_validate(request | {"messages": messages})
    assert json.loads(body.model_dump_json(exclude_none=True))["messages"]


def accepted_by_responses(request: Json) -> None:
    """Ask the SDK's own types, of the request and of each item."""
    read_all(RESPONSE.validate_python(request | {"input": ""}))
    for item in () if isinstance(request["input"], str) else request["input"]:
        read_all(ITEM.validate_python(as_the_sdk_has_it(item)))


def as_the_sdk_has_it(item: Json) -> Json:
    """The types ask for an id that clients which store nothing leave out, and so does the API."""
    if item.get("role") == "assistant" and not isinstance(item["content"], str):
        return {"id": "msg_0", "status": "completed", **item}
    return {"id": "rs_0", **item} if item.get("type") == "reasoning" else item


def read_all(value: Any) -> None:
    """Lists are validated only as they are read."""
    if isinstance(value, Mapping):
        for inner in value.values():
            read_all(inner)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for inner in value:
            read_all(inner)


def accepted_by_gemini(request: Json) -> None:
    for content in request["contents"]:
        types.Content.model_validate(content)
    config = request.get("config")
    if config is not None:
        types.GenerateContentConfig.model_validate(config)
    else:
        types.GenerationConfig.model_validate(request.get("generationConfig", {}))


def accepted_by_openai(request: Json) -> None:
    COMPLETION.validate_python(request)


ACCEPTED: dict[str, Callable[[Json], None]] = {
    "ollama": accepted_by_ollama,
    "openai_responses": accepted_by_responses,
    "gemini": accepted_by_gemini,
    "text": accepted_by_openai,
}
