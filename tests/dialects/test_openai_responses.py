from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import BadInput, Role
from lamina.core import Document, Image, Raw, Text, Thinking, ToolCall, ToolResult
from lamina.dialects.memos import ParseMemo
from lamina.dialects.openai_responses import DIALECT
from tests.dialects.openai_responses_requests import (
    PIXEL,
    Json,
    answers,
    calls,
    fitted,
    request,
    says,
    screen,
    sent,
    thinks,
    user,
)
from tests.dialects.test_any_json import values

EVERYTHING = request(
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
    {"type": "additional_tools", "role": "developer", "tools": [{"type": "web_search"}]},
    {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"},
    user(
        [
            {
                "type": "input_text",
                "text": "What is this?",
                "prompt_cache_breakpoint": {"mode": "explicit"},
            },
            {"type": "input_text", "text": " "},
            {"type": "input_image", "image_url": PIXEL, "detail": "low"},
            {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "auto"},
            {"type": "input_image", "file_id": "file-9", "detail": "auto"},
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"},
            {"type": "input_file", "file_url": "https://example.org/b.pdf"},
            {"type": "input_file", "file_id": "file-1"},
            {"type": "hologram", "hologram": {"depth": 3}},
        ]
    ),
    thinks(1, content=None, summary=[{"type": "summary_text", "text": "A picture."}]),
    says(
        "A",
        n=2,
        phase="commentary",
        content=[
            {"type": "output_text", "text": "A", "annotations": [{"type": "url_citation", "url": "u"}]},
            {"type": "refusal", "refusal": "No"},
        ],
    ),
    {"role": "user", "content": ""},
    {"role": "assistant", "content": "Hm."},
    user("Read both."),
    thinks(3),
    thinks(4),
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
    {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["a"], "results": None},
    {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "code": "1",
        "container_id": "c",
        "outputs": [],
        "status": "completed",
    },
    {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "aGk="},
    {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": []},
    {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "n", "arguments": "{}", "output": "o"},
    calls("c1", id="fc_1", status="completed", namespace="files"),
    {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "*** Begin", "id": "ctc_1"},
    {
        "type": "local_shell_call",
        "id": "ls_1",
        "call_id": "c3",
        "status": "completed",
        "action": {"type": "exec", "command": ["ls"], "env": {}},
    },
    {"type": "shell_call", "call_id": "c4", "action": {"commands": ["ls"]}},
    {
        "type": "apply_patch_call",
        "call_id": "c5",
        "status": "completed",
        "operation": {"type": "delete_file", "path": "a.py"},
    },
    screen("c6")[0],
    {"type": "mcp_approval_request", "id": "mcpr_1", "name": "n", "arguments": "{}", "server_label": "s"},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "done"}]},
    answers("c1"),
    {"type": "local_shell_call_output", "id": "c3", "output": "a.py"},
    {
        "type": "shell_call_output",
        "call_id": "c4",
        "output": [{"stdout": "a", "stderr": "b", "outcome": {"type": "exit", "exit_code": 0}}],
    },
    {"type": "apply_patch_call_output", "call_id": "c5", "status": "completed"},
    screen("c6")[1],
    {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
    {"role": "system", "content": "The user is in a hurry."},
    {"type": "program", "id": "pr_1", "call_id": "p1", "code": "f()", "fingerprint": "x"},
    calls("n1", caller={"type": "program", "caller_id": "p1"}),
    answers("n1"),
    {"type": "program_output", "id": "po_1", "call_id": "p1", "result": "1", "status": "completed"},
    {"type": "tool_search_call", "arguments": {}, "call_id": "t1", "execution": "client"},
    {"type": "tool_search_output", "call_id": "t1", "tools": [], "execution": "client"},
    {"type": "configuration_update", "reasoning": {"effort": "low"}},
    {"id": "msg_77"},
    {"type": "item_reference", "id": "msg_78"},
    {"type": "a_type_of_tomorrow", "id": "at_1", "data": [1]},
    user([{"type": "input_text", "text": "Done?"}]),
    {"type": "compaction_trigger"},
    instructions="You review code.",
    tools=[{"type": "function", "name": "read_file", "parameters": {"type": "object"}, "strict": None}],
    prompt_cache_key="k",
    prompt_cache_options={"mode": "explicit", "ttl": "12h"},
    metadata={"unknown": ["to", "us"]},
)


def test_a_request_that_nothing_is_done_to_comes_back_as_the_same_objects() -> None:
    assert DIALECT.wire.check(EVERYTHING) == []
    rendered = DIALECT.wire.render(fitted(EVERYTHING))
    assert rendered == EVERYTHING
    for before, after in zip(EVERYTHING["input"], rendered["input"], strict=True):
        assert before is after
    assert rendered["instructions"] is EVERYTHING["instructions"]
    assert rendered["tools"][0] is EVERYTHING["tools"][0]
    assert rendered["metadata"] is EVERYTHING["metadata"]


def test_pieces_are_typed() -> None:
    parts = [s.parts[0] for s in DIALECT.wire.parse(EVERYTHING).log]
    assert Image(data="iVBORw0KGgo=" * 300, media_type="image/png", detail="low") in parts
    assert Image(url="https://example.org/a.png", detail="auto") in parts
    assert Document(data="JVBE", media_type="application/pdf", name="a.pdf") in parts
    assert Document(url="https://example.org/b.pdf") in parts
    assert Document(url="file-1", name="file-1") in parts
    assert Raw(dialect="openai_responses", data={"type": "hologram", "hologram": {"depth": 3}}) in parts
    assert Thinking(text="A picture.", signature="sealed 1") in parts
    assert ToolCall(id="c2", name="patch", arguments='{"input": "*** Begin"}') in parts
    assert ToolResult(id="c2", name="patch", content=(Text("done"),)) in parts
    assert ToolResult(id="c3", name="local_shell", content=(Text("a.py"),)) in parts
    assert ToolResult(id="c4", name="shell", content=(Text("a\nb"),)) in parts
    assert ToolCall(id="mcpr_1", name="mcp_approval_request", arguments="{}") in parts


def test_roles_kinds_and_joins() -> None:
    log = DIALECT.wire.parse(EVERYTHING).log
    assert [s.kind for s in log[:3]] == ["system"] * 3
    assert {s.role for s in log if s.kind == "thinking"} == {Role.ASSISTANT}
    assert {s.origin for s in log} == {"openai_responses"}
    result = next(s for s in log if isinstance(p := s.parts[0], ToolResult) and p.id == "c1")
    assert result.attrs == {"path": "src/a.py"}
    log = DIALECT.wire.parse(request(user(), thinks(1), says(), calls("c"), answers("c"))).log
    assert [s.joins for s in log] == [False, False, True, True, False]


def test_a_string_is_what_the_user_says_and_stays_a_string() -> None:
    body = {"model": "m", "input": "Hello"}
    assert [(s.role, s.parts) for s in DIALECT.wire.parse(body).log] == [(Role.USER, (Text("Hello"),))]
    assert DIALECT.wire.render(fitted(body)) == body


@pytest.mark.parametrize("field", ["previous_response_id", "conversation"])
def test_an_output_whose_call_the_server_has_is_kept(field: str) -> None:
    body = request(answers("c9"), user("And?"), **{field: "resp_1"})
    assert DIALECT.wire.check(body) == []
    assert DIALECT.wire.render(fitted(body)) == body
    assert DIALECT.wire.check(request(answers("c9"), user())) != []


def test_a_request_that_only_continues_has_no_input() -> None:
    for body in ({"model": "m", "prompt": {"id": "pmpt_1"}}, {"previous_response_id": "r", "input": []}):
        assert DIALECT.recognises(body)
        assert DIALECT.wire.check(body) == []
        assert DIALECT.wire.render(fitted(body)) == body


@pytest.mark.parametrize(
    "items",
    [
        [user(), calls("c1")],
        [user(), calls("c1"), calls("c2"), answers("c2")],
        [user(), calls("c1"), user(), says(), answers("c1")],
        [user(), answers("nobody")],
        [user(), calls("x"), calls("x"), answers("x"), answers("x"), answers("x")],
        [user(), calls("x"), answers("x"), calls("x"), answers("x")],
        [user(), calls(""), answers("")],
        [user(), calls("c" * 70), answers("c" * 70)],
        [user(), calls("c1", "functions.read:0"), answers("c1")],
        [user(), {"type": "function_call", "call_id": "c", "name": "f", "arguments": {"a": 1}}, answers("c")],
        [user(), calls("c1"), answers("c1", None)],
        [user([]), user(), says()],
        [user([{"type": "text", "text": "Hi"}]), says()],
        [user([{"type": "output_text", "text": "Hi"}])],
        [user(), {"role": "assistant", "content": [{"type": "input_text", "text": "Hi"}]}],
        [user(), {"role": "assistant", "content": [{"type": "input_image", "image_url": PIXEL}]}, user()],
        [user(), {"id": "msg_1"}, {"id": "msg_1"}, user()],
        [user(), {"id": "a b"}, {"type": "item_reference"}, user()],
        [user(), screen("c")[0], user()],
    ],
)
def test_what_the_api_would_refuse_is_mended(items: list[Json]) -> None:
    assert DIALECT.wire.check(request(*items))
    sent(request(*items))


def test_names_that_the_request_defines_are_left_alone() -> None:
    tools = [{"type": "function", "name": "fs.read"}]
    rendered = DIALECT.wire.render(fitted(request(user(), calls("c", "fs.read"), answers("c"), tools=tools)))
    assert rendered["input"][1]["name"] == "fs.read"


def test_a_request_of_which_nothing_can_be_sent_is_refused() -> None:
    with pytest.raises(BadInput, match="nothing is left to send"):
        DIALECT.wire.render(fitted(request(user([]))))


def test_many_items_take_time_in_proportion() -> None:
    many = request(user(), *(thinks(i) for i in range(4_000)), says())
    assert DIALECT.wire.check(many) == []
    assert len(DIALECT.wire.parse(many).log) == 4_002


def test_a_memo_forgets_when_what_surrounds_the_items_changes() -> None:
    memo = ParseMemo()
    items = [user(), thinks(1, encrypted_content=""), says(n=1), answers("c")]
    for fields in ({}, {"store": False}, {"previous_response_id": "r"}, {"instructions": "Be brief."}):
        body = request(*items, **fields)
        assert DIALECT.wire.parse(body, memo=memo) == DIALECT.wire.parse(body)


def test_items_before_one_that_cannot_be_read_are_new_when_they_come_again() -> None:
    """The memo's reader has seen their ids and their calls, and the request was refused."""
    memo, asked = ParseMemo(), [user(), calls("a"), calls("a", "grep")]
    DIALECT.wire.parse(request(*asked), memo=memo)
    grown = [*asked, answers("a", name="grep"), answers("a"), says(n=1)]
    with pytest.raises(BadInput):
        DIALECT.wire.parse(request(*grown, {"role": "bot"}), memo=memo)
    assert DIALECT.wire.parse(request(*grown), memo=memo) == DIALECT.wire.parse(request(*grown))


def test_two_forks_of_a_conversation_do_not_see_the_items_of_each_other() -> None:
    memo, fork, asked = ParseMemo(), ParseMemo(), [user(), calls("a"), calls("a", "grep")]
    DIALECT.wire.parse(request(*asked), memo=memo)
    fork.past, fork.basis = memo.past, memo.basis
    grown = [*asked, answers("a", name="grep"), answers("a"), says(n=1)]
    for each in (memo, fork):
        assert DIALECT.wire.parse(request(*grown), memo=each) == DIALECT.wire.parse(request(*grown))


@given(st.lists(values("openai_responses"), min_size=1, max_size=4))
def test_no_item_is_lost(items: list[Any]) -> None:
    with suppress(BadInput):
        assert len(DIALECT.wire.parse(request(user(), *items)).log) >= len(items)
