"""Anthropic's Messages over the official SDK. A request asks for betas by its own field `betas`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lamina.clients.events import (
    SdkClient,
    StreamFormat,
    TextEvent,
    ThinkingEvent,
    make_later,
    move_into_body,
    text_at,
)
from lamina.clients.failures import failure
from lamina.dialects.anthropic import DIALECT

_STATUS_OF_ERROR = {
    "overloaded_error": 529,
    "rate_limit_error": 429,
    "invalid_request_error": 400,
    "request_too_large": 413,
    "authentication_error": 401,
    "permission_error": 403,
}


def anthropic_messages(
    client: Any = None, *, base_url: str | None = None, api_key: str | None = None
) -> SdkClient:
    """A client for Messages, and for servers that speak it."""

    def begin(sdk: Any, request: dict[str, Any]) -> Any:
        """Ask for a stream. Only the beta client takes the field `betas`."""
        create = sdk.messages.create
        if "betas" in request:
            create = sdk.beta.messages.create
        return create(**move_into_body(create, request | {"stream": True}))

    make = make_later("anthropic", "AsyncAnthropic", base_url=base_url, api_key=api_key)
    return SdkClient("anthropic", client=client, make=make, begin=begin, stream_format=MESSAGES_FORMAT)


def _read_pieces(item: Any) -> Iterator[TextEvent | ThinkingEvent]:
    """Read a block as it begins, or what a later event adds to it."""
    match text_at(item, "type"):
        case "error":
            kind = text_at(item, "error", "type")
            message = text_at(item, "error", "message")
            raise failure(_STATUS_OF_ERROR.get(kind, 500), f"{message} {kind}")
        case "content_block_start":
            if text := text_at(item, "content_block", "text"):
                yield TextEvent(text)
        case "content_block_delta":
            if text := text_at(item, "delta", "text"):
                yield TextEvent(text)
            elif thought := text_at(item, "delta", "thinking"):
                yield ThinkingEvent(thought)


MESSAGES_FORMAT = StreamFormat(
    read_pieces=_read_pieces,
    absorb=DIALECT.answers.absorb_stream,
    reasons={
        "end_turn": "end",
        "stop_sequence": "end",
        "tool_use": "tool",
        "pause_turn": "other",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "refusal": "refused",
        "error": "error",
    },
)
