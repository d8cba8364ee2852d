"""Markers on requests: exactly those that were asked for, everything else the same object."""

from __future__ import annotations

import json
from copy import deepcopy
from random import Random
from typing import Any

import pytest
from anthropic.types import TextBlock, ToolUseBlock
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessage
from openai.types.responses import ResponseFunctionToolCall

from lamina import BadInput
from lamina.dialects import DIALECTS, Marking
from tests.dialects.bedrock_requests import POINT, TOOL, refusals, request, says, user
from tests.dialects.conversations import TALKS

Json = dict[str, Any]

MARKER = {"type": "ephemeral"}
BREAKPOINT = {"mode": "explicit"}


def put(name: str, body: Json, places: dict[str, str] | None = None, **fields: Any) -> Json:
    markers = DIALECTS[name].cache.markers
    assert markers is not None
    marked: Json = markers.put(body, Marking(places=places or {}, **fields))
    return marked


def find_markers(name: str, body: Json) -> dict[str, str]:
    return {block.place: block.marker for block in DIALECTS[name].cache.stream(body).blocks if block.marker}


def read_data(name: str, body: Json) -> list[bytes]:
    return [block.data for block in DIALECTS[name].cache.stream(body).blocks]


LIFETIMES = {
    "anthropic": ("5m", "1h"),
    "openai_chat": ("30m", "12h"),
    "openai_responses": ("30m", "12h"),
    "bedrock_converse": ("5m", "1h"),
}
"""Lifetimes of a marker: the first is the default."""


@pytest.mark.parametrize("name", LIFETIMES)
@given(seed=st.integers(0, 10_000))
def test_markers_stand_exactly_where_they_were_asked_for(name: str, seed: int) -> None:
    field, lifetimes = TALKS[name].field, LIFETIMES[name]
    bare = put(name, TALKS[name].ask(seed))
    before = deepcopy(bare)
    dice = Random(seed)  # noqa: S311
    places = [block.place for block in DIALECTS[name].cache.stream(bare).blocks if block.markable]
    chosen = sorted(dice.sample(places, min(3, len(places))), key=places.index)
    if name == "bedrock_converse":  # a point is a block of its own: it moves those after it
        chosen = list({place.rpartition("[")[0]: place for place in chosen}.values())
    lifetime = dice.choice(("", *lifetimes))
    marked = put(name, bare, dict.fromkeys(chosen, lifetime))
    assert bare == before
    assert DIALECTS[name].wire.check(marked) == []
    assert find_markers(name, marked) == dict.fromkeys(chosen, lifetime or lifetimes[0])
    assert read_data(name, marked) == read_data(name, bare)
    touched = {place.split(".")[0] for place in chosen}
    for at, (one, other) in enumerate(zip(bare[field], marked[field], strict=True)):
        assert (one is other) is (f"{field}[{at}]" not in touched)
    assert put(name, marked, dict.fromkeys(chosen, lifetime)) is marked
    assert read_data(name, put(name, marked)) == read_data(name, bare)
    assert find_markers(name, put(name, marked)) == {}


MISPLACED = {
    "anthropic": ["messages[99].content[0]"],
    "openai_chat": ["messages[99].content[0]"],
    "openai_responses": ["instructions", "tools[0]", "input[3].content[0]", "input[4]", "input[99]"],
    "bedrock_converse": ["messages[99].content[0]"],
}


@pytest.mark.parametrize("name", LIFETIMES)
def test_a_place_where_no_marker_may_stand_is_named(name: str) -> None:
    body = TALKS[name].make(3)
    for place in MISPLACED[name]:
        with pytest.raises(BadInput) as refused:
            put(name, body, {place: ""})
        assert place in str(refused.value)


JSON_VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(("tools", "system", "messages", "cache_control")), JSON_VALUES))
def test_anything_is_passed_or_stripped_and_never_written_to(body: Json) -> None:
    before = json.dumps(body)
    for name in ("anthropic", "openai_chat"):
        put(name, body)
    assert json.dumps(body) == before


# The Messages API


def talk() -> Json:
    use = ToolUseBlock(type="tool_use", id="c1", name="read_file", input={"path": "a.py"})
    inner = {"type": "text", "text": "inner", "cache_control": MARKER}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [inner]}
    return {
        "model": "claude-opus-5",
        "max_tokens": 9,
        "cache_control": {"type": "ephemeral", "ttl": "5m"},
        "tools": [{"name": "read_file", "input_schema": {"type": "object"}, "cache_control": MARKER}],
        "system": "You read files.",
        "messages": [
            {"role": "user", "content": "Read a.py."},
            {"role": "assistant", "content": [TextBlock(type="text", text="Yes."), use]},
            {"role": "user", "content": [result, {"type": "text", "text": "Go on."}]},
        ],
    }


def test_markers_that_were_not_asked_for_are_taken_off_wherever_they_stand() -> None:
    places = {"system[0]": "1h", "messages[1].content[1]": "", "messages[2].content[0]": "5m"}
    marked = put("anthropic", talk(), places)
    assert find_markers("anthropic", marked) == {**places, "messages[1].content[1]": "5m"}
    assert "cache_control" not in marked
    assert "cache_control" not in marked["tools"][0]
    assert "cache_control" not in marked["messages"][2]["content"][0]["content"][0]
    assert DIALECTS["anthropic"].wire.check(marked) == []


def test_a_lifetime_that_is_the_default_is_the_same_marker() -> None:
    body = talk()
    marked = put("anthropic", body, {"messages[2].content[1]": ""})
    assert marked["messages"][1] is body["messages"][1]
    assert put("anthropic", marked, {"messages[2].content[1]": "5m"}) is marked
    longer = put("anthropic", marked, {"messages[2].content[1]": "1h"})
    assert find_markers("anthropic", longer) == {"messages[2].content[1]": "1h"}


def test_a_string_becomes_one_block_where_it_must_carry_a_marker() -> None:
    marked = put("anthropic", talk(), {"system[0]": "", "messages[0].content[0]": ""})
    assert marked["system"] == [{"type": "text", "text": "You read files.", "cache_control": MARKER}]
    [block] = marked["messages"][0]["content"]
    assert block == {"type": "text", "text": "Read a.py.", "cache_control": MARKER}
    asked = {"input": "Hello"}
    marked = put("openai_responses", asked, {"input[0].content[0]": ""})
    assert marked["input"][0]["content"][0]["prompt_cache_breakpoint"] == BREAKPOINT
    assert put("openai_responses", asked) == asked


def test_the_automatic_marker_is_one_of_four() -> None:
    places = {f"messages[{i}].content[0]": "" for i in range(3)} | {"system[0]": ""}
    assert len(find_markers("anthropic", put("anthropic", talk(), places))) == 4
    with pytest.raises(BadInput, match="5 cache markers"):
        put("anthropic", talk(), places, automatic="5m")
    del places["system[0]"]
    marked = put("anthropic", talk(), places, automatic="1h")
    assert marked["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


def test_a_field_that_is_null_is_no_marker_and_stays() -> None:
    block = {"type": "text", "text": "Hi", "cache_control": None}
    body = {"model": "claude-opus-5", "messages": [{"role": "user", "content": [block]}]}
    assert put("anthropic", body) is body


# OpenAI


def chat() -> Json:
    part = {"type": "text", "text": "Be brief.", "prompt_cache_breakpoint": BREAKPOINT}
    return {
        "model": "gpt-5.6",
        "prompt_cache_key": "mine",
        "messages": [
            {"role": "system", "content": [part, {"type": "text", "text": "Be kind."}]},
            {"role": "user", "content": "Hello"},
            ChatCompletionMessage(role="assistant", content="Hi."),
            {"role": "user", "content": "Bye"},
        ],
    }


def test_objects_of_an_sdk_are_taken_apart_only_where_they_are_marked() -> None:
    body = chat()
    marked = put("openai_chat", body, {"messages[0].content[1]": "", "messages[2].content[0]": "12h"})
    system, question, answer, last = marked["messages"]
    assert "prompt_cache_breakpoint" not in system["content"][0]
    assert answer["content"][0]["prompt_cache_breakpoint"] == {"mode": "explicit", "ttl": "12h"}
    assert (question, last) == (body["messages"][1], body["messages"][3])
    assert put("openai_chat", body, {"messages[3].content[0]": ""})["messages"][2] is body["messages"][2]
    call = ResponseFunctionToolCall(type="function_call", call_id="c", name="read", arguments="{}")
    output = {"type": "function_call_output", "call_id": "c", "output": "x"}
    items = [{"role": "user", "content": "Hi"}, call, output]
    marked = put("openai_responses", {"input": items}, {"input[2].output[0]": ""})
    assert marked["input"][1] is call


@pytest.mark.parametrize("name", ["openai_chat", "openai_responses"])
def test_key_and_mode_are_set_where_asked_for_and_else_stay(name: str) -> None:
    body = {**TALKS[name].make(3), "prompt_cache_key": "mine"}
    assert put(name, body)["prompt_cache_key"] == "mine"
    assert "prompt_cache_options" not in put(name, body)
    marked = put(name, body, key="other", automatic="explicit")
    assert (marked["prompt_cache_key"], marked["prompt_cache_options"]) == ("other", BREAKPOINT)
    timed = put(name, marked, automatic="30m")
    assert timed["prompt_cache_options"] == {"mode": "explicit", "ttl": "30m"}
    if name == "openai_responses":
        assert put(name, body, automatic="24h")["prompt_cache_retention"] == "24h"


# Converse


def test_markers_of_converse_stand_after_the_blocks_that_they_mark() -> None:
    original = request(user({"text": "a"}, POINT), says(), user(), system=[{"text": "s"}])
    places = {"toolConfig.tools[0]": "1h", "system[0]": "", "messages[2].content[0]": "5m"}
    marked = put("bedrock_converse", original, places)
    assert marked["toolConfig"]["tools"] == [TOOL, {"cachePoint": {"type": "default", "ttl": "1h"}}]
    assert marked["system"] == [{"text": "s"}, POINT]
    assert marked["messages"][0] == user({"text": "a"})
    assert refusals(marked) == ""
