from __future__ import annotations

import json

import pytest

from lamina import Form, build
from lamina.core import Filter, Layout
from lamina.dialects.openai_responses import DIALECT
from lamina.dialects.openai_responses.item_scan import (
    REASONING_ALONE,
    REASONING_TWICE,
    REASONING_UNREADABLE,
)
from lamina.dialects.translate import choose_options
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


def test_a_lowered_item_is_a_copy_in_which_the_rest_is_the_same() -> None:
    text, picture = {"type": "input_text", "text": "Look."}, {"type": "input_image", "image_url": PIXEL}
    marked = {**picture, "prompt_cache_breakpoint": {"mode": "explicit"}}
    old = calls("c1", "write", json.dumps({"path": "a", "text": "long " * 900}), namespace="files")
    body = request(
        user([text, marked]), says(), user(), old, answers("c1"), says("No.", phase="commentary"), user()
    )
    items = sent(body, window=600, keep_last=0, target=0.9)
    first, call = items[0], next(item for item in items if item["type"] == "function_call")
    assert first["content"][0] is text
    assert first["content"][1]["text"].startswith("[trimmed: image")
    assert first["content"][1]["prompt_cache_breakpoint"] == {"mode": "explicit"}
    assert call is not old
    assert call["namespace"] == "files"
    assert "trimmed" in json.loads(call["arguments"])["text"]
    assert len(old["arguments"]) > 4000


def test_the_marker_of_a_lowered_output_stays_on_its_last_block() -> None:
    marker = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    output = [{"type": "input_text", "text": "long " * 900, **marker}, {"type": "input_text", "text": "end"}]
    items = sent(request(user(), calls("c1"), answers("c1", output), user(), says(), user()), window=600)
    [lowered] = [item["output"] for item in items if item["type"] == "function_call_output"]
    assert len(lowered[0]["text"]) < 900
    assert [block.get("prompt_cache_breakpoint") for block in lowered][-1] == {"mode": "explicit"}


def test_a_lowered_reply_keeps_its_phase_and_loses_what_pointed_into_its_text() -> None:
    note = {"type": "output_text", "text": "word " * 900, "annotations": [{"type": "url_citation"}]}
    old = says(n=5, phase="final_answer", content=[note])
    items = sent(request(user(), old, user(), says(), user()), window=1100, keep_last=0)
    changed = next(item for item in items if item.get("phase") == "final_answer")
    assert changed["content"][0]["annotations"] == []
    assert len(changed["content"][0]["text"]) < 900


def test_an_item_whose_reasoning_was_left_out_loses_its_id() -> None:
    body = request(
        user("word " * 400),
        thinks(1, summary=[{"type": "summary_text", "text": "hm " * 900}]),
        says("I look.", n=2),
        calls("c1", id="fc_3"),
        answers("c1", "text " * 900),
        user(),
        thinks(6),
        says(n=7),
        user(),
    )
    items = sent(body, window=1_200, keep_last=1)
    assert "rs_1" not in json.dumps(items)
    assert "msg_2" not in json.dumps(items)
    assert "fc_3" not in json.dumps(items)
    assert items[-3] is body["input"][-3]
    assert items[-2]["id"] == "msg_7"


def test_reasoning_that_cannot_be_sent_back_is_left_out_with_its_reason() -> None:
    shut = thinks(3, encrypted_content=None)
    cases: list[tuple[Json, str]] = [
        (request(user(), thinks(1), user()), REASONING_ALONE),
        (request(user(), thinks(1)), REASONING_ALONE),
        (
            request(user(), thinks(1), {"type": "message", "role": "assistant", "content": []}, user()),
            REASONING_ALONE,
        ),
        (request(user(), thinks(1), says(n=1), user(), thinks(1), says(n=2)), REASONING_TWICE),
        (request(user(), shut, says(n=4), store=False), REASONING_UNREADABLE),
    ]
    for body, why in cases:
        assert DIALECT.wire.check(body)
        left = [e for e in fitted(body).entries if e.form is Form.OMITTED and e.segment.kind == "thinking"]
        assert [e.why for e in left] == [why]
        sent(body)


def test_what_an_approval_is_asked_by_is_told_otherwise_where_its_reasoning_is_gone() -> None:
    approval_request = {
        "type": "mcp_approval_request",
        "id": "mcpr_1",
        "name": "n",
        "arguments": "{}",
        "server_label": "s",
    }
    answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    items = sent(
        request(user(), thinks(1, encrypted_content=None), approval_request, answer, user(), store=False)
    )
    assert [item["type"] for item in items[1:3]] == ["function_call", "function_call_output"]
    assert json.loads(items[2]["output"]) == {"approve": True}


def test_reasoning_goes_with_the_item_that_it_led_to() -> None:
    body = request(user(), thinks(1), calls("c", id="fc_1"), answers("c"), thinks(2), says(n=3), user())
    parsed = DIALECT.wire.parse(body)
    layout = Layout(context="logged", exclude=Filter(kinds=frozenset(("tool_call",))))
    envelope = build(
        parsed.log, head=parsed.head, options=choose_options(DIALECT, parsed.head, layout=layout)
    )
    assert DIALECT.wire.render(envelope)["input"] == [body["input"][0], *body["input"][4:]]


def test_lost_reasoning_takes_no_ids_from_later_answers() -> None:
    body = request(user(), thinks(1), user(), says(n=2), user())
    assert sent(body) == [body["input"][0], *body["input"][2:]]


def test_what_others_depend_on_is_never_lowered() -> None:
    held: list[Json] = [
        {"type": "compaction", "encrypted_content": "sealed " * 50},
        {"type": "program", "id": "pr_1", "call_id": "p", "code": "f() " * 50, "fingerprint": "x"},
        calls("n", caller={"type": "program", "caller_id": "p"}),
        answers("n", "text " * 3000),
        {"type": "program_output", "id": "po_1", "call_id": "p", "result": "r " * 50, "status": "completed"},
        {"type": "tool_search_output", "call_id": "t", "tools": [{"type": "web_search"}]},
        {"type": "configuration_update", "reasoning": {"effort": "low"}},
    ]
    items = sent(request(user(), *held, user(), says("word " * 2000), user()), window=1500, keep_last=0)
    assert all(any(item is one for item in items) for one in held if one["type"] != "function_call_output")


def test_ids_that_the_api_did_not_give_or_gave_once_are_left_out() -> None:
    items = sent(request(user(), calls("c1", id="call_1"), answers("c1"), says(n=5), user(), says(n=5)))
    assert ["id" in item for item in items] == [False, False, False, True, False, False]


def test_an_old_screenshot_is_told_as_the_answer_of_a_function() -> None:
    screens = [item for i in range(8) for item in screen(f"c{i}")]
    items = sent(request(user(), *screens), window=12_000, keep_last=0)
    kinds = [item["type"] for item in items if item["type"] != "message"]
    assert kinds[:2] == ["function_call", "function_call_output"]
    assert next(item for item in items if item["type"] == "function_call")["name"] == "computer"
    assert kinds[-2:] == ["computer_call", "computer_call_output"]
    assert items[-1] is screens[-1]


def test_old_output_of_a_shell_stays_output_of_a_shell() -> None:
    call = {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls"]}}
    printed = {"stdout": "line\n" * 3000, "stderr": "", "outcome": {"type": "exit", "exit_code": 1}}
    output = {"type": "shell_call_output", "call_id": "c", "output": [printed]}
    items = sent(request(user(), call, output, user(), says(), user()), window=900, keep_last=0)
    assert items[1] is call
    assert items[2]["type"] == "shell_call_output"
    assert "shortened" in items[2]["output"][0]["stdout"]


@pytest.mark.parametrize("sort", ["custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call"])
def test_a_call_without_an_output_is_answered_in_its_own_type(sort: str) -> None:
    call = {"type": sort, "call_id": "c", "name": "n", "input": "x", "action": {}, "operation": {}}
    items = sent(request(user(), call, user()))
    assert items[1] is call
    assert items[2]["type"] == f"{sort}_output"


def test_a_shortened_custom_call_keeps_its_shape() -> None:
    call = {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": "line\n" * 2000}
    output = {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"}
    items = sent(request(user(), call, output, user(), says(), user()), window=400, keep_last=0)
    assert items[1]["type"] == "custom_tool_call"
    assert items[1]["input"].startswith("[trimmed")
