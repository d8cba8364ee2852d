"""Ollama's own chat API over the official SDK. It has no ids for calls, and counts no cache.

If a prompt is longer than the window that the server was started with, the server silently drops its first
messages, and the SDK has no argument against that. So `window` asks for one as large as the budget's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lamina.clients.events import SdkClient, StreamFormat, TextEvent, ThinkingEvent, make_later, text_at
from lamina.clients.failures import failure
from lamina.dialects.ollama import DIALECT

ARGUMENTS = frozenset(
    "model messages tools stream think logprobs top_logprobs format options keep_alive".split()
)
"""What the SDK's `chat` takes. It cannot send any other field."""


def choose_arguments(request: Mapping[str, Any], window: int | None) -> dict[str, Any]:
    """The arguments of the SDK's `chat` for a request. A window in the request goes before this one."""
    arguments = {name: value for name, value in request.items() if name in ARGUMENTS}
    options: dict[str, Any] = {}
    if window:
        options["num_ctx"] = window
    options |= dict(arguments.get("options") or {})
    if options:
        arguments["options"] = options
    return arguments


def ollama_chat(client: Any = None, *, host: str | None = None, window: int | None = None) -> SdkClient:
    """A client for a local or remote Ollama. `window` is the context that the server should have."""

    def begin(sdk: Any, request: dict[str, Any]) -> Any:
        """Ask for a stream."""
        return sdk.chat(**(choose_arguments(request, window) | {"stream": True}))

    make = make_later("ollama", "AsyncClient", host=host)
    return SdkClient("ollama", client=client, make=make, begin=begin, stream_format=CHAT_FORMAT)


def _read_pieces(item: Any) -> Iterator[TextEvent | ThinkingEvent]:
    error = text_at(item, "error")
    if error:
        raise failure(500, error)
    if thought := text_at(item, "message", "thinking"):
        yield ThinkingEvent(thought)
    if text := text_at(item, "message", "content"):
        yield TextEvent(text)


CHAT_FORMAT = StreamFormat(
    read_pieces=_read_pieces,
    absorb=DIALECT.answers.absorb_stream,
    reasons={"stop": "end", "length": "length", "load": "other", "unload": "other"},
)
