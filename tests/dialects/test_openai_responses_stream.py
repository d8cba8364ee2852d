from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response

from lamina.caches.stream import OWN_JSON
from lamina.core.values import RequestHead
from lamina.dialects.openai_responses import DIALECT
from lamina.dialects.openai_responses.parts import BREAKPOINTS
from lamina.dialects.port import Marking, PlainHead, Tool
from lamina.errors import BadInput
from tests.dialects.openai_responses_requests import (
    PIXEL,
    Json,
    answers,
    calls,
    conversation,
    request,
    says,
    thinks,
    user,
)

TOOLS = [{"type": "function", "name": "f", "parameters": {"b": 1, "a": 2}}, {"type": "web_search"}]
BODY = request(
    {"role": "developer", "content": "Be brief."},
    user(
        [
            {"type": "input_text", "text": "Look", "prompt_cache_breakpoint": {"mode": "explicit"}},
            {"type": "input_image", "image_url": PIXEL, "detail": "auto"},
            {"type": "input_file", "filename": "a.pdf", "file_data": "JVBE"},
        ]
    ),
    thinks(1),
    says("I look.", n=2, phase="commentary"),
    calls("c1", id="fc_1"),
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
    answers("c1", "text"),
    user("And?"),
    instructions="You review code.",
    tools=TOOLS,
    prompt_cache_key="k",
    tool_choice="required",
    reasoning={"effort": "high", "summary": "auto"},
    text={"verbosity": "low"},
    prompt_cache_options={"ttl": "12h"},
    metadata={"a": "b"},
    max_output_tokens=9,
)


def seen(value: Json) -> list[tuple[str, str, bytes, bool]]:
    return [(b.sort, b.role, b.data, b.opens) for b in DIALECT.cache.stream(value).blocks]


def test_blocks_stand_in_the_order_in_which_a_cache_reads_them() -> None:
    stream = DIALECT.cache.stream(BODY)
    assert [(b.sort, b.place, b.name) for b in stream.blocks] == [
        ("tool", "tools[0]", "f"),
        ("tool", "tools[1]", "web_search"),
        ("system", "instructions", ""),
        ("system", "input[0].content[0]", ""),
        ("text", "input[1].content[0]", ""),
        ("image", "input[1].content[1]", ""),
        ("document", "input[1].content[2]", "a.pdf"),
        ("thinking", "input[2]", ""),
        ("text", "input[3].content[0]", ""),
        ("call", "input[4]", "read_file"),
        ("raw", "input[5]", "web_search"),
        ("result", "input[6].output[0]", "read_file"),
        ("text", "input[7].content[0]", ""),
    ]
    assert [b.place for b in stream.blocks if b.markable] == [
        "input[0].content[0]",
        "input[1].content[0]",
        "input[1].content[1]",
        "input[1].content[2]",
        "input[6].output[0]",
        "input[7].content[0]",
    ]
    assert {b.place: b.marker for b in stream.blocks if b.marker} == {"input[1].content[0]": "12h"}
    assert (stream.key, stream.automatic, stream.model) == ("k", "12h", "gpt-5.6-sol")
    assert dict(stream.settings) == {
        "tool_choice": b'"required"',
        "effort": b'"high"',
        "verbosity": b'"low"',
    }


def _shuffled(value: Any, dice: Random) -> Any:
    if isinstance(value, dict):
        names = list(value)
        dice.shuffle(names)
        written = OWN_JSON - {"input"}  # here it is the list of items
        return {n: value[n] if n in written else _shuffled(value[n], dice) for n in names}
    return [_shuffled(inner, dice) for inner in value] if isinstance(value, list) else value


def _harmless() -> dict[str, Json]:
    items = BODY["input"]
    bare = [{k: v for k, v in item.items() if k not in ("id", "status")} for item in items]
    parts = [{"role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]}, *items[1:]]
    output = [{"type": "input_text", "text": "text"}]
    unmarked = copy.deepcopy(BODY)
    del unmarked["input"][1]["content"][0]["prompt_cache_breakpoint"]
    renamed = [item | {"call_id": "other"} if "call_id" in item else item for item in items]
    sampling = {"temperature": 1, "max_output_tokens": 5, "metadata": None, "user": "u", "stream": True}
    return {
        "ids and states": BODY | {"input": bare},
        "a string as a part": BODY | {"input": parts},
        "an output as a part": BODY | {"input": [*items[:6], answers("c1", output), items[7]]},
        "markers": unmarked,
        "order of the fields of the API": _shuffled(BODY, Random(3)),  # noqa: S311
        "ids of calls": BODY | {"input": renamed},
        "parameters that are not in the prompt": BODY | sampling,
        "a null": BODY | {"previous_response_id": None},
    }


@pytest.mark.parametrize("name", _harmless())
def test_a_harmless_change_leaves_the_stream_as_it_is(name: str) -> None:
    changed = _harmless()[name]
    assert changed != BODY or name == "order of the fields of the API"
    assert seen(changed) == seen(BODY)
    assert DIALECT.cache.stream(changed).settings == DIALECT.cache.stream(BODY).settings


@pytest.mark.parametrize(
    "changed",
    [
        BODY | {"tools": TOOLS[::-1]},
        BODY | {"instructions": "You write code."},
        BODY | {"input": [{"role": "developer", "content": "Be long."}, *BODY["input"][1:]]},
        BODY | {"input": [*BODY["input"][:2], thinks(9), *BODY["input"][3:]]},
        BODY | {"input": [*BODY["input"][:3], says("I look."), *BODY["input"][4:]]},
        BODY | {"input": [*BODY["input"][:-1], says("And?")]},
    ],
)
def test_a_change_that_a_cache_sees_changes_the_stream(changed: Json) -> None:
    assert seen(changed) != seen(BODY)


def test_reasoning_in_the_clear_is_part_of_the_stream() -> None:
    thoughts = [
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": t}]} for t in "ab"
    ]
    first, second = (seen(request(user(), thought, says())) for thought in thoughts)
    assert first != second


def test_what_the_assistant_said_takes_no_marker() -> None:
    blocks = DIALECT.cache.stream(request(user(), {"role": "assistant", "content": "Yes."}, says())).blocks
    assert [b.markable for b in blocks] == [True, False, False]


def test_settings_are_in_one_vocabulary_and_leave_defaults_out() -> None:
    defaults = {
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "service_tier": "auto",
        "tools": TOOLS,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "reasoning": {"context": "auto"},
        "image": {"context_compression": "auto"},
    }
    assert DIALECT.cache.stream(request(user(), **defaults)).settings == {}
    others = {
        "tool_choice": {"type": "function", "name": "f"},
        "parallel_tool_calls": False,
        "service_tier": "flex",
        "text": {"format": {"type": "json_object"}, "verbosity": "high"},
        "reasoning": {"context": "all_turns", "effort": "low"},
        "image": {"context_compression": "enabled"},
        "a_field_of_tomorrow": 1,
    }
    assert set(DIALECT.cache.stream(request(user(), **others)).settings) == {
        "tool_choice",
        "parallel",
        "tier",
        "format",
        "verbosity",
        "thinking",
        "effort",
        "images",
        "other",
    }


@given(st.integers(0, 10_000))
def test_a_longer_conversation_continues_the_stream(seed: int) -> None:
    whole = conversation(seed)
    part = whole | {"input": whole["input"][: 1 + seed % len(whole["input"])]}
    assert seen(whole)[: len(seen(part))] == seen(part)


@given(st.integers(0, 10_000))
def test_markers_stand_exactly_where_they_were_asked_for(seed: int) -> None:
    whole = conversation(seed)
    before = copy.deepcopy(whole)
    dice = Random(seed)  # noqa: S311
    places = [b.place for b in DIALECT.cache.stream(whole).blocks if b.markable]
    chosen = {place: dice.choice(("", "30m", "12h")) for place in dice.sample(places, min(3, len(places)))}
    marked = BREAKPOINTS.mark(whole, Marking(places=chosen, key="k2", automatic="explicit"))
    assert whole == before
    assert DIALECT.wire.check(marked) == []
    again = DIALECT.cache.stream(marked)
    assert {b.place: b.marker for b in again.blocks if b.marker} == {p: t or "30m" for p, t in chosen.items()}
    assert (again.key, again.automatic) == ("k2", "explicit")
    assert seen(marked) == seen(whole)
    touched = {place.split(".")[0] for place in chosen}
    for i, (one, other) in enumerate(zip(whole["input"], marked["input"], strict=True)):
        assert (one is other) is (f"input[{i}]" not in touched)


def test_markers_that_were_not_asked_for_are_taken_off() -> None:
    bare = BREAKPOINTS.mark(BODY, Marking())
    assert "prompt_cache_breakpoint" not in json.dumps(bare)
    assert "prompt_cache_breakpoint" in json.dumps(BODY)
    assert bare["input"][0] is BODY["input"][0]
    assert bare["prompt_cache_key"] == "k"
    assert BREAKPOINTS.mark(bare, Marking()) is bare


def test_a_string_is_marked_as_a_message() -> None:
    marked = BREAKPOINTS.mark({"input": "Hello"}, Marking(places={"input[0].content[0]": ""}))
    assert marked["input"][0]["content"][0]["prompt_cache_breakpoint"] == {"mode": "explicit"}
    assert BREAKPOINTS.mark({"input": "Hello"}, Marking()) == {"input": "Hello"}


def test_the_lifetime_of_the_whole_request_is_set_where_it_belongs() -> None:
    assert BREAKPOINTS.mark(request(user()), Marking(automatic="12h"))["prompt_cache_options"] == {
        "ttl": "12h"
    }
    assert BREAKPOINTS.mark(request(user()), Marking(automatic="24h"))["prompt_cache_retention"] == "24h"


@pytest.mark.parametrize(
    "place", ["instructions", "tools[0]", "input[3].content[0]", "input[4]", "input[99]"]
)
def test_a_marker_where_none_may_stand_is_refused(place: str) -> None:
    with pytest.raises(BadInput, match="takes a marker"):
        BREAKPOINTS.mark(BODY, Marking(places={place: ""}))


def test_objects_of_the_sdk_are_read_and_only_taken_apart_where_marked() -> None:
    output = [thinks(1), says(n=2), calls("c", id="fc_3")]
    response = Response.model_validate(
        {
            "id": "r",
            "object": "response",
            "created_at": 0,
            "model": "m",
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }
    )
    body = request(user(), *response.output, answers("c"))
    assert seen(body) == seen(request(user(), *output, answers("c")))
    marked = BREAKPOINTS.mark(body, Marking(places={"input[4].output[0]": ""}))
    assert all(a is b for a, b in zip(body["input"][:4], marked["input"][:4], strict=True))


HEAD = PlainHead(
    model="gpt-6-sol",
    tools=(Tool(name="files/read", description="Reads.", schema={"type": "object"}), Tool(name="now")),
    output=100,
    temperature=0.5,
    top_p=0.9,
    choice="tool:files/read",
    answer={"type": "object"},
    effort="low",
    stream=True,
    stop=("END",),
)


def test_a_plain_head_becomes_a_head_that_the_api_takes() -> None:
    own = DIALECT.head.write(HEAD)
    assert own.left == ("stop",)
    assert DIALECT.wire.check({**own.head.parameters, "tools": list(own.head.tools), "input": "x"}) == []
    assert own.head.tools[0] == {
        "type": "function",
        "name": "files_read",
        "description": "Reads.",
        "parameters": {"type": "object"},
        "strict": False,
    }
    assert own.head.parameters["tool_choice"] == {"type": "function", "name": "files_read"}
    back = DIALECT.head.read(own.head)
    safe = Tool(name="files_read", description="Reads.", schema={"type": "object"})
    assert msgspec.structs.replace(back, tools=(safe, back.tools[1])) == msgspec.structs.replace(
        HEAD, tools=(safe, back.tools[1]), choice="tool:files_read", stop=()
    )
    assert DIALECT.head.write(back).head == own.head


def test_what_only_this_api_has_is_named() -> None:
    tools = (
        {"type": "web_search"},
        {"type": "custom", "name": "patch"},
        {"type": "mcp", "server_label": "s"},
    )
    parameters = {
        "model": "m",
        "tool_choice": {"type": "allowed_tools"},
        "previous_response_id": "r",
        "metadata": {},
        "text": {"format": {"type": "json_object"}, "verbosity": "low"},
        "reasoning": {"summary": "auto"},
    }
    plain = DIALECT.head.read(RequestHead(tools=tools, parameters=parameters))
    assert [tool.name for tool in plain.tools] == ["patch"]
    assert plain.tools[0].schema["required"] == ["input"]
    assert set(plain.left) == {
        "previous_response_id",
        "tools[0]",
        "tools[2]",
        "tool_choice",
        "text.format",
        "text.verbosity",
        "reasoning.summary",
    }


def test_an_effort_that_the_api_does_not_have_is_named() -> None:
    own = DIALECT.head.write(PlainHead(model="m", effort="heroic"))
    assert own.left == ("effort",)
    assert "reasoning" not in own.head.parameters
