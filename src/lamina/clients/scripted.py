"""A client that answers from a script: for tests, examples and replays. It sends nothing.

    client = Scripted([Line(text="Reading.", calls=(Called(id="c1", name="read", arguments="{}"),)), "Done."])

The script is a list of answers, or a function that sees each request and gives one. An answer is put into
the words of the dialect's stream and read by its own reader: what is tested is what a real client does.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from lamina.clients.anthropic import Events
from lamina.clients.events import Called, CallUsage, EventReader, Reply
from lamina.clients.gemini import Parts
from lamina.clients.ollama import OllamaLines
from lamina.clients.openai import Chunks, Items
from lamina.errors import BadInput


class ScriptedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. `text` arrives in as many pieces as it has words; `fails` is raised after them."""

    text: str = ""
    thinking: str = ""
    calls: tuple[Called, ...] = ()
    used: CallUsage = CallUsage()
    fails: Exception | None = None


Script = (
    Iterable["ScriptedAnswer | str | Exception"]
    | Callable[[Mapping[str, Any]], "ScriptedAnswer | str | Exception"]
)


class Scripted:
    """A client whose answers are known. `requests` are those that it was sent, as they were."""

    def __init__(self, script: Script, *, dialect: str = "openai_chat") -> None:
        if dialect not in _WORDS:
            hint = f"use one of {', '.join(_WORDS)}"
            raise BadInput(f"no script in {dialect!r}", place="dialect", hint=hint)
        self.dialect = dialect
        self.requests: list[dict[str, Any]] = []
        self.closed = 0
        self._script = script if callable(script) else _told(iter(script))

    def send(self, request: Mapping[str, Any]) -> Reply:
        words, reader = _WORDS[self.dialect]

        async def opened() -> AsyncIterator[Any]:
            self.requests.append(msgspec.json.decode(msgspec.json.encode(dict(request))))
            line = self._script(request)
            if isinstance(line, Exception):
                raise line
            spoken = ScriptedAnswer(text=line) if isinstance(line, str) else line
            return self._flow(words(spoken, len(self.requests)), spoken.fails)

        return Reply(opened, reader())

    async def _flow(self, items: Iterable[Any], fails: Exception | None) -> AsyncIterator[Any]:
        try:
            *before, last = items
            for item in before:
                yield item
            if fails is not None:
                raise fails
            yield last
        finally:
            self.closed += 1


def _told(
    lines: Iterator[ScriptedAnswer | str | Exception],
) -> Callable[[Mapping[str, Any]], ScriptedAnswer | str | Exception]:
    def tell(_: Mapping[str, Any]) -> ScriptedAnswer | str | Exception:
        try:
            return next(lines)
        except StopIteration:
            raise BadInput("the script is over", place="script", hint="give one more answer") from None

    return tell


def _pieces(text: str) -> list[str]:
    words = text.split(" ")
    return [word if i == 0 else f" {word}" for i, word in enumerate(words)] if text else []


def _chat(line: ScriptedAnswer, number: int) -> list[Any]:
    def chunk(stop: str | None = None, **delta: Any) -> dict[str, Any]:
        return {"id": f"chat-{number}", "choices": [{"index": 0, "delta": delta, "finish_reason": stop}]}

    calls = [
        {
            "index": i,
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for i, call in enumerate(line.calls)
    ]
    used = line.used
    usage = {
        "prompt_tokens": used.input,
        "completion_tokens": used.output,
        "prompt_tokens_details": {"cached_tokens": used.cached, "cache_write_tokens": used.written},
    }
    items = [chunk(role="assistant")]
    items += [chunk(reasoning_content=piece) for piece in _pieces(line.thinking)]
    items += [chunk(content=piece) for piece in _pieces(line.text)]
    items += [chunk(tool_calls=[call]) for call in calls]
    return [*items, chunk("tool_calls" if calls else "stop") | {"usage": usage}]


def _messages(line: ScriptedAnswer, _: int) -> list[Any]:
    used = line.used
    usage = {"input_tokens": used.input - used.cached - used.written, "cache_read_input_tokens": used.cached}
    usage |= {"cache_creation_input_tokens": used.written}
    items: list[Any] = [{"type": "message_start", "message": {"role": "assistant", "usage": usage}}]
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if line.thinking:
        said = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(line.thinking)]
        said.append({"type": "signature_delta", "signature": "c2lnbmVk"})
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, said))
    if line.text:
        texts = [{"type": "text_delta", "text": piece} for piece in _pieces(line.text)]
        blocks.append(({"type": "text", "text": ""}, texts))
    for call in line.calls:
        block = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        blocks.append((block, [{"type": "input_json_delta", "partial_json": call.arguments}]))
    for index, (block, deltas) in enumerate(blocks):
        items.append({"type": "content_block_start", "index": index, "content_block": block})
        items += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        items.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": "tool_use" if line.calls else "end_turn"}
    items.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": used.output}})
    return [*items, {"type": "message_stop"}]


def _responses(line: ScriptedAnswer, number: int) -> list[Any]:
    items: list[Any] = []
    output: list[Any] = []
    if line.thinking:
        summary = [{"type": "summary_text", "text": line.thinking}]
        output.append({"type": "reasoning", "id": f"rs_{number}", "summary": summary})
        items.append({"type": "response.reasoning_summary_text.delta", "delta": line.thinking})
    if line.text:
        part = {"type": "output_text", "text": line.text, "annotations": []}
        output.append({"type": "message", "id": f"msg_{number}", "role": "assistant", "content": [part]})
        output[-1]["status"] = "completed"
        place = {"output_index": len(output) - 1, "content_index": 0}
        items += [{"type": "response.output_text.delta", "delta": p, **place} for p in _pieces(line.text)]
    for i, call in enumerate(line.calls):
        said = {"call_id": call.id, "name": call.name, "arguments": call.arguments, "status": "completed"}
        output.append({"type": "function_call", "id": f"fc_{number}_{i}", **said})
    for i, item in enumerate(output):
        items.append({"type": "response.output_item.done", "output_index": i, "item": item})
    used = line.used
    details = {"cached_tokens": used.cached, "cache_write_tokens": used.written}
    usage = {"input_tokens": used.input, "input_tokens_details": details, "output_tokens": used.output}
    answer = {"status": "completed", "output": output, "usage": usage}
    return [*items, {"type": "response.completed", "response": answer}]


def _gemini(line: ScriptedAnswer, _: int) -> list[Any]:
    parts: list[Any] = [{"text": piece, "thought": True} for piece in _pieces(line.thinking)]
    parts += [{"text": piece} for piece in _pieces(line.text)]
    for call in line.calls:
        known = {"id": call.id} if call.id else {}
        parts.append({"functionCall": {**known, "name": call.name, "args": json.loads(call.arguments)}})
    items = [{"candidates": [{"content": {"role": "model", "parts": [part]}}]} for part in parts]
    used = line.used
    usage = {"promptTokenCount": used.input, "cachedContentTokenCount": used.cached}
    usage |= {"candidatesTokenCount": used.output}
    return [*items, {"candidates": [{"finishReason": "STOP"}], "usageMetadata": usage}]


def _ollama(line: ScriptedAnswer, _: int) -> list[Any]:
    messages: list[Any] = [{"thinking": piece} for piece in _pieces(line.thinking)]
    messages += [{"content": piece} for piece in _pieces(line.text)]
    for call in line.calls:
        function = {"name": call.name, "arguments": json.loads(call.arguments)}
        messages.append({"content": "", "tool_calls": [{"function": function}]})
    items = [{"message": {"role": "assistant", **message}, "done": False} for message in messages]
    last = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}
    counts = {"prompt_eval_count": line.used.input, "eval_count": line.used.output}
    return [*items, last | counts]


_WORDS: dict[str, tuple[Callable[[ScriptedAnswer, int], list[Any]], Callable[[], EventReader]]] = {
    "openai_chat": (_chat, Chunks),
    "openai_responses": (_responses, Items),
    "anthropic": (_messages, Events),
    "gemini": (_gemini, Parts),
    "ollama": (_ollama, OllamaLines),
}
