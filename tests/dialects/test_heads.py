"""Tools and parameters in the words of another dialect: the meaning stays, what cannot be said is named."""

from __future__ import annotations

from typing import Any

import pytest

from lamina.core.values import RequestHead
from lamina.dialects import DIALECTS
from lamina.dialects.port import Dialect, PlainHead, Tool

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
PLAIN = PlainHead(
    model="claude-sonnet-4-5",
    tools=(Tool(name="read", description="Reads a file.", schema=SCHEMA),),
    output=500,
    temperature=0.5,
    top_p=0.9,
    stop=("END",),
    choice="tool:read",
    answer=SCHEMA,
    effort="low",
    stream=True,
)
PARAMETERS: dict[str, dict[str, Any]] = {
    "anthropic": {"thinking": {"type": "adaptive"}, "metadata": {"user_id": "u"}},
    "openai_chat": {"logit_bias": {"1": 2}, "user": "u"},
}
LEFT = {"anthropic": "thinking", "openai_chat": "logit_bias"}


def translating() -> list[Dialect]:
    return [DIALECTS[name] for name in PARAMETERS]


@pytest.mark.parametrize("dialect", translating(), ids=lambda d: d.name)
@pytest.mark.parametrize("choice", ["", "auto", "none", "any", "tool:read"])
def test_a_plain_head_comes_back_as_it_was(dialect: Dialect, choice: str) -> None:
    plain = PlainHead(**{**_fields(PLAIN), "choice": choice})
    own = dialect.head.write(plain)
    assert own.left == ()
    assert dialect.head.read(own.head) == plain


@pytest.mark.parametrize("dialect", translating(), ids=lambda d: d.name)
def test_what_only_this_api_has_is_named_and_what_the_model_never_sees_is_not(dialect: Dialect) -> None:
    head = RequestHead(
        tools=({"type": "web_search_20250305", "name": "web_search"},), parameters=PARAMETERS[dialect.name]
    )
    left = dialect.head.read(head).left
    assert LEFT[dialect.name] in left
    assert not {"user", "metadata"} & set(left)


def test_a_tool_that_the_server_runs_is_named() -> None:
    head = RequestHead(tools=({"type": "web_search_20250305", "name": "web_search"},))
    assert DIALECTS["anthropic"].head.read(head).left == ("tools[0]",)


@pytest.mark.parametrize(
    ("name", "parameters", "left"),
    [
        (
            "anthropic",
            {"output_config": {"effort": "low", "task_budget": {"type": "tokens"}}},
            "output_config.task_budget",
        ),
        ("ollama", {"options": {"num_ctx": 4_096, "mirostat": 2, "temperature": 0.5}}, "options.mirostat"),
        ("openai_responses", {"reasoning": {"effort": "low", "summary": "auto"}}, "reasoning.summary"),
        ("openai_chat", {"response_format": {"type": "json_object"}}, "response_format"),
        ("bedrock_converse", {"inferenceConfig": {"maxTokens": "many"}}, "inferenceConfig.maxTokens"),
    ],
)
def test_a_value_inside_another_that_has_no_plain_meaning_is_named(
    name: str, parameters: dict[str, Any], left: str
) -> None:
    assert DIALECTS[name].head.read(RequestHead(parameters=parameters)).left == (left,)


def test_what_a_model_refuses_is_left_and_named() -> None:
    own = DIALECTS["anthropic"].head.write(PlainHead(**{**_fields(PLAIN), "model": "claude-opus-5-5"}))
    assert own.left == ("temperature", "top_p", "choice")
    assert {"temperature", "top_p", "tool_choice"}.isdisjoint(own.head.parameters)


def test_names_are_made_safe_in_definitions_and_in_the_choice() -> None:
    plain = PlainHead(model="m", tools=(Tool(name="fs.read/v2"),), choice="tool:fs.read/v2")
    for dialect in translating():
        head = dialect.head.write(plain).head
        assert "fs_read_v2" in str(head.tools)
        assert "fs_read_v2" in str(head.parameters["tool_choice"])


def test_the_output_limit_that_anthropic_wants_is_given() -> None:
    assert (
        DIALECTS["anthropic"].head.write(PlainHead(model="claude-opus-5")).head.parameters["max_tokens"] > 0
    )


@pytest.mark.parametrize("dialect", translating(), ids=lambda d: d.name)
def test_odd_values_are_not_taken_for_something_else(dialect: Dialect) -> None:
    odd = {"stop": 5, "stop_sequences": 5, "max_tokens": "x", "temperature": [], "tool_choice": 7, "model": 9}
    plain = dialect.head.read(RequestHead(parameters=odd))
    assert (plain.stop, plain.output, plain.temperature, plain.choice) == ((), None, None, "")
    assert "tool_choice" in plain.left


def _fields(plain: PlainHead) -> dict[str, Any]:
    return {name: getattr(plain, name) for name in plain.__struct_fields__}
