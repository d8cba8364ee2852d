"""OpenAI's Chat Completions, as every compatible server has it, and its Responses, over the official SDK.

    client = openai_chat(base_url="http://127.0.0.1:8080/v1", api_key="none")  # vLLM, llama.cpp, ...

A field of the request that the SDK has no argument for goes into the body as it is: servers have their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lamina.clients.events import (
    Event,
    Reason,
    SdkClient,
    StopEvent,
    TextEvent,
    ThinkingEvent,
    UsageEvent,
    move_into_body,
)
from lamina.clients.failures import failure
from lamina.clients.reading import GrowingCalls, make_usage, read_stop, text_at, value_at

_CHAT_STOPS: dict[str, Reason] = {
    "stop": "end",
    "tool_calls": "tool",
    "function_call": "tool",
    "length": "length",
    "content_filter": "refused",
    "error": "error",
}


def openai_chat(
    client: Any = None, *, base_url: str | None = None, api_key: str | None = None, usage: bool = True
) -> SdkClient:
    """Return a client for Chat Completions. `usage`: ask for the counts at the end of the stream."""

    def begin(sdk: Any, request: dict[str, Any]) -> Any:
        if usage and "stream_options" not in request:
            request["stream_options"] = {"include_usage": True}
        return _start_stream(sdk.chat.completions.create, request)

    make = _make_with(base_url, api_key)
    return SdkClient("openai_chat", client=client, make=make, begin=begin, reader=ChatReader)


def openai_responses(
    client: Any = None, *, base_url: str | None = None, api_key: str | None = None
) -> SdkClient:
    """Return a client for Responses."""

    def begin(sdk: Any, request: dict[str, Any]) -> Any:
        return _start_stream(sdk.responses.create, request)

    make = _make_with(base_url, api_key)
    return SdkClient("openai_responses", client=client, make=make, begin=begin, reader=ResponsesReader)


def _make_with(base_url: str | None, api_key: str | None) -> Callable[[], Any]:
    """Return a function that makes the SDK's client."""

    def make() -> Any:
        import openai  # noqa: PLC0415 - an SDK is imported by who uses it

        return openai.AsyncOpenAI(base_url=base_url, api_key=api_key)

    return make


def _start_stream(create: Callable[..., Any], request: dict[str, Any]) -> Any:
    return create(**move_into_body(create, request | {"stream": True}))


class ChatReader:
    """Reads chunks of Chat Completions. Reasoning has no official field: servers use one of two names."""

    def __init__(self) -> None:
        self._calls = GrowingCalls()
        self._usage = UsageEvent()
        self._stop = ""

    def read(self, item: Any) -> Iterable[Event]:
        error = value_at(item, "error")
        if error:  # some servers answer 200 and report the error in the stream
            code = value_at(error, "code")
            status = code if isinstance(code, int) else 500
            raise failure(status, text_at(error, "message"))
        if usage := value_at(item, "usage"):
            self._usage = make_usage(usage)
        choice = value_at(item, "choices", 0)
        self._stop = text_at(choice, "finish_reason") or self._stop
        delta = value_at(choice, "delta")
        if text := text_at(delta, "reasoning_content") or text_at(delta, "reasoning"):
            yield ThinkingEvent(text)
        if text := text_at(delta, "content") or text_at(delta, "refusal"):
            yield TextEvent(text)
        for call in value_at(delta, "tool_calls") or ():
            function = value_at(call, "function")
            self._calls.add(
                value_at(call, "index"),
                text_at(call, "id"),
                text_at(function, "name"),
                text_at(function, "arguments"),
            )

    def end(self) -> Iterable[Event]:
        yield from self._calls.events()
        if self._usage != UsageEvent():
            yield self._usage
        reason = read_stop(self._stop, _CHAT_STOPS, has_calls=bool(self._calls))
        yield StopEvent(reason=reason, said=self._stop)


_RESPONSES_STOPS: dict[str, Reason] = {
    "completed": "end",
    "max_output_tokens": "length",
    "content_filter": "refused",
}

_STATUS_OF_CODE = {"rate_limit_exceeded": 429, "context_length_exceeded": 400, "invalid_prompt": 400}


class ResponsesReader:
    """Reads events of Responses."""

    def __init__(self) -> None:
        self._calls = GrowingCalls()
        self._usage = UsageEvent()
        self._stop = ""

    def read(self, item: Any) -> Iterable[Event]:
        match text_at(item, "type"):
            case "response.output_text.delta" | "response.refusal.delta":
                yield TextEvent(text_at(item, "delta"))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                yield ThinkingEvent(text_at(item, "delta"))
            case "response.output_item.done":
                self._read_item(value_at(item, "item"))
            case "response.completed" | "response.incomplete" | "response.failed":
                self._read_response(value_at(item, "response"))
            case "error":
                raise _make_failure(item)

    def _read_item(self, item: Any) -> None:
        if text_at(item, "type") in ("function_call", "custom_tool_call"):
            arguments = text_at(item, "arguments") or text_at(item, "input")
            own_index = object()  # the item is complete, so no later piece belongs to it
            self._calls.add(own_index, text_at(item, "call_id"), text_at(item, "name"), arguments)

    def _read_response(self, response: Any) -> None:
        """Read the end of an answer: why it stopped, and what it took."""
        status = text_at(response, "status")
        self._stop = text_at(response, "incomplete_details", "reason") or status
        self._usage = make_usage(value_at(response, "usage"))
        if status == "failed":
            raise _make_failure(value_at(response, "error"))

    def end(self) -> Iterable[Event]:
        yield from self._calls.events()
        if self._usage != UsageEvent():
            yield self._usage
        reason = read_stop(self._stop, _RESPONSES_STOPS, has_calls=bool(self._calls))
        yield StopEvent(reason=reason, said=self._stop)


def _make_failure(error: Any) -> Exception:
    """Return the error for one that the stream reports. It has a code, and no status of HTTP."""
    code = text_at(error, "code")
    words = [text_at(error, "message"), code]
    return failure(_STATUS_OF_CODE.get(code, 500), " ".join(filter(None, words)))
