"""What is no request of an API is refused, with the place where it stops being one."""

from __future__ import annotations

from typing import Any

import pytest

from lamina import BadInput
from lamina.dialects import DIALECTS
from tests.dialects import bedrock_requests as bedrock
from tests.dialects import gemini_requests as gemini
from tests.dialects import ollama_requests as ollama
from tests.dialects import openai_chat_requests as chat
from tests.dialects import openai_responses_requests as responses

Json = dict[str, Any]


def _messages(*messages: Any, **fields: Any) -> Json:
    return {"messages": list(messages), **fields}


def _called(fields: Json) -> Json:
    return {"role": "assistant", "content": [{"type": "tool_use", **fields}]}


def _answered(fields: Json) -> Json:
    return {"role": "user", "content": [{"type": "tool_result", **fields}]}


UNREADABLE: dict[str, list[tuple[Any, str]]] = {
    "anthropic": [
        (_messages({"role": "user", "content": [{"type": "text"}]}), "messages[0].content[0].text"),
        (_messages({"role": "user", "content": "q"}, {"role": "user"}), "messages[1].content"),
        (_messages(_called({"id": "x"})), "messages[0].content[0].name"),
        (_messages(_answered({})), "messages[0].content[0].tool_use_id"),
        (_messages(_answered({"tool_use_id": "t", "content": ["x"]})), "messages[0].content[0].content[0]"),
        (_messages({"role": "developer", "content": "x"}), "messages[0].role"),
    ],
    "openai_chat": [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        (chat.request(7), "messages[0]"),
        (chat.request({"content": "x"}), "messages[0].role"),
        (chat.request(chat.user(), {"role": "narrator"}), "messages[1].role"),
        (chat.request(chat.user({"a": 1})), "messages[0].content"),
        (chat.request(chat.user([{"type": "text", "text": 1}])), "messages[0].content[0].text"),
        (chat.request(chat.user(["x"])), "messages[0].content[0]"),
        (chat.request({"role": "assistant", "tool_calls": 5}), "messages[0].tool_calls"),
        (chat.request(chat.asks(chat.called("a"), {"id": "b"})), "messages[0].tool_calls[1].function"),
        (chat.request(chat.asks(chat.called("a", "f", 3))), "messages[0].tool_calls[0].arguments"),  # type: ignore[arg-type]
        (chat.request(chat.answers(5)), "messages[0].tool_call_id"),  # type: ignore[arg-type]
        (chat.request(chat.user(), tools=["x"]), "tools[0]"),
    ],
    "openai_responses": [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": 7}, "input"),
        ({"input": "x", "instructions": []}, "instructions"),
        (responses.request(7), "input[0]"),
        (responses.request({"content": "x"}), "input[0].type"),
        (responses.request({"type": 5}), "input[0].type"),
        (responses.request(responses.user(), {"role": "narrator"}), "input[1].role"),
        (responses.request({"role": ["user"]}), "input[0].role"),
        (responses.request(responses.user({"a": 1})), "input[0].content"),
        (responses.request(responses.user([{"type": "input_text", "text": 1}])), "input[0].content[0].text"),
        (responses.request(responses.user(["x"])), "input[0].content[0]"),
        (responses.request(responses.user([{"type": []}])), "input[0].content[0].type"),
        (responses.request({"type": "function_call", "call_id": "c"}), "input[0].name"),
        (responses.request(responses.calls(5)), "input[0].call_id"),  # type: ignore[arg-type]
        (responses.request(responses.calls("c", arguments=[])), "input[0].arguments"),  # type: ignore[arg-type]
        (responses.request(responses.answers("c", 5)), "input[0].output"),
        (responses.request(responses.thinks(1, summary=5)), "input[0].summary"),
        (responses.request(responses.thinks(1, summary=["x"])), "input[0].summary[0]"),
        (responses.request(responses.user(), tools={}, previous_response_id="r") | {"tools": 5}, "tools"),
        (responses.request(responses.user(), tools=[1]), "tools[0]"),
    ],
    "gemini": [
        ({}, "contents"),
        ({"contents": []}, "contents"),
        ({"contents": 7}, "contents"),
        ({"contents": ["a", 7]}, "contents[1]"),
        (gemini.body({"role": "narrator", "parts": []}), "contents[0].role"),
        (gemini.body(gemini.user(), {"role": "system", "parts": [{"text": "x"}]}), "contents[1].role"),
        (gemini.body({"role": "user"}), "contents[0].parts"),
        (gemini.body({"role": "user", "parts": "x"}), "contents[0].parts"),
        (gemini.body(gemini.user({"text": 1})), "contents[0].parts[0].text"),
        (gemini.body(gemini.user(gemini.asks())), "contents[0].parts[0].functionCall"),
        (gemini.body(gemini.model(gemini.answers())), "contents[0].parts[0].functionResponse"),
        (gemini.body(gemini.model({"functionCall": {"args": {}}})), "contents[0].parts[0].functionCall.name"),
        (
            gemini.body(gemini.model({"functionCall": {"name": "f", "args": [1]}})),
            "contents[0].parts[0].functionCall.args",
        ),
        (
            gemini.body(gemini.user({"functionResponse": {"response": 1}})),
            "contents[0].parts[0].functionResponse.response",
        ),
        (gemini.body(gemini.user(), tools=["x"]), "tools[0]"),
        (gemini.arguments(gemini.user(), tools=7), "config.tools"),
        ({"contents": "x", "config": 7}, "config"),
        (gemini.arguments(gemini.user(), system_instruction=["x", 7]), "config.system_instruction[1]"),
        (
            gemini.arguments(gemini.user(), system_instruction={"parts": [7]}),
            "config.system_instruction.parts[0]",
        ),
    ],
    "ollama": [
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        (ollama.request("hi"), "messages[0]"),
        (ollama.request({"role": "narrator", "content": "x"}), "messages[0].role"),
        (ollama.request(ollama.user(["x"])), "messages[0].content"),
        (ollama.request(ollama.user(images="x")), "messages[0].images"),
        (ollama.request(ollama.user(images=["https://example.org/a.png"])), "messages[0].images[0]"),
        (ollama.request(ollama.user(images=[5])), "messages[0].images[0]"),
        (ollama.request(ollama.answered(thinking=5)), "messages[0].thinking"),
        (ollama.request(ollama.asks(5)), "messages[0].tool_calls[0]"),
        (ollama.request(ollama.asks({"function": {"name": 5}})), "messages[0].tool_calls[0].function.name"),
        (ollama.request(ollama.asks(ollama.called("f", 5))), "messages[0].tool_calls[0].function.arguments"),
        (ollama.request(ollama.answers(name=5)), "messages[0].tool_name"),  # type: ignore[arg-type]
        (ollama.request(ollama.user(), tools=[5]), "tools[0]"),
        (ollama.request(ollama.user(), tools=[print]), "tools[0]"),
    ],
    "bedrock_converse": [
        (_messages({"role": "bot", "content": []}), "messages[0].role"),
        (_messages({"role": "user", "content": "Hi"}), "messages[0].content"),
        (
            bedrock.request(bedrock.user({"text": "a"}, bedrock.answers("t1", {"text": 5}))),
            "messages[0].content[1].toolResult.content[0].text",
        ),
        (bedrock.request(bedrock.user(bedrock.called("t1"))), "messages[0].content[0]"),
    ],
    "text": [
        ({}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": ["a"]}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ([], ""),
    ],
}
UNSEEN: dict[str, list[tuple[Any, str]]] = {
    "anthropic": [
        (_messages(3), "messages[0]"),
        (
            _messages({"role": "user", "content": [{"type": "text", "text": "\ud800"}]}),
            "messages[0].content[0]",
        ),
        (_messages(_answered({"tool_use_id": "t", "content": 3})), "messages[0].content[0].content"),
        (_messages(tools="x"), "tools"),
    ],
    "openai_chat": [
        (_messages(3), "messages[0]"),
        (_messages({"role": "user", "content": [3]}), "messages[0].content[0]"),
        (_messages({"role": "user", "content": "\ud800"}), "messages[0].content[0]"),
    ],
    "text": UNREADABLE["text"],
}
"""Requests that have no stream either."""


def make_rows(table: dict[str, list[tuple[Any, str]]]) -> list[Any]:
    return [
        pytest.param(name, request, place, id=f"{name}-{number}-{place}")
        for name, requests in table.items()
        for number, (request, place) in enumerate(requests)
    ]


@pytest.mark.parametrize(("name", "request_", "place"), make_rows(UNREADABLE))
def test_what_is_no_request_is_refused_with_its_place(name: str, request_: Any, place: str) -> None:
    with pytest.raises(BadInput) as refused:
        DIALECTS[name].wire.parse(request_)
    assert refused.value.place == place
    assert refused.value.hint


@pytest.mark.parametrize(("name", "request_", "place"), make_rows(UNSEEN))
def test_what_no_cache_can_read_is_refused_with_its_place(name: str, request_: Any, place: str) -> None:
    with pytest.raises(BadInput) as refused:
        DIALECTS[name].cache.stream(request_)
    assert refused.value.place == place
