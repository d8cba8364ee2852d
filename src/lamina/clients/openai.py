"""OpenAI's Chat Completions, as every compatible server has it, and its Responses, over the official SDK.

    client = openai_chat(base_url="http://127.0.0.1:8080/v1", api_key="none")  # vLLM, llama.cpp, ...

A field of the request that the SDK has no argument for goes into the body as it is: servers have their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lamina.clients.events import (
    CallUsage,
    Event,
    GrowingCalls,
    Reason,
    Sdk,
    Spoke,
    Stopped,
    Thought,
    at,
    in_body,
    text_at,
    used,
)
from lamina.clients.failures import failure

_STOPS: dict[str, Reason] = {
    "stop": "end",
    "tool_calls": "tool",
    "function_call": "tool",
    "length": "length",
    "content_filter": "refused",
    "error": "error",
}


def openai_chat(
    client: Any = None, *, base_url: str | None = None, api_key: str | None = None, usage: bool = True
) -> Sdk:
    """A client for Chat Completions. `usage`: ask for the counts at the end of the stream."""

    def begin(sdk: Any, request: dict[str, Any]) -> Any:
        options = {"include_usage": True} if usage else None
        if options and "stream_options" not in request:
            request["stream_options"] = options
        return _sent(sdk.chat.completions.create, request)

    return Sdk("openai_chat", client=client, make=_made(base_url, api_key), begin=begin, reader=Chunks)


def openai_responses(client: Any = None, *, base_url: str | None = None, api_key: str | None = None) -> Sdk:
    """A client for Responses."""

    def begin(sdk: Any, request: dict[str, Any]) -> Any:
        return _sent(sdk.responses.create, request)

    return Sdk("openai_responses", client=client, make=_made(base_url, api_key), begin=begin, reader=Items)


def _made(base_url: str | None, api_key: str | None) -> Callable[[], Any]:
    def make() -> Any:
        import openai  # noqa: PLC0415 - an SDK is imported by who uses it

        return openai.AsyncOpenAI(base_url=base_url, api_key=api_key)

    return make


def _sent(create: Callable[..., Any], request: dict[str, Any]) -> Any:
    return create(**in_body(create, request | {"stream": True}))


class Chunks:
    """Reads chunks of Chat Completions. Reasoning has no official field: servers use one of two names."""

    def __init__(self) -> None:
        self._calls, self._used, self._stop = GrowingCalls(), CallUsage(), ""

    def read(self, item: Any) -> Iterable[Event]:
        if at(item, "error"):  # some servers answer 200 and say it in the stream
            code = at(item, "error", "code")
            raise failure(code if isinstance(code, int) else 500, text_at(item, "error", "message"))
        if usage := at(item, "usage"):
            self._used = used(usage)
        choice = at(item, "choices", 0)
        self._stop = text_at(choice, "finish_reason") or self._stop
        delta = at(choice, "delta")
        if text := text_at(delta, "reasoning_content") or text_at(delta, "reasoning"):
            yield Thought(text)
        if text := text_at(delta, "content") or text_at(delta, "refusal"):
            yield Spoke(text)
        for call in at(delta, "tool_calls") or ():
            function = at(call, "function")
            self._calls.add(
                at(call, "index"),
                text_at(call, "id"),
                text_at(function, "name"),
                text_at(function, "arguments"),
            )

    def end(self) -> Iterable[Event]:
        yield from self._calls.events()
        if self._used != CallUsage():
            yield self._used
        reason = "tool" if self._calls and self._stop == "stop" else _STOPS.get(self._stop, "other")
        yield Stopped(reason=reason if self._stop else "error", said=self._stop)


_FAILED = {"rate_limit_exceeded": 429, "context_length_exceeded": 400, "invalid_prompt": 400}
_ENDS = ("response.completed", "response.incomplete", "response.failed")
_SPOKEN = ("response.output_text.delta", "response.refusal.delta")
_REASONED = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")


class Items:
    """Reads events of Responses."""

    def __init__(self) -> None:
        self._calls, self._used, self._status, self._why = GrowingCalls(), CallUsage(), "", ""

    def read(self, item: Any) -> Iterable[Event]:
        sort = text_at(item, "type")
        if sort in _SPOKEN:
            yield Spoke(text_at(item, "delta"))
        elif sort in _REASONED:
            yield Thought(text_at(item, "delta"))
        elif sort == "response.output_item.done":
            self._done(at(item, "item"))
        elif sort == "error":
            raise _failed(item)
        elif sort in _ENDS:
            self._ended(at(item, "response"))

    def _done(self, item: Any) -> None:
        if text_at(item, "type") in ("function_call", "custom_tool_call"):
            arguments = text_at(item, "arguments") or text_at(item, "input")
            self._calls.add(object(), text_at(item, "call_id"), text_at(item, "name"), arguments)

    def _ended(self, answer: Any) -> None:
        self._status = text_at(answer, "status")
        self._why = text_at(answer, "incomplete_details", "reason")
        self._used = used(at(answer, "usage"))
        if self._status == "failed":
            raise _failed(at(answer, "error"))

    def end(self) -> Iterable[Event]:
        yield from self._calls.events()
        if self._used != CallUsage():
            yield self._used
        said = self._why or self._status
        known: dict[str, Reason] = {"completed": "tool" if self._calls else "end", "": "error"}
        known |= {"max_output_tokens": "length", "content_filter": "refused"}
        yield Stopped(reason=known.get(said, "other"), said=said)


def _failed(error: Any) -> Exception:
    code = text_at(error, "code")
    return failure(_FAILED.get(code, 500), " ".join(filter(None, (text_at(error, "message"), code))))
