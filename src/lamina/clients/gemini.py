"""Gemini's generateContent over the official SDK: requests in the SDK's shape, `model, contents, config`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from lamina.clients.events import (
    SdkClient,
    StreamFormat,
    TextEvent,
    ThinkingEvent,
    first_at,
    make_later,
    text_at,
    value_at,
)
from lamina.dialects.gemini import DIALECT
from lamina.dialects.port import Absorbed


def gemini_content(client: Any = None, *, api_key: str | None = None) -> SdkClient:
    """A client for generateContent; `client` is a `google.genai.Client`, whose `aio` is used."""

    def begin(sdk: Any, request: dict[str, Any]) -> Any:
        """Ask for a stream. The async client may be given itself, or inside the SDK's client."""
        return getattr(sdk, "aio", sdk).models.generate_content_stream(**request)

    make = make_later("google.genai", "Client", api_key=api_key)
    return SdkClient("gemini", client=client, make=make, begin=begin, stream_format=CONTENT_FORMAT)


def _read_pieces(item: Any) -> Iterator[TextEvent | ThinkingEvent]:
    """Read the parts of a chunk. Each part is complete."""
    for part in value_at(first_at(item, "candidates"), "content", "parts") or ():
        text = text_at(part, "text")
        if not text:
            continue
        if value_at(part, "thought"):
            yield ThinkingEvent(text)
        else:
            yield TextEvent(text)


def _absorb(items: Sequence[Any]) -> Absorbed:
    """Read the whole answer. A prompt that was blocked has no candidate that says why it stopped."""
    absorbed = DIALECT.answers.absorb_stream(items)
    for item in items:
        # An object of the SDK has the first name, plain JSON the second.
        feedback = value_at(item, "prompt_feedback") or value_at(item, "promptFeedback")
        if value_at(feedback, "block_reason") or value_at(feedback, "blockReason"):
            return msgspec.structs.replace(absorbed, stop="SAFETY")
    return absorbed


CONTENT_FORMAT = StreamFormat(
    read_pieces=_read_pieces,
    absorb=_absorb,
    reasons={
        "STOP": "end",
        "MAX_TOKENS": "length",
        "SAFETY": "refused",
        "RECITATION": "refused",
        "BLOCKLIST": "refused",
        "PROHIBITED_CONTENT": "refused",
        "SPII": "refused",
        "MALFORMED_FUNCTION_CALL": "error",
    },
)
