"""Ollama's own chat API over the official SDK. It has no ids for calls, and counts no cache.

If a prompt is longer than the window that the server was started with, the server silently drops its first
messages, and the SDK has no argument against that. So `window` asks for one as large as the budget's.
"""

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
from lamina.clients.failures import failure
from lamina.clients.reading import make_usage, read_stop, text_at, value_at

_STOPS: dict[str, Reason] = {"stop": "end", "length": "length", "load": "other", "unload": "other"}

ARGUMENTS = frozenset("model messages tools think logprobs top_logprobs format options keep_alive".split())
"""What the SDK's `chat` takes. It cannot send any other field."""


def ollama_chat(client: Any = None, *, host: str | None = None, window: int | None = None) -> SdkClient:
    """Return a client for a local or remote Ollama. `window` is the context that the server should have."""

    def make() -> Any:
        import ollama  # noqa: PLC0415 - an SDK is imported by who uses it

        return ollama.AsyncClient(host=host)

    def begin(sdk: Any, request: dict[str, Any]) -> Any:
        arguments = {name: value for name, value in request.items() if name in ARGUMENTS}
        options: dict[str, Any] = {}
        if window:
            options["num_ctx"] = window
        options |= dict(arguments.get("options") or {})
        if options:
            arguments["options"] = options
        return sdk.chat(**arguments, stream=True)

    return SdkClient("ollama", client=client, make=make, begin=begin, reader=OllamaReader)


class OllamaReader:
    """Reads the lines of a stream. A call comes complete."""

    def __init__(self) -> None:
        self._usage = UsageEvent()
        self._stop = ""
        self._has_calls = False

    def read(self, item: Any) -> Iterable[Event]:
        if error := text_at(item, "error"):
            raise failure(500, error)
        message = value_at(item, "message")
        if text := text_at(message, "thinking"):
            yield ThinkingEvent(text)
        if text := text_at(message, "content"):
            yield TextEvent(text)
        for call in value_at(message, "tool_calls") or ():
            self._has_calls = True
            arguments = dict(value_at(call, "function", "arguments") or {})
            yield CallEvent(
                id="",
                name=text_at(call, "function", "name"),
                arguments=json.dumps(arguments, ensure_ascii=False),
            )
        if value_at(item, "done"):
            self._stop = text_at(item, "done_reason") or "stop"
            self._usage = make_usage(item)

    def end(self) -> Iterable[Event]:
        if self._usage != UsageEvent():
            yield self._usage
        reason = read_stop(self._stop, _STOPS, has_calls=self._has_calls)
        yield StopEvent(reason=reason, said=self._stop)
