"""How each API writes a question, parallel calls and their results, for tests that try all of them alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

Json = dict[str, Any]


class Call(NamedTuple):
    """A call. An id or a name of "" is not written."""

    id: str
    name: str = "read"
    arguments: Any = {}  # noqa: RUF012 - never changed


class Result(NamedTuple):
    """A result: the id and the name that its client gives it, and what it says."""

    id: str
    name: str = "read"
    text: str = "x"


class Wire(NamedTuple):
    """An API. `head` is what a request has besides its turns, which stand in `field`."""

    name: str
    head: Json
    field: str
    ask: Callable[[str], Json]
    call: Callable[[list[Call]], list[Json]]
    answer: Callable[[list[Result]], list[Json]]

    def request(self, turns: list[Json]) -> Json:
        return {**self.head, self.field: turns}

    def step(self, id_: str, *, answered_id: str = "") -> list[Json]:
        """A call, and its result or one for another call."""
        return [*self.call([Call(id_)]), *self.answer([Result(answered_id or id_)])]


def _written(**fields: Any) -> Json:
    return {name: value for name, value in fields.items() if value != ""}


def _ask(text: str) -> Json:
    return {"role": "user", "content": text}


def _anthropic_calls(calls: list[Call]) -> list[Json]:
    blocks = [
        {"type": "tool_use", "id": each.id, "name": each.name, "input": each.arguments} for each in calls
    ]
    return [{"role": "assistant", "content": blocks}]


def _anthropic_results(results: list[Result]) -> list[Json]:
    blocks = [{"type": "tool_result", "tool_use_id": each.id, "content": each.text} for each in results]
    return [{"role": "user", "content": blocks}]


def _chat_calls(calls: list[Call]) -> list[Json]:
    written = []
    for each in calls:
        function = {"name": each.name, "arguments": json.dumps(each.arguments)}
        written.append(_written(id=each.id, type="function", function=function))
    return [{"role": "assistant", "content": None, "tool_calls": written}]


def _chat_results(results: list[Result]) -> list[Json]:
    return [
        _written(role="tool", tool_call_id=each.id, name=each.name) | {"content": each.text}
        for each in results
    ]


def _responses_calls(calls: list[Call]) -> list[Json]:
    return [
        {
            "type": "function_call",
            "call_id": each.id,
            "name": each.name,
            "arguments": json.dumps(each.arguments),
        }
        for each in calls
    ]


def _responses_results(results: list[Result]) -> list[Json]:
    return [
        _written(type="function_call_output", call_id=each.id, name=each.name) | {"output": each.text}
        for each in results
    ]


def _gemini_calls(calls: list[Call]) -> list[Json]:
    parts = [
        {"functionCall": _written(id=each.id, name=each.name) | {"args": each.arguments}} for each in calls
    ]
    return [{"role": "model", "parts": parts}]


def _gemini_results(results: list[Result]) -> list[Json]:
    parts = [
        {"functionResponse": _written(id=each.id, name=each.name) | {"response": {"output": each.text}}}
        for each in results
    ]
    return [{"role": "user", "parts": parts}]


def _ollama_calls(calls: list[Call]) -> list[Json]:
    written = [
        _written(id=each.id, function={"name": each.name, "arguments": each.arguments}) for each in calls
    ]
    return [{"role": "assistant", "content": "", "tool_calls": written}]


def _ollama_results(results: list[Result]) -> list[Json]:
    return [
        _written(role="tool", tool_call_id=each.id, tool_name=each.name) | {"content": each.text}
        for each in results
    ]


def _converse_calls(calls: list[Call]) -> list[Json]:
    blocks = [
        {"toolUse": {"toolUseId": each.id, "name": each.name, "input": each.arguments}} for each in calls
    ]
    return [{"role": "assistant", "content": blocks}]


def _converse_results(results: list[Result]) -> list[Json]:
    blocks = [{"toolResult": {"toolUseId": each.id, "content": [{"text": each.text}]}} for each in results]
    return [{"role": "user", "content": blocks}]


WIRES: dict[str, Wire] = {
    wire.name: wire
    for wire in (
        Wire(
            "anthropic",
            {"model": "claude-opus-4-8", "max_tokens": 100},
            "messages",
            _ask,
            _anthropic_calls,
            _anthropic_results,
        ),
        Wire("openai_chat", {"model": "gpt-5"}, "messages", _ask, _chat_calls, _chat_results),
        Wire("openai_responses", {"model": "gpt-5"}, "input", _ask, _responses_calls, _responses_results),
        Wire(
            "gemini",
            {"model": "gemini-2.5-pro"},
            "contents",
            lambda text: {"role": "user", "parts": [{"text": text}]},
            _gemini_calls,
            _gemini_results,
        ),
        Wire("ollama", {"model": "qwen3", "options": {}}, "messages", _ask, _ollama_calls, _ollama_results),
        Wire(
            "bedrock_converse",
            {"modelId": "anthropic.claude-sonnet-4-5-20250929-v1:0"},
            "messages",
            lambda text: {"role": "user", "content": [{"text": text}]},
            _converse_calls,
            _converse_results,
        ),
    )
}
