from __future__ import annotations

import json
from typing import Any

import pytest

from lamina import BadInput, Role
from lamina.core import Document, Image, Raw, Text, ToolCall, ToolResult
from lamina.dialects.openai_chat import DIALECT
from lamina.dialects.openai_chat.parse import read_extra_fields
from tests.dialects.openai_chat_requests import (
    PIXEL,
    Json,
    answered,
    answers,
    asks,
    called,
    fitted,
    request,
    sent,
    user,
)  # fmt: skip

EVERYTHING = request(
    {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
    {"role": "system", "content": "Answer in French."},
    user(
        [
            {"type": "text", "text": "What is this?", "prompt_cache_breakpoint": {"mode": "explicit"}},
            {"type": "text", "text": " "},
            {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
            {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}},
            {"type": "file", "file": {"file_id": "file-1"}},
            {"type": "hologram", "hologram": {"depth": 3}},
        ],
        name="ada",
    ),
    {"role": "assistant", "content": [{"type": "text", "text": "A"}, {"type": "refusal", "refusal": "No"}]},
    user(""),
    {"role": "assistant", "content": None, "refusal": "I cannot.", "annotations": []},
    user("Then say it."),
    {"role": "assistant", "audio": {"id": "audio_1"}, "content": None},
    user("Read both."),
    asks(
        called("c1"),
        {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}},
        content="",
        reasoning_content="Let me look.",
        reasoning_details=[{"type": "reasoning.encrypted", "data": "opaque"}],
    ),
    answers("c2", [{"type": "text", "text": "patched"}]),
    answers("c1"),
    {"role": "system", "content": "The user is in a hurry."},
    {"role": "assistant", "content": "", "reasoning": "Cut off"},
    user("Old style."),
    {"role": "assistant", "content": None, "function_call": {"name": "now", "arguments": "{}"}},
    {"role": "function", "name": "now", "content": "noon"},
    {"role": "assistant", "content": "Done.", "some_server": {"field": 1}},
    tools=[{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}],
    temperature=0,
    stream=True,
    metadata={"unknown": ["to", "us"]},
)


def test_a_request_that_nothing_is_done_to_comes_back_as_the_same_objects() -> None:
    assert DIALECT.wire.check(EVERYTHING) == []
    rendered_request = DIALECT.wire.render(fitted(EVERYTHING))
    assert rendered_request == EVERYTHING
    for before, after in zip(EVERYTHING["messages"], rendered_request["messages"], strict=True):
        assert before is after
    assert rendered_request["tools"][0] is EVERYTHING["tools"][0]
    assert rendered_request["metadata"] is EVERYTHING["metadata"]


def test_pieces_are_typed() -> None:
    parts = [s.parts[0] for s in DIALECT.wire.parse(EVERYTHING).log]
    assert Image(data="iVBORw0KGgo=" * 300, media_type="image/png", detail="low") in parts
    assert Image(url="https://example.org/a.png") in parts
    assert Document(data="UklGRg==", media_type="audio/wav", name="audio.wav") in parts
    assert Document(data="JVBE", media_type="application/pdf", name="a.pdf") in parts
    assert Document(url="file-1", name="file-1") in parts
    assert Raw(dialect="openai_chat", data={"type": "hologram", "hologram": {"depth": 3}}) in parts
    assert ToolCall(id="c2", name="patch", arguments='{"input": "*** Begin"}') in parts
    assert ToolResult(id="c2", name="patch", content=(Text("patched"),)) in parts


def test_roles_kinds_and_joins() -> None:
    log = DIALECT.wire.parse(EVERYTHING).log
    assert [s.kind for s in log[:2]] == ["system", "system"]
    assert [s.role for s in log if s.kind == "thinking"] == [Role.ASSISTANT, Role.ASSISTANT]
    assert len([s for s in log if not s.joins]) == len(EVERYTHING["messages"])
    assert {s.origin for s in log} == {"openai_chat"}


def test_a_lowered_message_is_a_copy_in_which_the_rest_is_the_same() -> None:
    old = asks(called("c1", "write", json.dumps({"path": "a", "text": "long " * 900})), server="kept")
    messages = sent(
        request(user(), old, answers("c1"), user(), answered(), user()), window=600, keep_last=0, target=0.9
    )
    changed = next(m for m in messages if m.get("tool_calls"))
    assert changed is not old
    assert changed["server"] == "kept"
    assert changed["content"] is None
    assert "trimmed" in json.loads(changed["tool_calls"][0]["function"]["arguments"])["text"]
    assert len(old["tool_calls"][0]["function"]["arguments"]) > 4000


def test_a_lowered_picture_leaves_its_neighbours_and_its_marker() -> None:
    picture = {"type": "image_url", "image_url": {"url": PIXEL}, "prompt_cache_breakpoint": {}}
    text = {"type": "text", "text": "Look."}
    messages = sent(
        request(user([text, picture]), answered(), user(), answered(), user()), window=600, keep_last=0
    )
    assert messages[0]["content"][0] is text
    assert messages[0]["content"][1]["type"] == "text"
    assert messages[0]["content"][1]["prompt_cache_breakpoint"] == {}


def test_old_reasoning_is_shortened_in_its_own_field() -> None:
    old = {"role": "assistant", "content": "Yes.", "reasoning_content": "hm " * 3000}
    messages = sent(request(user(), old, user(), answered(), user()), window=600, keep_last=0)
    assert messages[1]["content"] == "Yes."
    assert messages[1]["reasoning_content"].startswith("[trimmed: thinking")


def test_a_shortened_custom_call_keeps_its_shape() -> None:
    call = {"id": "c", "type": "custom", "custom": {"name": "patch", "input": "line\n" * 2000}}
    log = request(user(), asks(call), answers("c", "ok"), user(), answered(), user())
    custom = sent(log, window=400, keep_last=0)[1]["tool_calls"][0]
    assert custom["type"] == "custom"
    assert custom["custom"]["input"].startswith("[trimmed")


def test_only_the_id_of_a_repeated_call_changes() -> None:
    content = [{"type": "text", "text": "one"}]
    messages = sent(request(user(), asks(called("x"), called("x")), answers("x"), answers("x", content)))
    first, second = (call["id"] for call in messages[1]["tool_calls"])
    assert (first, messages[2]["tool_call_id"]) == ("x", "x")
    assert messages[3]["tool_call_id"] == second != "x"
    assert messages[3]["content"] is content


def test_an_id_that_a_server_uses_for_every_call_is_left_alone() -> None:
    original_request = request(user(), asks(called("x")), answers("x"), asks(called("x")), answers("x"))
    assert sent(original_request) == original_request["messages"]


@pytest.mark.parametrize(
    "messages",
    [
        [user(), asks(called("c1"))],
        [user(), asks(called("c1"), called("c2")), answers("c2")],
        [user(), asks(called("c1")), user(), answers("c1")],
        [user(), asks(called("c1")), {"role": "system", "content": "x"}, answers("c1")],
        [user(), answers("nobody")],
        [user(), asks(called("c1"), called("c1")), answers("c1"), answers("c1"), answers("c1")],
        [user(), asks(called("")), answers("")],
        [
            user(),
            asks({"type": "function", "function": {"name": "now"}}),
            {"role": "tool", "content": "noon"},
        ],
        [user(), asks(called("c1", "functions.read:0")), answers("c1")],
        [user(), asks({"id": "c1", "function": {"name": "f", "arguments": {"a": 1}}}), answers("c1", None)],
        [user(), {"role": "assistant", "content": None}, user([]), answered(" ")],
        [user(), {"role": "assistant", "content": None, "reasoning_content": "hm"}],
        [user(), asks(), asks(called("c1"), content=[]), answers("c1", [])],
        [user(), {"role": "assistant", "function_call": {"name": "now", "arguments": "{}"}}, user()],
        [user(), {"role": "function", "name": "now", "content": "noon"}],
        [user(), asks(called("c1")), {"role": "function", "name": "read_file", "content": "noon"}],
    ],
)
def test_what_a_provider_would_refuse_is_mended(messages: list[Json]) -> None:
    assert DIALECT.wire.check(request(*messages))
    sent(request(*messages))


def test_names_that_the_request_defines_are_left_alone() -> None:
    tools = [{"type": "function", "function": {"name": "fs.read"}}]
    rendered_request = DIALECT.wire.render(
        fitted(request(user(), asks(called("c", "fs.read")), answers("c"), tools=tools))
    )
    assert rendered_request["messages"][1]["tool_calls"][0]["function"]["name"] == "fs.read"


def test_functions_from_before_tools_keep_their_name() -> None:
    old = request(user(), functions=[{"name": "now", "parameters": {}}])
    assert DIALECT.wire.parse(old).head.tools == ({"name": "now", "parameters": {}},)
    assert DIALECT.wire.render(fitted(old)) == old


def test_a_request_of_which_nothing_can_be_sent_is_refused() -> None:
    with pytest.raises(BadInput, match="nothing is left to send"):
        DIALECT.wire.render(fitted(request({"role": "assistant", "content": None})))


def test_objects_of_an_sdk_are_read_and_come_back_as_they_are() -> None:
    class Message:
        def model_dump(self, *, mode: str, exclude_unset: bool, **_: Any) -> Json:
            assert mode == "json"
            return answered() if exclude_unset else {}

    message = Message()
    rendered_request = DIALECT.wire.render(fitted(request(user(), message)))
    assert rendered_request["messages"][1] is message
    assert DIALECT.wire.check(rendered_request) == []


def test_only_text_that_says_something_is_reasoning() -> None:
    assert read_extra_fields({"role": "assistant", "content": "Hi", "reasoning": ""}) == []
    fields = {"reasoning": {"summary": "Why"}, "audio": {"id": "a1"}}
    assert read_extra_fields({"role": "assistant", **fields}) == [fields]


@pytest.mark.parametrize("role", ["system", "user", "assistant"])
@pytest.mark.parametrize("calls", [None, []])
def test_a_message_that_says_it_has_no_calls_is_sent_without_the_field(role: str, calls: Any) -> None:
    """So an SDK's object looks when it is dumped with its unset fields."""
    message = {"role": role, "content": "Hello.", "tool_calls": calls}
    original_request = {"model": "gpt-4o", "messages": [message, {"role": "user", "content": "Go."}]}
    rendered_request = DIALECT.wire.render(fitted(original_request))
    assert rendered_request["messages"][0] == {"role": role, "content": "Hello."}
    assert DIALECT.wire.check(rendered_request) == []
