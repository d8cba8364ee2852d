from __future__ import annotations

import json
from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from lamina.core.build import build
from lamina.core.layout import Layout
from lamina.core.options import Options
from lamina.core.values import Budget, RequestHead
from lamina.dialects.anthropic import DIALECT as ANTHROPIC
from lamina.dialects.gemini import DIALECT
from lamina.dialects.openai_chat import DIALECT as OPENAI_CHAT
from lamina.dialects.port import Dialect, PlainHead, Tool
from lamina.errors import BudgetExceeded
from tests.dialects import gemini_requests, openai_chat_requests
from tests.dialects.gemini_requests import Json, accepted, arguments, body, user

SEEDS = st.integers(0, 10_000)


def converted(
    request: Json, source: Dialect, target: Dialect, *, model: str, window: int | None = None
) -> Json:
    """The request in another dialect, valid there."""
    parsed = source.wire.parse(request)
    plain = source.head.read(
        RequestHead(tools=parsed.head.tools, parameters=parsed.head.parameters | {"model": model})
    )
    options = Options(
        repairs=target.wire.repairs, layout=Layout(context="logged"), carries=target.wire.carries
    )
    budget = Budget(window=window, reserve=0) if window else None
    envelope = build(parsed.log, head=target.head.write(plain).head, budget=budget, options=options)
    rendered_request = target.wire.render(envelope)
    assert target.wire.check(rendered_request) == []
    return rendered_request


@given(SEEDS, st.sampled_from(("gemini-2.5-pro", "gemini-3-pro")), st.sampled_from((None, 3000)))
def test_chat_completions_come_out_valid(seed: int, model: str, window: int | None) -> None:
    request = openai_chat_requests.conversation(seed)
    request["messages"].append(openai_chat_requests.user("And now?"))  # Gemini answers the user only
    try:
        rendered_request = converted(request, OPENAI_CHAT, DIALECT, model=model, window=window)
    except BudgetExceeded:
        return
    accepted(rendered_request)
    assert rendered_request["model"] == model
    assert rendered_request["config"]["max_output_tokens"] == 500


MESSAGES: Json = {
    "model": "claude-opus-5-5",
    "max_tokens": 100,
    "system": [{"type": "text", "text": "Be brief."}],
    "tools": [{"name": "read file", "description": "Reads.", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "tool", "name": "read file"},
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look."},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
                {"type": "image", "source": {"type": "url", "url": "https://example.org/a.webp"}},
                {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
                {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "secret", "signature": "sealed"},
                {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x" * 400}},
                {"type": "tool_use", "id": "t1", "name": "read file", "input": {"path": "a"}},
                {"type": "tool_use", "id": "t2", "name": "read file", "input": {"path": "b"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t2", "content": "no such file", "is_error": True},
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [
                        {"type": "text", "text": "a picture"},
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
                        },
                        {"type": "search_result", "title": "t", "source": "s", "content": []},
                    ],
                },
                {"type": "text", "text": "Go on."},
            ],
        },
        {"role": "system", "content": "Be loud."},
    ],
}


def test_messages_come_out_valid() -> None:
    rendered_request = converted(MESSAGES, ANTHROPIC, DIALECT, model="gemini-3-pro")
    accepted(rendered_request)
    whole = json.dumps(rendered_request)
    assert "secret" not in whole
    assert "sealed" not in whole
    assert "web_search" not in whole
    roles = [content["role"] for content in rendered_request["contents"]]
    assert roles == ["user", "model", "user", "user"]
    first = rendered_request["contents"][0]["parts"]
    assert first[2]["file_data"] == {"file_uri": "https://example.org/a.webp", "mime_type": "image/webp"}
    results = rendered_request["contents"][2]["parts"]
    assert results[0]["function_response"] == {
        "id": "t2",
        "name": "read_file",
        "response": {"error": "no such file"},
    }
    assert results[1]["function_response"]["response"]["output"].startswith("a picture")
    assert results[2] == {"inline_data": {"mime_type": "image/png", "data": "aGk="}}
    assert rendered_request["contents"][3]["parts"] == [{"text": "Be loud."}]
    names = rendered_request["config"]["tool_config"]["function_calling_config"]["allowed_function_names"]
    assert (
        names == [rendered_request["config"]["tools"][0]["function_declarations"][0]["name"]] == ["read_file"]
    )


@given(SEEDS)
def test_there_and_back_is_valid_in_both(seed: int) -> None:
    there = converted(gemini_requests.conversation(seed), DIALECT, OPENAI_CHAT, model="gpt-5")
    assert "unnamed" not in json.dumps(converted(there, OPENAI_CHAT, DIALECT, model="gemini-3-pro"))
    converted(gemini_requests.conversation(seed), DIALECT, ANTHROPIC, model="claude-sonnet-5")


def test_media_that_cannot_be_fetched_is_refused_with_a_reason() -> None:
    parts: list[Any] = [
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,not=base64"}},
    ]
    log = OPENAI_CHAT.wire.parse({"messages": [{"role": "user", "content": parts}]}).log
    assert [bool(DIALECT.wire.carries(segment)) for segment in log] == [True, False, True]
    assert DIALECT.wire.carries(log[0]) == "media of openai_chat that gemini cannot fetch"
    own = DIALECT.wire.parse(body(user({"fileData": {"fileUri": "file-1"}}))).log
    assert DIALECT.wire.carries(own[0]) == ""


SCHEMA = {"type": "object", "properties": {"path": {"type": ["string", "null"]}}, "required": ["path"]}
PLAIN = PlainHead(
    model="gemini-3-pro",
    tools=(Tool(name="read", description="Reads.", schema=SCHEMA), Tool(name="now")),
    output=100,
    temperature=0.5,
    top_p=0.9,
    stop=("END",),
    choice="tool:read",
    answer=SCHEMA,
    effort="low",
)


def test_a_head_means_the_same_there_and_back() -> None:
    own = DIALECT.head.write(PLAIN)
    assert own.left == ()
    assert DIALECT.head.read(own.head) == PLAIN
    config = own.head.parameters["config"] | {"tools": list(own.head.tools)}
    types.GenerateContentConfig.model_validate(config)


@pytest.mark.parametrize("choice", ["", "auto", "none", "any", "tool:now"])
def test_choices_of_a_tool_are_kept(choice: str) -> None:
    plain = PlainHead(tools=(Tool(name="now"),), choice=choice)
    assert DIALECT.head.read(DIALECT.head.write(plain).head).choice == choice


def test_a_rest_body_and_arguments_of_the_sdk_mean_the_same() -> None:
    generation = {
        "maxOutputTokens": 5,
        "topP": 0.1,
        "stopSequences": ["x"],
        "thinkingConfig": {"thinkingLevel": "high"},
    }
    tools = [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": SCHEMA}]}]
    calling = {"functionCallingConfig": {"mode": "any"}}
    one = body(user(), generationConfig=generation, tools=tools, toolConfig=calling)
    config = types.GenerateContentConfig.model_validate(generation | {"tools": tools, "toolConfig": calling})
    two = {"model": one["model"], "contents": one["contents"], "config": config}
    plain = DIALECT.head.read(DIALECT.wire.parse(one).head)
    assert plain == DIALECT.head.read(DIALECT.wire.parse(two).head)
    assert (plain.output, plain.top_p, plain.stop, plain.effort, plain.choice) == (
        5,
        0.1,
        ("x",),
        "high",
        "any",
    )


def test_what_only_this_api_has_is_named() -> None:
    config = {
        "tools": [{"google_search": {}}, {"function_declarations": [{"name": "f"}]}],
        "top_k": 3,
        "thinking_config": {"thinking_budget": 100},
        "tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["a", "b"]}},
        "response_mime_type": "application/json",
        "labels": {"team": "a"},
    }
    plain = DIALECT.head.read(DIALECT.wire.parse(arguments(user(), **config)).head)
    assert plain.left == (
        "top_k", "tools[0].google_search", "tool_config", "thinking_config", "response_mime_type",
    )  # fmt: skip
    assert [tool.name for tool in plain.tools] == ["f"]


def test_what_this_api_has_no_words_for_is_named() -> None:
    twice = (Tool(name="a b"), Tool(name="a_b"))
    own = DIALECT.head.write(PlainHead(model="gemini-2.5-pro", tools=twice, effort="low", stream=True))
    assert own.left == ("effort", "stream", "tools")
    assert own.head.tools == ({"function_declarations": [{"name": "a_b"}]},)


def test_schemas_in_words_of_this_api_become_json_schema() -> None:
    schema = {
        "type": "OBJECT",
        "properties": {
            "path": {"type": "STRING", "nullable": True, "minLength": "1"},
            "tags": {"type": "ARRAY", "items": {"type": "STRING", "enum": ["a"]}, "maxItems": 3},
            "size": {"anyOf": [{"type": "INTEGER"}, {"type": "NUMBER"}], "nullable": True},
        },
        "required": ["path"],
        "propertyOrdering": ["path"],
    }
    tools = [{"functionDeclarations": [{"name": "f", "parameters": schema}]}]
    plain = DIALECT.head.read(DIALECT.wire.parse(body(user(), tools=tools)).head)
    assert plain.tools[0].schema == {
        "type": "object",
        "properties": {
            "path": {"type": ["string", "null"], "minLength": 1},
            "tags": {"type": "array", "items": {"type": "string", "enum": ["a"]}, "maxItems": 3},
            "size": {"anyOf": [{"type": "integer"}, {"type": "number"}, {"type": "null"}]},
        },
        "required": ["path"],
    }
