"""What a cache sees of a block: fields of an API by their names, an application's JSON as it was written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.caches import rules_for, simulator
from lamina.caches.stream import OWN_JSON, encode_block, same_but_key_order
from lamina.diagnose import diff
from lamina.dialects import DIALECTS
from lamina.errors import BadInput

ONE = {"path": "a.py", "limit": 20, "deep": {"x": 1, "y": 2}}
OTHER = {"deep": {"y": 2, "x": 1}, "limit": 20, "path": "a.py"}
USER = {"role": "user", "content": "Read it. " * 800}


def anthropic(own: Any) -> dict[str, Any]:
    call = {"type": "tool_use", "id": "t1", "name": "read", "input": own}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "A line."}
    return {
        "model": "claude-opus-5",
        "tools": [{"name": "read", "input_schema": own}],
        "messages": [USER, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}],
    }


def chat(own: Any) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": json.dumps(own)}}
    return {
        "model": "gpt-5.4",
        "tools": [{"type": "function", "function": {"name": "read", "parameters": own}}],
        "messages": [USER, {"role": "assistant", "tool_calls": [call]}],
    }


def responses(own: Any) -> dict[str, Any]:
    call = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": json.dumps(own)}
    return {
        "model": "gpt-5.4",
        "tools": [{"type": "function", "name": "read", "parameters": own}],
        "input": [USER, call],
    }


def gemini(own: Any) -> dict[str, Any]:
    text = {"role": "user", "parts": [{"text": USER["content"]}]}
    call = {"role": "model", "parts": [{"functionCall": {"name": "read", "args": own}}]}
    answer = {"role": "user", "parts": [{"functionResponse": {"name": "read", "response": own}}]}
    tools = [{"functionDeclarations": [{"name": "read", "parametersJsonSchema": own}]}]
    return {"model": "gemini-3.8-flash", "tools": tools, "contents": [text, call, answer]}


def ollama(own: Any) -> dict[str, Any]:
    call = {"function": {"name": "read", "arguments": own}}
    return {
        "model": "qwen3",
        "tools": [{"type": "function", "function": {"name": "read", "parameters": own}}],
        "messages": [USER, {"role": "assistant", "content": "", "tool_calls": [call]}],
    }


MAKERS = {
    "anthropic": anthropic,
    "openai_chat": chat,
    "openai_responses": responses,
    "gemini": gemini,
    "ollama": ollama,
}


@pytest.mark.parametrize("dialect", MAKERS)
def test_the_order_of_keys_in_the_applications_json_is_part_of_the_prefix(dialect: str) -> None:
    one, other = (DIALECTS[dialect].cache.stream(MAKERS[dialect](own)).blocks for own in (ONE, OTHER))
    differing = [(a, b) for a, b in zip(one, other, strict=True) if a.data != b.data]
    assert {a.sort for a, _ in differing} >= {"tool", "call"}
    difference = diff(MAKERS[dialect](ONE), MAKERS[dialect](OTHER), dialect=dialect)
    assert (difference.cause, difference.place) == ("keys reordered", differing[0][0].place)
    assert "in one order" in difference.advice


@pytest.mark.parametrize("dialect", MAKERS)
def test_a_simulated_cache_misses_after_reordered_keys(dialect: str) -> None:
    rules = rules_for("unknown")
    cache = simulator(rules)
    reads = []
    for own in (ONE, ONE, OTHER):
        stream = DIALECTS[dialect].cache.stream(MAKERS[dialect](own))
        reads.append(cache.send(stream.weighed(len(block.data) for block in stream.blocks)).read)
    assert reads[2] < reads[1] // 2


@pytest.mark.parametrize("dialect", MAKERS)
def test_the_order_of_the_fields_of_an_api_is_not(dialect: str) -> None:
    request = MAKERS[dialect](ONE)
    assert DIALECTS[dialect].cache.stream(turned(request)) == DIALECTS[dialect].cache.stream(request)


def turned(value: Any, name: str = "") -> Any:
    """The fields of the API in the other order."""
    items = name == "input" and isinstance(value, list)
    if name in OWN_JSON and not items:
        return value
    if isinstance(value, dict):
        return {name: turned(inner, name) for name, inner in reversed(value.items())}
    return [turned(inner) for inner in value] if isinstance(value, list) else value


def test_a_schema_of_an_answer_in_another_order_is_named_under_the_rules() -> None:
    def request_with(own: Any) -> dict[str, Any]:
        form = {"type": "json_schema", "json_schema": {"name": "a", "schema": own}}
        return {"model": "gpt-5.4", "messages": [USER], "response_format": form}

    difference = diff(request_with(ONE), request_with(OTHER), rules=rules_for("gpt-5.4"))
    assert (difference.cause, difference.settings) == ("keys reordered", ("format",))
    assert (
        diff(request_with(ONE), request_with({**ONE, "limit": 3}), rules=rules_for("gpt-5.4")).cause
        == "format changed"
    )


values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from([*sorted(OWN_JSON), "type", "name"]), values, max_size=4))
def test_bytes_are_json_that_says_the_same(block: dict[str, Any]) -> None:
    assert json.loads(encode_block(block)) == block
    backwards = dict(reversed(block.items()))
    assert encode_block(backwards) == encode_block(block)


@given(st.dictionaries(st.text(max_size=4), values, min_size=2, max_size=4))
def test_only_the_order_is_told_from_other_differences(own: dict[str, Any]) -> None:
    one, other = encode_block({"input": own}), encode_block({"input": dict(reversed(own.items()))})
    assert same_but_key_order(one, other)
    assert not same_but_key_order(one, one)
    assert not same_but_key_order(one, encode_block({"input": {**own, "more": 1}}))


@pytest.mark.parametrize("value", [{"input": {"a": object()}}, {"input": {"a": "\ud800"}}, {"x": object()}])
def test_what_is_no_json_is_refused_with_its_reason(value: Any) -> None:
    with pytest.raises(BadInput, match=r"not a JSON value|lone surrogate"):
        encode_block(value)


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"x": deep}
    for value in (deep, {"input": deep}):
        with pytest.raises(BadInput):
            encode_block(value)
