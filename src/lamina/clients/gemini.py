"""Gemini's generateContent over the official SDK: requests in the SDK's shape, `model, contents, config`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from lamina.clients.events import (
    CallEvent,
    Event,
    Reason,
    SdkClient,
    StopEvent,
    TextEvent,
    ThinkingEvent,
    UsageEvent,
)
from lamina.clients.reading import make_usage, read_stop, text_at, value_at

_STOPS: dict[str, Reason] = {
    "STOP": "end",
    "MAX_TOKENS": "length",
    "SAFETY": "refused",
    "RECITATION": "refused",
    "BLOCKLIST": "refused",
    "PROHIBITED_CONTENT": "refused",
    "SPII": "refused",
    "MALFORMED_FUNCTION_CALL": "error",
}


def gemini_content(client: Any = None, *, api_key: str | None = None) -> SdkClient:
    """Return a client for generateContent; `client` is a `google.genai.Client`, whose `aio` is used."""

    def make() -> Any:
        from google import genai  # noqa: PLC0415 - an SDK is imported by who uses it

        return genai.Client(api_key=api_key)

    return SdkClient("gemini", client=client, make=make, begin=_begin, reader=GeminiReader)


def _begin(sdk: Any, request: dict[str, Any]) -> Any:
    return getattr(sdk, "aio", sdk).models.generate_content_stream(**request)


class GeminiReader:
    """Reads chunks. Each has complete parts, and calls come complete."""

    def __init__(self) -> None:
        self._usage = UsageEvent()
        self._stop = ""
        self._has_calls = False

    def read(self, item: Any) -> Iterable[Event]:
        if usage := _read_either(item, "usage_metadata", "usageMetadata"):
            self._usage = make_usage(usage)
        candidate = value_at(item, "candidates", 0)
        self._stop = _read_word(_read_either(candidate, "finish_reason", "finishReason")) or self._stop
        feedback = _read_either(item, "prompt_feedback", "promptFeedback")
        if _read_either(feedback, "block_reason", "blockReason"):
            self._stop = "SAFETY"
        for part in value_at(candidate, "content", "parts") or ():
            yield from self._read_part(part)

    def _read_part(self, part: Any) -> Iterable[Event]:
        if text := text_at(part, "text"):
            if value_at(part, "thought"):
                yield ThinkingEvent(text)
            else:
                yield TextEvent(text)
        if call := _read_either(part, "function_call", "functionCall"):
            self._has_calls = True
            arguments = json.dumps(value_at(call, "args") or {}, ensure_ascii=False)
            yield CallEvent(id=text_at(call, "id"), name=text_at(call, "name"), arguments=arguments)

    def end(self) -> Iterable[Event]:
        if self._usage != UsageEvent():
            yield self._usage
        reason = read_stop(self._stop, _STOPS, has_calls=self._has_calls)
        yield StopEvent(reason=reason, said=self._stop)


def _read_either(value: Any, snake_name: str, camel_name: str) -> Any:
    """Read a field of an SDK's object (snake case) or of plain JSON (camel case)."""
    field = value_at(value, snake_name)
    if field is None:
        return value_at(value, camel_name)
    return field


def _read_word(value: Any) -> str:
    """Return the text of an enum of the SDK, or of plain JSON."""
    word = getattr(value, "value", value)
    if isinstance(word, str):
        return word
    return ""
