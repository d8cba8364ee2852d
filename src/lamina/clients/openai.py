"""OpenAI's Chat Completions, as every compatible server has it, and its Responses, over the official SDK.

    client = openai_chat(base_url="http://127.0.0.1:8080/v1", api_key="none")  # vLLM, llama.cpp, ...

A field of the request that the SDK has no argument for goes into the body as it is: servers have their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lamina.clients.events import (
    SdkClient,
    StreamFormat,
    TextEvent,
    ThinkingEvent,
    first_at,
    make_later,
    move_into_body,
    text_at,
    value_at,
)
from lamina.clients.failures import CallFailed, failure
from lamina.dialects.openai_chat import DIALECT as CHAT
from lamina.dialects.openai_responses import DIALECT as RESPONSES

_STATUS_OF_CODE = {"rate_limit_exceeded": 429, "context_length_exceeded": 400, "invalid_prompt": 400}


def openai_chat(
    client: Any = None, *, base_url: str | None = None, api_key: str | None = None, usage: bool = True
) -> SdkClient:
    """A client for Chat Completions. `usage`: ask for the counts at the end of the stream."""

    def begin(sdk: Any, request: dict[str, Any]) -> Any:
        # Without it a stream reports no usage at all. Some servers refuse the field, so it can be left out.
        if usage and "stream_options" not in request:
            request["stream_options"] = {"include_usage": True}
        return _start_stream(sdk.chat.completions.create, request)

    make = make_later("openai", "AsyncOpenAI", base_url=base_url, api_key=api_key)
    return SdkClient("openai_chat", client=client, make=make, begin=begin, stream_format=CHAT_FORMAT)


def openai_responses(
    client: Any = None, *, base_url: str | None = None, api_key: str | None = None
) -> SdkClient:
    """A client for the Responses API, over the given `AsyncOpenAI` or a new one."""

    def begin(sdk: Any, request: dict[str, Any]) -> Any:
        return _start_stream(sdk.responses.create, request)

    make = make_later("openai", "AsyncOpenAI", base_url=base_url, api_key=api_key)
    return SdkClient(
        "openai_responses", client=client, make=make, begin=begin, stream_format=RESPONSES_FORMAT
    )


def _start_stream(create: Callable[..., Any], request: dict[str, Any]) -> Any:
    """Ask for a stream. Fields that the SDK has no argument for go into the body."""
    return create(**move_into_body(create, request | {"stream": True}))


def _read_chat_pieces(item: Any) -> Iterator[TextEvent | ThinkingEvent]:
    """Read a chunk. Reasoning has no official field: servers use one of two names."""
    error = value_at(item, "error")
    if error:  # some servers answer 200 and report the error in the stream
        status = value_at(error, "code")
        if not isinstance(status, int):
            status = 500
        raise failure(status, text_at(error, "message"))
    delta = value_at(first_at(item, "choices"), "delta")
    if thought := text_at(delta, "reasoning_content") or text_at(delta, "reasoning"):
        yield ThinkingEvent(thought)
    if text := text_at(delta, "content") or text_at(delta, "refusal"):
        yield TextEvent(text)


CHAT_FORMAT = StreamFormat(
    read_pieces=_read_chat_pieces,
    absorb=CHAT.answers.absorb_stream,
    reasons={
        "stop": "end",
        "tool_calls": "tool",
        "function_call": "tool",
        "length": "length",
        "content_filter": "refused",
        "error": "error",
    },
)


def _read_responses_pieces(item: Any) -> Iterator[TextEvent | ThinkingEvent]:
    """Read an event. An answer that failed says so in its last event."""
    match text_at(item, "type"):
        case "response.output_text.delta" | "response.refusal.delta":
            yield TextEvent(text_at(item, "delta"))
        case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
            yield ThinkingEvent(text_at(item, "delta"))
        case "response.failed":
            raise _make_failure(value_at(item, "response", "error"))
        case "error":
            raise _make_failure(item)


def _make_failure(error: Any) -> CallFailed:
    """The error for one that the stream reports. It has a code, and no status of HTTP."""
    code = text_at(error, "code")
    words = [text_at(error, "message"), code]
    return failure(_STATUS_OF_CODE.get(code, 500), " ".join(filter(None, words)))


RESPONSES_FORMAT = StreamFormat(
    read_pieces=_read_responses_pieces,
    absorb=RESPONSES.answers.absorb_stream,
    reasons={"completed": "end", "max_output_tokens": "length", "content_filter": "refused"},
)
