"""Gemini's generateContent over the official SDK: requests in the SDK's shape, `model, contents, config`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from lamina.clients.events import (
    Called,
    CallUsage,
    Event,
    Reason,
    Sdk,
    Spoke,
    Stopped,
    Thought,
    at,
    text_at,
    used,
)

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


def gemini_content(client: Any = None, *, api_key: str | None = None) -> Sdk:
    """A client for generateContent; `client` is a `google.genai.Client`, whose async side is used."""

    def make() -> Any:
        from google import genai  # noqa: PLC0415 - an SDK is imported by who uses it

        return genai.Client(api_key=api_key)

    return Sdk("gemini", client=client, make=make, begin=_begin, reader=Parts)


def _begin(sdk: Any, request: dict[str, Any]) -> Any:
    return getattr(sdk, "aio", sdk).models.generate_content_stream(**request)


class Parts:
    """Reads chunks: each has whole parts, and calls come whole."""

    def __init__(self) -> None:
        self._used, self._stop, self._called = CallUsage(), "", False

    def read(self, item: Any) -> Iterable[Event]:
        if usage := _either(item, "usage_metadata", "usageMetadata"):
            self._used = used(usage)
        blocked = _either(_either(item, "prompt_feedback", "promptFeedback"), "block_reason", "blockReason")
        candidate = at(item, "candidates", 0)
        self._stop = _word(_either(candidate, "finish_reason", "finishReason")) or self._stop
        self._stop = "SAFETY" if blocked else self._stop
        for part in at(candidate, "content", "parts") or ():
            yield from self._part(part)

    def _part(self, part: Any) -> Iterable[Event]:
        if text := text_at(part, "text"):
            yield Thought(text) if at(part, "thought") else Spoke(text)
        if call := _either(part, "function_call", "functionCall"):
            self._called = True
            arguments = json.dumps(at(call, "args") or {}, ensure_ascii=False)
            yield Called(id=text_at(call, "id"), name=text_at(call, "name"), arguments=arguments)

    def end(self) -> Iterable[Event]:
        if self._used != CallUsage():
            yield self._used
        reason = "tool" if self._called and self._stop == "STOP" else _STOPS.get(self._stop, "other")
        yield Stopped(reason=reason if self._stop else "error", said=self._stop)


def _either(value: Any, name: str, other: str) -> Any:
    found = at(value, name)
    return at(value, other) if found is None else found


def _word(value: Any) -> str:
    word = getattr(value, "value", value)
    return word if isinstance(word, str) else ""
