"""Anthropic's Messages over the official SDK. A beta is asked for by the request's own `betas`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lamina.clients.events import (
    Event,
    GrowingCalls,
    Reason,
    Sdk,
    Spoke,
    Stopped,
    Thought,
    at,
    count_at,
    in_body,
    text_at,
    used,
)
from lamina.clients.failures import failure

_STOPS: dict[str, Reason] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tool",
    "pause_turn": "other",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}

_FAILED = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "invalid_request_error": 400,
    "request_too_large": 413,
    "authentication_error": 401,
    "permission_error": 403,
}


def anthropic_messages(client: Any = None, *, base_url: str | None = None, api_key: str | None = None) -> Sdk:
    """A client for Messages, and for servers that speak it."""

    def make() -> Any:
        import anthropic  # noqa: PLC0415 - an SDK is imported by who uses it

        return anthropic.AsyncAnthropic(base_url=base_url, api_key=api_key)

    return Sdk("anthropic", client=client, make=make, begin=_begin, reader=Events)


def _begin(sdk: Any, request: dict[str, Any]) -> Any:
    create = sdk.beta.messages.create if "betas" in request else sdk.messages.create
    return create(**in_body(create, request | {"stream": True}))


class Events:
    """Reads the events of a message. A call is whole when its block stops."""

    def __init__(self) -> None:
        self._calls, self._stop = GrowingCalls(), ""
        self._tools: set[Any] = set()
        self._usage: dict[str, int] = {}

    def read(self, item: Any) -> Iterable[Event]:
        sort, index = text_at(item, "type"), at(item, "index")
        if sort == "error":
            kind = text_at(item, "error", "type")
            raise failure(_FAILED.get(kind, 500), f"{text_at(item, 'error', 'message')} {kind}")
        if sort == "message_start":
            self._count(at(item, "message", "usage"))
        elif sort == "message_delta":
            self._count(at(item, "usage"))
            self._stop = text_at(item, "delta", "stop_reason") or self._stop
        elif sort == "content_block_start":
            yield from self._begun(index, at(item, "content_block"))
        elif sort == "content_block_delta":
            yield from self._more(index, at(item, "delta"))

    def _begun(self, index: Any, block: Any) -> Iterable[Event]:
        if text_at(block, "type") == "tool_use":
            self._tools.add(index)
            self._calls.add(index, text_at(block, "id"), text_at(block, "name"), "")
        elif text := text_at(block, "text"):
            yield Spoke(text)

    def _more(self, index: Any, delta: Any) -> Iterable[Event]:
        if text := text_at(delta, "text"):
            yield Spoke(text)
        elif text := text_at(delta, "thinking"):
            yield Thought(text)
        elif index in self._tools:
            self._calls.add(index, "", "", text_at(delta, "partial_json"))

    def _count(self, usage: Any) -> None:
        names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
        self._usage |= {name: count for name in names if (count := count_at(usage, name))}

    def end(self) -> Iterable[Event]:
        yield from self._calls.events()
        if self._usage:
            yield used(self._usage)
        yield Stopped(reason=_STOPS.get(self._stop, "other") if self._stop else "error", said=self._stop)
