from __future__ import annotations

import copy
from pathlib import Path

import ollama
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import build
from lamina.core import Image, ToolCall, ToolResult
from lamina.dialects.ollama import DIALECT
from tests.dialects.ollama_requests import (
    PIXEL,
    TOOL,
    Json,
    answered,
    answers,
    asks,
    called,
    fitted,
    request,
    sent,
    user,
)

EVERYTHING = request(
    {"role": "system", "content": "Be brief."},
    user("Look.", images=[PIXEL, b"\x89PNG", "photo.png", Path("a.jpg")]),
    answered("I see.", thinking="A picture."),
    asks(called(), called("now", {}), note="kept"),
    answers("noon", "now", images=[PIXEL]),
    {"role": "tool", "content": "x = 1"},
    {"role": "system", "content": "Hurry."},
    user(""),
    user("", images=[PIXEL]),
    {"role": "assistant", "tool_calls": [called(id="w1"), called(id="w2")]},
    answers("2", tool_call_id="w2"),
    answers("1", tool_call_id="w1"),
    tools=[TOOL],
    options={"num_ctx": 8192, "temperature": 0.5},
    think="high",
    keep_alive="10m",
    format="json",
    stream=True,
)


def test_every_kind_of_message_comes_back_as_the_same_object() -> None:
    assert DIALECT.wire.check(EVERYTHING) == []
    rendered_request = DIALECT.wire.render(fitted(EVERYTHING))
    assert rendered_request == EVERYTHING
    assert all(a is b for a, b in zip(rendered_request["messages"], EVERYTHING["messages"], strict=True))


def test_each_piece_is_a_segment_of_its_own() -> None:
    log = DIALECT.wire.parse(EVERYTHING).log
    kinds = [(segment.kind, segment.joins) for segment in log[:10]]
    assert kinds == [
        ("system", False), ("user", False), ("user", True), ("user", True), ("user", True), ("user", True),
        ("thinking", False), ("assistant", True), ("tool_call", False), ("tool_call", True),
    ]  # fmt: skip
    assert [segment.parts[0] for segment in log[2:6]] == [
        Image(data=PIXEL), Image(data="iVBORw=="), Image(url="photo.png"), Image(url="a.jpg"),
    ]  # fmt: skip
    assert all(segment.origin == "ollama" for segment in log)


def test_head_keeps_everything_that_is_not_a_message() -> None:
    head = DIALECT.wire.parse(EVERYTHING).head
    assert head.tools == (TOOL,)
    assert {**head.parameters, "messages": EVERYTHING["messages"], "tools": [TOOL]} == EVERYTHING


def test_results_belong_to_calls_by_name_and_place() -> None:
    calls = asks(called("f", {"n": 1}), called("g", {"path": "b.py"}), called("f", {"n": 2}))
    log = DIALECT.wire.parse(
        request(user(), calls, answers("g", "g"), answers("1", "f"), answers("2", "f"))
    ).log
    ids = [part.id for s in log if isinstance(part := s.parts[0], ToolCall)]
    results = [part for s in log if isinstance(part := s.parts[0], ToolResult)]
    assert [(r.name, r.id) for r in results] == [("g", ids[1]), ("f", ids[0]), ("f", ids[2])]
    assert log[4].attrs == {"path": "b.py"}


def test_a_result_without_a_name_belongs_to_the_first_call_that_waits() -> None:
    calls = asks(called("f"), called("g"))
    log = DIALECT.wire.parse(request(user(), calls, answers("g", "g"), {"role": "tool", "content": "f"})).log
    assert [part.name for s in log if isinstance(part := s.parts[0], ToolResult)] == ["g", "f"]


def test_the_name_that_a_client_gave_stays_where_only_one_call_can_be_meant() -> None:
    messages = sent(request(user(), asks(called("read")), answers("x", "Read")))
    assert messages[2] == {"role": "tool", "content": "x", "tool_name": "Read"}


def test_a_result_of_a_tool_that_nobody_called_is_left_out_and_the_calls_are_answered() -> None:
    messages = sent(request(user(), asks(called("f"), called("g")), answers("h", "h"), answers("f", "f")))
    assert [(m["role"], m.get("tool_name")) for m in messages[2:]] == [("tool", "f"), ("tool", "g")]
    assert messages[2]["content"] == "f"


def test_arguments_that_are_text_become_an_object() -> None:
    messages = sent(request(user(), asks(called("f", '{"a": 1}'), called("g", "no json")), *_two()))
    functions = [call["function"] for call in messages[1]["tool_calls"]]
    assert [f["arguments"] for f in functions] == [{"a": 1}, {"arguments": "no json"}]


def _two() -> tuple[Json, Json]:
    return answers("1", "f"), answers("2", "g")


def test_a_data_url_loses_its_prefix_and_the_rest_of_the_message_stays() -> None:
    message = user("See.", images=[f"data:image/png;base64,{PIXEL}", PIXEL], mood="fine")
    assert sent(request(message)) == [user("See.", images=[PIXEL, PIXEL], mood="fine")]


def test_a_call_that_was_not_lowered_is_the_same_object_beside_one_that_was() -> None:
    small, large = called("f", {"n": 1}), called("g", {"text": "word " * 3000})
    original_request = request(
        user(), asks(small, large), *_two(), answered(), user("more"), answered(), user("Last.")
    )
    messages = sent(original_request, window=900, keep_last=0)
    calls = next(m["tool_calls"] for m in messages if m.get("tool_calls"))
    assert calls[0] is small
    assert "trimmed" in calls[1]["function"]["arguments"]["text"]


def test_a_picture_that_was_lowered_is_said_in_the_content() -> None:
    original_request = request(
        user("See.", images=[PIXEL]), answered(), user("more"), answered(), user("Last.")
    )
    pictured = fitted(original_request).tokens
    messages = sent(original_request, window=pictured // 2, keep_last=0)
    assert "images" not in messages[0]
    assert messages[0]["content"].startswith("See.\n[trimmed: image")


def test_objects_of_the_sdk_are_read_and_come_back_as_they_are() -> None:
    call = ollama.Message.ToolCall(function=ollama.Message.ToolCall.Function(name="f", arguments={"a": 1}))
    spoken = ollama.Message(role="assistant", tool_calls=[call])
    seen = ollama.Message(role="user", content="See.", images=[ollama.Image(value=Path("missing.png"))])
    original_request = request(seen, spoken, answers("x", "f"), tools=[ollama.Tool.model_validate(TOOL)])
    rendered_request = DIALECT.wire.render(fitted(original_request))
    assert rendered_request["messages"][0] is seen
    assert rendered_request["messages"][1] is spoken
    assert rendered_request["tools"][0]["function"]["name"] == "read_file"
    assert DIALECT.wire.check(rendered_request) == []


def test_requests_are_not_changed_by_any_function() -> None:
    before = copy.deepcopy(EVERYTHING)
    DIALECT.wire.render(fitted(EVERYTHING))
    DIALECT.cache.stream(EVERYTHING)
    DIALECT.wire.check(EVERYTHING)
    assert before == EVERYTHING


def test_calls_that_are_none_are_left_out_whoever_speaks() -> None:
    messages = [{"role": "system", "content": "hi", "tool_calls": {}}, user()]
    assert DIALECT.wire.check(DIALECT.wire.render(fitted(request(*messages)))) == []


CALLS = st.lists(st.sampled_from(("f", "g")), min_size=1, max_size=3)


STEPS = st.tuples(
    CALLS,
    st.lists(st.sampled_from(("f", "g", "h", "")), max_size=4),
    st.booleans(),
)


@given(st.lists(STEPS, min_size=1, max_size=3))
def test_results_in_any_number_and_order_are_sent_valid(
    steps: list[tuple[list[str], list[str], bool]],
) -> None:
    messages = [user()]
    for names, results, speaks in steps:
        messages.append(asks(*(called(name, {"n": i}) for i, name in enumerate(names))))
        messages += [answers(f"{i}", name) for i, name in enumerate(results)]
        messages += [answered()] if speaks else []
    rendered_request = DIALECT.wire.render(fitted(request(*messages)))
    assert DIALECT.wire.check(rendered_request) == []
    if DIALECT.wire.check(request(*messages)) == []:
        assert all(a is b for a, b in zip(rendered_request["messages"], messages, strict=True))


@pytest.mark.parametrize("role", ["system", "user"])
@pytest.mark.parametrize("name", ["thinking", "tool_name"])
def test_a_text_that_is_none_is_left_out_whoever_speaks(role: str, name: str) -> None:
    messages = [{"role": role, "content": "hi", name: []}, {"role": "user", "content": "and?"}]
    parsed = DIALECT.wire.parse({"model": "m", "messages": messages})
    assert DIALECT.wire.check(DIALECT.wire.render(build(parsed.log, head=parsed.head))) == []
