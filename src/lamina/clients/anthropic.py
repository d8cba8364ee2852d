"""Anthropic's Messages over the official SDK. A request asks for betas by its own field `betas`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lamina.clients.events import (
    Event,
    Reason,
    SdkClient,
    StopEvent,
    TextEvent,
    ThinkingEvent,
    move_into_body,
)
from lamina.clients.failures import failure
from lamina.clients.reading import GrowingCalls, count_at, make_usage, read_stop, text_at, value_at

_STOPS: dict[str, Reason] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tool",
    "pause_turn": "other",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}

_STATUS_OF_ERROR = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "invalid_request_error": 400,
    "request_too_large": 413,
    "authentication_error": 401,
    "permission_error": 403,
}

_USAGE_FIELDS = (
    "input_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "output_tokens",
)


def anthropic_messages(
    client: Any = None, *, base_url: str | None = None, api_key: str | None = None
) -> SdkClient:
    """Return a client for Messages, and for servers that speak it."""

    def make() -> Any:
        import anthropic  # noqa: PLC0415 - an SDK is imported by who uses it

        return anthropic.AsyncAnthropic(base_url=base_url, api_key=api_key)

    return SdkClient("anthropic", client=client, make=make, begin=_begin, reader=AnthropicReader)


def _begin(sdk: Any, request: dict[str, Any]) -> Any:
    create = sdk.beta.messages.create if "betas" in request else sdk.messages.create
    return create(**move_into_body(create, request | {"stream": True}))


class AnthropicReader:
    """Reads the events of a message."""

    def __init__(self) -> None:
        self._calls = GrowingCalls()
        self._stop = ""
        self._tool_blocks: set[Any] = set()
        self._usage: dict[str, int] = {}

    def read(self, item: Any) -> Iterable[Event]:
        match text_at(item, "type"):
            case "error":
                kind = text_at(item, "error", "type")
                message = text_at(item, "error", "message")
                raise failure(_STATUS_OF_ERROR.get(kind, 500), f"{message} {kind}")
            case "message_start":
                self._add_usage(value_at(item, "message", "usage"))
            case "message_delta":
                self._add_usage(value_at(item, "usage"))
                self._stop = text_at(item, "delta", "stop_reason") or self._stop
            case "content_block_start":
                yield from self._read_start(value_at(item, "index"), value_at(item, "content_block"))
            case "content_block_delta":
                yield from self._read_delta(value_at(item, "index"), value_at(item, "delta"))

    def _read_start(self, index: Any, block: Any) -> Iterable[Event]:
        """Read the start of a block. Only a call of the caller's tools is noted, not one of the server's."""
        if text_at(block, "type") == "tool_use":
            self._tool_blocks.add(index)
            self._calls.add(index, text_at(block, "id"), text_at(block, "name"), "")
        elif text := text_at(block, "text"):
            yield TextEvent(text)

    def _read_delta(self, index: Any, delta: Any) -> Iterable[Event]:
        if text := text_at(delta, "text"):
            yield TextEvent(text)
        elif text := text_at(delta, "thinking"):
            yield ThinkingEvent(text)
        elif index in self._tool_blocks:
            self._calls.add(index, "", "", text_at(delta, "partial_json"))

    def _add_usage(self, usage: Any) -> None:
        """Take over the counts that an event has. Later events repeat some of them and leave others out."""
        for name in _USAGE_FIELDS:
            count = count_at(usage, name)
            if count:
                self._usage[name] = count

    def end(self) -> Iterable[Event]:
        yield from self._calls.events()
        if self._usage:
            yield make_usage(self._usage)
        yield StopEvent(reason=read_stop(self._stop, _STOPS), said=self._stop)
