"""Ollama's own chat API over the official SDK. It has no ids for calls, and counts no cache.

Its server drops the first messages of a prompt that is longer than the window it was started with, without a
word, and the SDK has no argument against that: `window` asks for one as large as the budget's.
"""

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
from lamina.clients.failures import failure

_STOPS: dict[str, Reason] = {"stop": "end", "length": "length", "load": "other", "unload": "other"}


def ollama_chat(client: Any = None, *, host: str | None = None, window: int | None = None) -> Sdk:
    """A client for a local or remote Ollama; `window` is the context that the server is to make room for."""

    def make() -> Any:
        import ollama  # noqa: PLC0415 - an SDK is imported by who uses it

        return ollama.AsyncClient(host=host)

    def begin(sdk: Any, request: dict[str, Any]) -> Any:
        known = {name: value for name, value in request.items() if name in ARGUMENTS}
        room = {"num_ctx": window} if window else {}
        if room or known.get("options"):
            known["options"] = room | dict(known.get("options") or {})
        return sdk.chat(**known, stream=True)

    return Sdk("ollama", client=client, make=make, begin=begin, reader=OllamaLines)


ARGUMENTS = frozenset("model messages tools think logprobs top_logprobs format options keep_alive".split())
"""What the SDK's `chat` takes; it has no way to send another field."""


class OllamaLines:
    """Reads the lines of a stream; a call comes whole."""

    def __init__(self) -> None:
        self._used, self._stop, self._called = CallUsage(), "", False

    def read(self, item: Any) -> Iterable[Event]:
        if error := text_at(item, "error"):
            raise failure(500, error)
        message = at(item, "message")
        if text := text_at(message, "thinking"):
            yield Thought(text)
        if text := text_at(message, "content"):
            yield Spoke(text)
        for call in at(message, "tool_calls") or ():
            self._called, given = True, at(call, "function", "arguments")
            arguments = json.dumps(dict(given or {}), ensure_ascii=False)
            yield Called(id="", name=text_at(call, "function", "name"), arguments=arguments)
        if at(item, "done"):
            self._stop = text_at(item, "done_reason") or "stop"
            self._used = used(item)

    def end(self) -> Iterable[Event]:
        if self._used != CallUsage():
            yield self._used
        reason = "tool" if self._called and self._stop == "stop" else _STOPS.get(self._stop, "other")
        yield Stopped(reason=reason if self._stop else "error", said=self._stop)
