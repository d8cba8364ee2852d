"""A client that answers from a script: for tests, examples and replays. It sends nothing.

    call = CallEvent(id="c1", name="read", arguments="{}")
    client = ScriptedClient([ScriptedAnswer(text="Reading.", calls=(call,)), "Done."])

The script is a list of answers, or a function that sees each request and returns one. An answer is written as
the dialect's stream and read like a real one, so a test exercises what a real client does.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from lamina.clients.anthropic import MESSAGES_FORMAT
from lamina.clients.events import CallEvent, Reply, StreamFormat, UsageEvent
from lamina.clients.gemini import CONTENT_FORMAT
from lamina.clients.ollama import CHAT_FORMAT as OLLAMA_FORMAT
from lamina.clients.openai import CHAT_FORMAT, RESPONSES_FORMAT
from lamina.errors import BadInput


class ScriptedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. `text` arrives in as many pieces as it has words, and `fails` is raised after them."""

    text: str = ""
    thinking: str = ""
    calls: tuple[CallEvent, ...] = ()
    used: UsageEvent = UsageEvent()
    fails: Exception | None = None


Script = (
    Iterable["ScriptedAnswer | str | Exception"]
    | Callable[[Mapping[str, Any]], "ScriptedAnswer | str | Exception"]
)


class ScriptedClient:
    """A client that answers from a script instead of a model, for tests and examples.

    `requests` has what it was sent, and `closed` counts the streams that were closed.
    """

    def __init__(self, script: Script, *, dialect: str = "openai_chat") -> None:
        if dialect not in _STREAMS:
            hint = f"use one of {', '.join(_STREAMS)}"
            raise BadInput(f"no script in {dialect!r}", place="dialect", hint=hint)
        self.dialect = dialect
        self.requests: list[dict[str, Any]] = []
        self.closed = 0
        self._next_answer = script if callable(script) else _read_in_turn(iter(script))

    def send(self, request: Mapping[str, Any]) -> Reply:
        write_stream, stream_format = _STREAMS[self.dialect]

        async def open_stream() -> AsyncIterator[Any]:
            self.requests.append(msgspec.json.decode(msgspec.json.encode(dict(request))))
            answer = self._next_answer(request)
            if isinstance(answer, Exception):
                raise answer
            if isinstance(answer, str):
                answer = ScriptedAnswer(text=answer)
            return self._yield_items(write_stream(answer, len(self.requests)), answer.fails)

        return Reply(open_stream, stream_format)

    async def _yield_items(self, items: Iterable[Any], fails: Exception | None) -> AsyncIterator[Any]:
        """Yield the items. A failure comes before the last one, so the answer has no end then."""
        try:
            *first_items, last_item = items
            for item in first_items:
                yield item
            if fails is not None:
                raise fails
            yield last_item
        finally:
            self.closed += 1


def _read_in_turn(
    answers: Iterator[ScriptedAnswer | str | Exception],
) -> Callable[[Mapping[str, Any]], ScriptedAnswer | str | Exception]:
    """A function that gives the next answer, whatever the request is."""

    def next_answer(_: Mapping[str, Any]) -> ScriptedAnswer | str | Exception:
        try:
            return next(answers)
        except StopIteration:
            raise BadInput("the script is over", place="script", hint="give one more answer") from None

    return next_answer


def _split_words(text: str) -> list[str]:
    """Split a text into pieces that join to it: "a b" is "a" and " b"."""
    if not text:
        return []
    first, *others = text.split(" ")
    return [first, *(f" {word}" for word in others)]


def _write_chat(answer: ScriptedAnswer, number: int) -> list[Any]:
    def chunk(stop: str | None = None, **delta: Any) -> dict[str, Any]:
        return {"id": f"chat-{number}", "choices": [{"index": 0, "delta": delta, "finish_reason": stop}]}

    items = [chunk(role="assistant")]
    items += [chunk(reasoning_content=piece) for piece in _split_words(answer.thinking)]
    items += [chunk(content=piece) for piece in _split_words(answer.text)]
    for index, call in enumerate(answer.calls):
        function = {"name": call.name, "arguments": call.arguments}
        wire_call = {"index": index, "id": call.id, "type": "function", "function": function}
        items.append(chunk(tool_calls=[wire_call]))
    usage = {
        "prompt_tokens": answer.used.input,
        "completion_tokens": answer.used.output,
        "prompt_tokens_details": {
            "cached_tokens": answer.used.cached,
            "cache_write_tokens": answer.used.written,
        },
    }
    stop = "tool_calls" if answer.calls else "stop"
    return [*items, chunk(stop) | {"usage": usage}]


def _write_messages(answer: ScriptedAnswer, _: int) -> list[Any]:
    used = answer.used
    usage = {
        "input_tokens": used.input - used.cached - used.written,
        "cache_read_input_tokens": used.cached,
        "cache_creation_input_tokens": used.written,
        "cache_creation": {
            "ephemeral_5m_input_tokens": used.written - used.written_long,
            "ephemeral_1h_input_tokens": used.written_long,
        },
    }
    items: list[Any] = [{"type": "message_start", "message": {"role": "assistant", "usage": usage}}]
    for index, (block, deltas) in enumerate(_message_blocks(answer)):
        items.append({"type": "content_block_start", "index": index, "content_block": block})
        items += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        items.append({"type": "content_block_stop", "index": index})
    stop = {"stop_reason": "tool_use" if answer.calls else "end_turn"}
    items.append({"type": "message_delta", "delta": stop, "usage": {"output_tokens": used.output}})
    return [*items, {"type": "message_stop"}]


def _message_blocks(answer: ScriptedAnswer) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yield the blocks of a message as they begin, each with the deltas that fill it."""
    if answer.thinking:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _split_words(answer.thinking)]
        deltas.append({"type": "signature_delta", "signature": "c2lnbmVk"})
        yield {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if answer.text:
        deltas = [{"type": "text_delta", "text": piece} for piece in _split_words(answer.text)]
        yield {"type": "text", "text": ""}, deltas
    for call in answer.calls:
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        yield block, [{"type": "input_json_delta", "partial_json": call.arguments}]


def _write_responses(answer: ScriptedAnswer, number: int) -> list[Any]:
    items: list[Any] = []
    output: list[Any] = []
    if answer.thinking:
        summary = [{"type": "summary_text", "text": answer.thinking}]
        output.append({"type": "reasoning", "id": f"rs_{number}", "summary": summary})
        items.append({"type": "response.reasoning_summary_text.delta", "delta": answer.thinking})
    if answer.text:
        part = {"type": "output_text", "text": answer.text, "annotations": []}
        message = {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": [part]}
        output.append({**message, "status": "completed"})
        place = {"output_index": len(output) - 1, "content_index": 0}
        delta = {"type": "response.output_text.delta", **place}
        items += [{**delta, "delta": piece} for piece in _split_words(answer.text)]
    for index, call in enumerate(answer.calls):
        function_call = {
            "type": "function_call",
            "id": f"fc_{number}_{index}",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
            "status": "completed",
        }
        output.append(function_call)
    for index, item in enumerate(output):
        items.append({"type": "response.output_item.done", "output_index": index, "item": item})
    used = answer.used
    usage = {
        "input_tokens": used.input,
        "input_tokens_details": {"cached_tokens": used.cached, "cache_write_tokens": used.written},
        "output_tokens": used.output,
    }
    response = {"status": "completed", "output": output, "usage": usage}
    return [*items, {"type": "response.completed", "response": response}]


def _write_gemini(answer: ScriptedAnswer, _: int) -> list[Any]:
    parts: list[Any] = [{"text": piece, "thought": True} for piece in _split_words(answer.thinking)]
    parts += [{"text": piece} for piece in _split_words(answer.text)]
    for call in answer.calls:
        function_call: dict[str, Any] = {}
        if call.id:
            function_call["id"] = call.id
        function_call |= {"name": call.name, "args": json.loads(call.arguments)}
        parts.append({"functionCall": function_call})
    items = [{"candidates": [{"content": {"role": "model", "parts": [part]}}]} for part in parts]
    usage = {
        "promptTokenCount": answer.used.input,
        "cachedContentTokenCount": answer.used.cached,
        "candidatesTokenCount": answer.used.output,
    }
    return [*items, {"candidates": [{"finishReason": "STOP"}], "usageMetadata": usage}]


def _write_ollama(answer: ScriptedAnswer, _: int) -> list[Any]:
    messages: list[Any] = [{"thinking": piece} for piece in _split_words(answer.thinking)]
    messages += [{"content": piece} for piece in _split_words(answer.text)]
    for call in answer.calls:
        function = {"name": call.name, "arguments": json.loads(call.arguments)}
        messages.append({"content": "", "tool_calls": [{"function": function}]})
    items = [{"message": {"role": "assistant", **message}, "done": False} for message in messages]
    last_item = {
        "message": {"role": "assistant", "content": ""},
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": answer.used.input,
        "eval_count": answer.used.output,
    }
    return [*items, last_item]


_STREAMS: dict[str, tuple[Callable[[ScriptedAnswer, int], list[Any]], StreamFormat]] = {
    "openai_chat": (_write_chat, CHAT_FORMAT),
    "openai_responses": (_write_responses, RESPONSES_FORMAT),
    "anthropic": (_write_messages, MESSAGES_FORMAT),
    "gemini": (_write_gemini, CONTENT_FORMAT),
    "ollama": (_write_ollama, OLLAMA_FORMAT),
}
