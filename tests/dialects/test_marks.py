"""Markers on requests: exactly those that were asked for, everything else the same object."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from anthropic.types import TextBlock, ToolUseBlock
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessage

from lamina.dialects.anthropic.cache_view import stream as messages_stream
from lamina.dialects.anthropic.check import check
from lamina.dialects.anthropic.markers import mark as mark_messages
from lamina.dialects.openai_chat.cache_view import stream as chat_stream
from lamina.dialects.openai_chat.parts import BREAKPOINTS
from lamina.dialects.port import Marking
from lamina.errors import BadInput

MARKER = {"type": "ephemeral"}


def talk() -> dict[str, Any]:
    use = ToolUseBlock(type="tool_use", id="c1", name="read_file", input={"path": "a.py"})
    image = {"type": "text", "text": "inner", "cache_control": MARKER}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [image]}
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


def chat() -> dict[str, Any]:
    part = {"type": "text", "text": "Be brief.", "prompt_cache_breakpoint": {"mode": "explicit"}}
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


def markers(request: dict[str, Any], stream: Any) -> dict[str, str]:
    return {block.place: block.marker for block in stream(request).blocks if block.marker}


def test_exactly_the_markers_that_were_asked_for() -> None:
    request, places = (
        talk(),
        {"system[0]": "1h", "messages[1].content[1]": "", "messages[2].content[0]": "5m"},
    )
    before = deepcopy(request)
    marked = mark_messages(request, Marking(places=places))
    assert request == before
    assert markers(marked, messages_stream) == {
        "system[0]": "1h",
        "messages[1].content[1]": "5m",
        "messages[2].content[0]": "5m",
    }
    assert "cache_control" not in marked
    assert "cache_control" not in marked["tools"][0]
    assert "cache_control" not in marked["messages"][2]["content"][0]["content"][0]
    assert check(marked) == []


def test_the_prefix_stream_does_not_see_markers() -> None:
    request = talk()
    marked = mark_messages(request, Marking(places={"system[0]": "", "messages[0].content[0]": ""}))
    assert [b.data for b in messages_stream(marked).blocks] == [
        b.data for b in messages_stream(request).blocks
    ]
    chat_request = chat()
    done = BREAKPOINTS.mark(chat_request, Marking(places={"messages[3].content[0]": ""}))
    assert [b.data for b in chat_stream(done).blocks] == [b.data for b in chat_stream(chat_request).blocks]


def test_what_need_not_change_is_the_same_object() -> None:
    request = talk()
    marked = mark_messages(request, Marking(places={"messages[2].content[1]": ""}))
    assert marked["messages"][0] is request["messages"][0]
    assert marked["messages"][1] is request["messages"][1]
    assert marked["system"] is request["system"]
    again = mark_messages(marked, Marking(places={"messages[2].content[1]": ""}))
    assert again is marked
    assert mark_messages(marked, Marking(places={"messages[2].content[1]": "5m"})) is marked
    longer = mark_messages(marked, Marking(places={"messages[2].content[1]": "1h"}))
    assert markers(longer, messages_stream) == {"messages[2].content[1]": "1h"}


def test_a_string_becomes_one_block_where_it_must_carry_a_marker() -> None:
    marked = mark_messages(talk(), Marking(places={"system[0]": "", "messages[0].content[0]": ""}))
    assert marked["system"] == [{"type": "text", "text": "You read files.", "cache_control": MARKER}]
    assert marked["messages"][0]["content"][0] == {
        "type": "text",
        "text": "Read a.py.",
        "cache_control": MARKER,
    }


def test_the_automatic_marker_is_one_of_four() -> None:
    places = {f"messages[{i}].content[0]": "" for i in range(3)} | {"system[0]": ""}
    assert len(markers(mark_messages(talk(), Marking(places=places)), messages_stream)) == 4
    with pytest.raises(BadInput, match="5 cache markers"):
        mark_messages(talk(), Marking(places=places, automatic="5m"))
    del places["system[0]"]
    marked = mark_messages(talk(), Marking(places=places, automatic="1h"))
    assert marked["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


@pytest.mark.parametrize("mark", [mark_messages, BREAKPOINTS.mark])
def test_a_place_that_is_not_there_is_named(mark: Any) -> None:
    request = talk() if mark is mark_messages else chat()
    with pytest.raises(BadInput, match=r"messages\[9\]"):
        mark(request, Marking(places={"messages[9].content[0]": ""}))


def test_a_field_that_is_null_is_no_marker_and_stays() -> None:
    block = {"type": "text", "text": "Hi", "cache_control": None}
    request = {"model": "claude-opus-5", "messages": [{"role": "user", "content": [block]}]}
    assert mark_messages(request, Marking()) is request


def test_breakpoints_of_a_chat_request() -> None:
    request = chat()
    before = deepcopy(request)
    places = {"messages[0].content[1]": "", "messages[2].content[0]": "12h"}
    marked = BREAKPOINTS.mark(request, Marking(places=places))
    assert request == before
    system, user, answer, last = marked["messages"]
    assert "prompt_cache_breakpoint" not in system["content"][0]
    assert system["content"][1]["prompt_cache_breakpoint"] == {"mode": "explicit"}
    assert answer["content"][0]["prompt_cache_breakpoint"] == {"mode": "explicit", "ttl": "12h"}
    assert (user, last) == (request["messages"][1], request["messages"][3])
    assert user is request["messages"][1]
    assert BREAKPOINTS.mark(marked, Marking(places=places)) is marked


def test_key_and_mode_are_set_where_asked_for_and_else_stay() -> None:
    places = {"messages[0].content[0]": ""}
    assert BREAKPOINTS.mark(chat(), Marking(places=places))["prompt_cache_key"] == "mine"
    marked = BREAKPOINTS.mark(chat(), Marking(places=places, key="other", automatic="explicit"))
    assert (marked["prompt_cache_key"], marked["prompt_cache_options"]) == ("other", {"mode": "explicit"})
    timed = BREAKPOINTS.mark(marked, Marking(places=places, automatic="30m"))
    assert timed["prompt_cache_options"] == {"mode": "explicit", "ttl": "30m"}
    assert "prompt_cache_options" not in chat()


@given(st.data())
def test_any_markers_are_placed_and_taken_off_again(data: st.DataObject) -> None:
    request = mark_messages(talk(), Marking())
    places = [block.place for block in messages_stream(request).blocks if block.markable]
    chosen = data.draw(st.lists(st.sampled_from(places), max_size=4, unique=True))
    marked = mark_messages(request, Marking(places=dict.fromkeys(chosen, "1h")))
    assert markers(marked, messages_stream) == dict.fromkeys(chosen, "1h")
    bare = mark_messages(marked, Marking())
    assert messages_stream(bare).blocks == messages_stream(request).blocks


json_values = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(("tools", "system", "messages", "cache_control")), json_values))
def test_anything_is_passed_or_stripped_and_never_written_to(request: dict[str, Any]) -> None:
    before = json.dumps(request)
    for mark in (mark_messages, BREAKPOINTS.mark):
        mark(request, Marking())
    assert json.dumps(request) == before
