"""Tools and parameters in the words of another dialect: the meaning stays, what cannot be said is named."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from google.genai import types

from lamina import RequestHead
from lamina.dialects import DIALECTS, PlainHead, Tool

Json = dict[str, Any]

SCHEMA = {"type": "object", "properties": {"path": {"type": ["string", "null"]}}, "required": ["path"]}
PLAIN = PlainHead(
    tools=(
        Tool(name="read", description="Reads.", schema=SCHEMA),
        Tool(name="now", schema={"type": "object"}),
    ),
    output=500,
    temperature=0.5,
    top_p=0.9,
    stop=("END",),
    choice="tool:read",
    answer=SCHEMA,
    effort="low",
    stream=True,
)
MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "openai_chat": "gpt-5",
    "openai_responses": "gpt-5",
    "gemini": "gemini-3-pro",
    "ollama": "qwen3",
    "bedrock_converse": "us.anthropic.claude-sonnet-4-5-v1:0",
    "text": "m",
}
UNSAID: dict[str, set[str]] = {
    "openai_responses": {"stop"},
    "gemini": {"stream"},
    "ollama": {"choice"},
    "bedrock_converse": {"stream"},
    "text": {"tools", "choice", "answer", "effort"},
}
"""What an API has no words for."""

UNSAID_CHOICES: dict[str, set[str]] = {
    "ollama": {"any", "tool:read"},
    "bedrock_converse": {"none"},
    "text": {"auto", "none", "any", "tool:read"},
}

each_dialect = pytest.mark.parametrize("name", DIALECTS)


def plain(name: str, **fields: Any) -> PlainHead:
    return msgspec.structs.replace(PLAIN, model=MODELS[name], **fields)


def write(name: str, **fields: Any) -> Any:
    return DIALECTS[name].head.write(PlainHead(model=MODELS[name], **fields))


def read(name: str, **parameters: Any) -> PlainHead:
    """The plain meaning of the fields of a request."""
    turns = {"openai_responses": "input", "gemini": "contents", "text": "prompt"}.get(name, "messages")
    question: Any = "Hi" if turns != "messages" else [{"role": "user", "content": "Hi"}]
    return DIALECTS[name].head.read(DIALECTS[name].wire.parse({turns: question, **parameters}).head)


@each_dialect
def test_a_plain_head_comes_back_but_for_what_is_named(name: str) -> None:
    own = DIALECTS[name].head.write(plain(name))
    assert set(own.left) == UNSAID.get(name, set())
    unsaid = {field: getattr(PlainHead(), field) for field in own.left}
    assert DIALECTS[name].head.read(own.head) == plain(name, **unsaid)


@each_dialect
@pytest.mark.parametrize("choice", ["", "auto", "none", "any", "tool:read"])
def test_the_choice_of_a_tool_comes_back_or_is_named(name: str, choice: str) -> None:
    own = DIALECTS[name].head.write(plain(name, choice=choice))
    is_unsaid = choice in UNSAID_CHOICES.get(name, set())
    assert ("choice" in own.left) is is_unsaid
    back = DIALECTS[name].head.read(own.head)
    if name == "ollama":
        assert bool(back.tools) is (choice != "none"), "tools that may not be called are not defined"
    else:
        assert back.choice == ("" if is_unsaid else choice)


@each_dialect
def test_names_are_made_safe_in_definitions_and_in_the_choice(name: str) -> None:
    own = write(name, tools=(Tool(name="fs read/v2"),), choice="tool:fs read/v2")
    is_any_name_taken = name == "ollama"
    assert ("fs_read_v2" in str(own.head.tools)) is ("tools" not in own.left and not is_any_name_taken)
    assert ("fs_read_v2" in str(own.head.parameters)) is ("choice" not in own.left)


NAMES_OF_TOOLS = ("fs.read", "fs_read", f"{'x' * 140}1", f"{'x' * 140}2")


@each_dialect
def test_tools_that_get_the_same_name_are_sent_once_and_named(name: str) -> None:
    own = write(name, tools=tuple(Tool(name=tool_name) for tool_name in NAMES_OF_TOOLS))
    names = [tool.name for tool in DIALECTS[name].head.read(own.head).tools]
    assert len(names) == len(set(names))
    assert ("tools" in own.left) is (len(names) < len(NAMES_OF_TOOLS))


@each_dialect
def test_odd_values_are_not_taken_for_something_else(name: str) -> None:
    odd: Json = {
        "stop": 5,
        "stop_sequences": 5,
        "max_tokens": "x",
        "max_output_tokens": "x",
        "temperature": [],
    }
    odd |= {"options": 7, "generationConfig": 7, "inferenceConfig": 7, "toolConfig": 7, "reasoning": 7}
    odd |= {"tool_choice": 7, "config": {"temperature": "hot"}}
    meaning = DIALECTS[name].head.read(RequestHead(parameters=odd))
    nothing = (None, None, (), "", "")
    assert (meaning.output, meaning.temperature, meaning.stop, meaning.choice, meaning.effort) == nothing


LEFT: list[tuple[str, Json, set[str]]] = [
    ("anthropic", {"thinking": {"type": "adaptive"}, "metadata": {"user_id": "u"}}, {"thinking"}),
    ("anthropic", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, {"tools[0]"}),
    (
        "anthropic",
        {"output_config": {"effort": "low", "task_budget": {"type": "tokens"}}},
        {"output_config.task_budget"},
    ),
    ("openai_chat", {"logit_bias": {"1": 2}, "user": "u"}, {"logit_bias"}),
    ("openai_chat", {"response_format": {"type": "json_object"}}, {"response_format"}),
    ("openai_responses", {"reasoning": {"effort": "low", "summary": "auto"}}, {"reasoning.summary"}),
    (
        "openai_responses",
        {"tools": [{"type": "web_search"}, {"type": "custom", "name": "patch"}, {"type": "mcp"}]},
        {"tools[0]", "tools[2]"},
    ),
    (
        "openai_responses",
        {"tool_choice": {"type": "allowed_tools"}, "previous_response_id": "r", "metadata": {}},
        {"tool_choice", "previous_response_id"},
    ),
    (
        "openai_responses",
        {"text": {"format": {"type": "json_object"}, "verbosity": "low"}},
        {"text.format", "text.verbosity"},
    ),
    (
        "gemini",
        {"config": {"tools": [{"google_search": {}}], "top_k": 3, "labels": {"team": "a"}}},
        {"tools[0].google_search", "top_k"},
    ),
    (
        "gemini",
        {"config": {"thinking_config": {"thinking_budget": 9}, "response_mime_type": "application/json"}},
        {"thinking_config", "response_mime_type"},
    ),
    (
        "gemini",
        {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["a", "b"]}}},
        {"tool_config"},
    ),
    ("ollama", {"options": {"num_ctx": 5, "mirostat": 2, "temperature": 0.5}}, {"options.mirostat"}),
    ("ollama", {"format": "json", "keep_alive": 5, "extra": 1}, {"extra", "format"}),
    ("text", {"suffix": "x", "user": "u"}, {"suffix"}),
]


@pytest.mark.parametrize(("name", "parameters", "left"), LEFT)
def test_what_only_this_api_has_is_named_and_what_the_model_never_sees_is_not(
    name: str, parameters: Json, left: set[str]
) -> None:
    assert set(read(name, **parameters).left) == left


def test_what_only_converse_has_is_named() -> None:
    parameters = {"promptVariables": {"a": {}}, "inferenceConfig": {"maxTokens": "many"}}
    head = RequestHead(tools=({"systemTool": {"name": "nova_grounding"}},), parameters=parameters)
    left = DIALECTS["bedrock_converse"].head.read(head).left
    assert set(left) == {"promptVariables", "tools[0]", "inferenceConfig.maxTokens"}


REFUSED: list[tuple[str, Json, set[str]]] = [
    ("anthropic", {"model": "claude-opus-5-5", "temperature": 0.5, "top_p": 0.9}, {"temperature", "top_p"}),
    ("openai_responses", {"effort": "heroic"}, {"effort"}),
    ("gemini", {"model": "gemini-2.5-pro", "effort": "low"}, {"effort"}),
    ("gemini", {"tools": (Tool(name="a b"), Tool(name="a_b"))}, {"tools"}),
    ("ollama", {"effort": "ultra"}, {"effort"}),
    ("bedrock_converse", {"temperature": 1.5}, {"temperature"}),
]


@pytest.mark.parametrize(("name", "fields", "left"), REFUSED)
def test_what_the_model_or_the_api_refuses_is_left_and_named(name: str, fields: Json, left: set[str]) -> None:
    own = DIALECTS[name].head.write(PlainHead(**{"model": MODELS[name], **fields}))
    assert set(own.left) == left
    assert left.isdisjoint(own.head.parameters)


def test_a_choice_is_refused_where_thinking_is_always_on() -> None:
    own = DIALECTS["anthropic"].head.write(plain("anthropic", choice="tool:read"))
    assert own.left == ()
    bound = msgspec.structs.replace(PLAIN, model="claude-opus-5-5")
    assert "choice" in DIALECTS["anthropic"].head.write(bound).left


def test_the_output_limit_that_anthropic_wants_is_given() -> None:
    assert write("anthropic").head.parameters["max_tokens"] > 0


def test_the_api_takes_what_is_written() -> None:
    own = DIALECTS["gemini"].head.write(plain("gemini"))
    config = own.head.parameters["config"] | {"tools": list(own.head.tools)}
    types.GenerateContentConfig.model_validate(config)
    own = DIALECTS["openai_responses"].head.write(plain("openai_responses"))
    request = {**own.head.parameters, "tools": list(own.head.tools), "input": "x"}
    assert DIALECTS["openai_responses"].wire.check(request) == []
    assert own.head.tools[0]["strict"] is False


def test_a_rest_body_and_arguments_of_the_sdk_mean_the_same() -> None:
    generation = {
        "maxOutputTokens": 5,
        "topP": 0.1,
        "stopSequences": ["x"],
        "thinkingConfig": {"thinkingLevel": "high"},
    }
    tools = [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": SCHEMA}]}]
    calling = {"functionCallingConfig": {"mode": "any"}}
    meaning = read("gemini", generationConfig=generation, tools=tools, toolConfig=calling)
    config = types.GenerateContentConfig.model_validate(generation | {"tools": tools, "toolConfig": calling})
    assert meaning == read("gemini", config=config)
    numbers = (meaning.output, meaning.top_p, meaning.stop, meaning.effort, meaning.choice)
    assert numbers == (5, 0.1, ("x",), "high", "any")


def test_schemas_in_words_of_gemini_become_json_schema() -> None:
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
    [tool] = read("gemini", tools=[{"functionDeclarations": [{"name": "f", "parameters": schema}]}]).tools
    assert tool.schema == {
        "type": "object",
        "properties": {
            "path": {"type": ["string", "null"], "minLength": 1},
            "tags": {"type": "array", "items": {"type": "string", "enum": ["a"]}, "maxItems": 3},
            "size": {"anyOf": [{"type": "integer"}, {"type": "number"}, {"type": "null"}]},
        },
        "required": ["path"],
    }


def test_a_schema_that_holds_itself_is_read() -> None:
    schema: Json = {"type": "OBJECT"}
    schema["items"] = schema
    read("gemini", tools=[{"functionDeclarations": [{"name": "f", "parameters": schema}]}])


@pytest.mark.parametrize(("think", "effort"), [(True, "medium"), (False, "none"), ("low", "low"), (None, "")])
def test_thinking_of_ollama_is_an_effort(think: Any, effort: str) -> None:
    assert read("ollama", think=think).effort == effort


def test_a_request_of_ollama_that_says_nothing_of_streaming_is_not_streamed() -> None:
    parameters = DIALECTS["ollama"].head.write(PlainHead()).head.parameters
    assert parameters == {"stream": False, "truncate": False}


def test_a_custom_tool_of_the_responses_api_takes_one_text() -> None:
    [tool] = read("openai_responses", tools=[{"type": "custom", "name": "patch"}]).tools
    assert (tool.name, tool.schema["required"]) == ("patch", ["input"])
