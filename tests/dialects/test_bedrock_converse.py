"""Converse: what is parsed comes back, what is refused is mended, and botocore takes whatever leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from lamina import Policy, Role, fit_request, translate
from lamina.core import Document, Image, Raw, Text, Thinking, ToolCall, ToolResult
from lamina.dialects import DIALECTS
from lamina.dialects.bedrock_converse import DIALECT, to_sdk_arguments
from lamina.dialects.bedrock_converse.blocks import make_document_name
from lamina.dialects.sending import MOVED
from lamina.testing.conformance import MODELS, DialectTrial
from tests.dialects.bedrock_requests import (
    MODEL,
    PIXEL,
    POINT,
    TOOL,
    Json,
    answers,
    called,
    document,
    picture,
    refusals,
    request,
    says,
    sent,
    user,
)


@pytest.mark.parametrize("name", [name for name in DIALECTS if name != "bedrock_converse"])
def test_botocore_takes_what_other_apis_said(name: str) -> None:
    """A conversation of every other API leaves as a body that boto3 itself would send."""
    trial = DialectTrial(DIALECTS[name], MODELS[name], (), (1,))
    for original in trial.samples:
        fitted = translate(original, dialect=name, to="bedrock_converse", model=MODEL)
        assert refusals(fitted.request) == ""


def test_each_block_has_its_part() -> None:
    reasoning = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s"}}}
    hidden = {"reasoningContent": {"redactedContent": PIXEL}}
    original = request(
        user({"text": "Look."}, picture(), document(), {"video": {"format": "mp4", "source": {}}}),
        says(reasoning, hidden, {"text": "Reading."}, called("t1")),
        user(answers("t1", {"json": {"lines": 3}}, picture(), status="error")),
        system=[{"text": "Be brief."}],
    )
    log = DIALECT.wire.parse(original).log
    parts = [segment.parts[0] for segment in log]
    sorts = [Text, Text, Image, Document, Raw, Thinking, Thinking, Text, ToolCall, ToolResult]
    assert [type(part) for part in parts] == sorts
    result = parts[-1]
    assert isinstance(result, ToolResult)
    assert (result.name, result.error, result.content[0]) == ("read_file", True, Text('{"lines":3}'))
    assert log[-1].role is Role.TOOL
    assert log[-1].attrs == {"path": "src/a.py"}


def test_hidden_reasoning_stays_in_a_message_whose_call_is_mended() -> None:
    """Reasoning that is not shown has no text, and is not blank for that."""
    hidden = {"reasoningContent": {"redactedContent": PIXEL}}
    original = request(user(), says(hidden, called("t1", "fs.read")), user(answers("t1")))
    assert sent(original)["messages"][1]["content"] == [hidden, called("t1", "fs_read")]


def test_bytes_of_boto3_are_read_like_base64_and_sent_as_they_came() -> None:
    arguments = to_sdk_arguments(request(user({"text": "Look."}, picture())))
    assert isinstance(arguments["messages"][0]["content"][1]["image"]["source"]["bytes"], bytes)
    parsed = DIALECT.wire.parse(arguments)
    picture_part = parsed.log[1].parts[0]
    assert isinstance(picture_part, Image)
    assert picture_part.data == PIXEL
    assert sent(arguments)["messages"][0] is arguments["messages"][0]


def test_input_of_a_tool_may_have_a_field_that_is_called_bytes() -> None:
    call = called("t1", bytes="aGk=")
    assert to_sdk_arguments(request(says(call)))["messages"][0]["content"][0] is call


MENDED: dict[str, tuple[Json, Callable[[list[Json]], bool]]] = {
    "two of the user in a row become one": (
        request(user({"text": "One."}), user({"text": "Two."})),
        lambda messages: messages == [user({"text": "One."}, {"text": "Two."})],
    ),
    "the assistant does not begin": (
        request(says(), user()),
        lambda messages: [message["role"] for message in messages] == ["user", "assistant", "user"],
    ),
    "a blank text is left out": (
        request(user(), says({"text": " "}, called("t1")), user(answers("t1"))),
        lambda messages: messages[1] == says(called("t1")),
    ),
    "a blank text in a result is left out": (
        request(user(), says(called("t1")), user(answers("t1", {"text": ""}, {"text": "ok"}))),
        lambda messages: messages[2] == user(answers("t1", {"text": "ok"})),
    ),
    "results come first": (
        request(user(), says(called("t1")), user({"text": "Here."}, answers("t1"))),
        lambda messages: messages[2] == user(answers("t1"), {"text": "Here."}),
    ),
    "a call without a result gets one": (
        request(user(), says(called("t1")), user({"text": "Stop."})),
        lambda messages: "toolResult" in messages[2]["content"][0],
    ),
    "a result without a call is words": (
        request(user(), user(answers("t9"))),
        lambda messages: all("toolResult" not in block for block in messages[0]["content"]),
    ),
    "a name has allowed characters": (
        request(user(), says(called("t1", "fs.read")), user(answers("t1"))),
        lambda messages: messages[1]["content"][0]["toolUse"]["name"] == "fs_read",
    ),
    "an id has allowed characters": (
        request(user(), says(called("t 1")), user(answers("t 1"))),
        lambda messages: messages[1]["content"][0]["toolUse"]["toolUseId"] != "t 1",
    ),
}


@pytest.mark.parametrize("name", MENDED)
def test_what_the_api_refuses_is_mended(name: str) -> None:
    original, is_mended = MENDED[name]
    assert DIALECT.wire.check(original) != []
    assert is_mended(sent(original)["messages"])


def test_calls_without_tools_get_a_tool_that_later_calls_do_not_change() -> None:
    history = [user()]
    first = fit_request({"modelId": MODEL, "messages": history})
    assert "toolConfig" not in first.request
    history += [says(called("t1")), user(answers("t1"))]
    second = fit_request({"modelId": MODEL, "messages": history}, ledger=first.ledger)
    assert second.request["toolConfig"]["tools"][0]["toolSpec"]["name"] == "read_file"
    assert [cut.reason for cut in second.ledger.cuts] == [MOVED]
    history += [says(called("t2", "grep")), user(answers("t2"))]
    third = fit_request({"modelId": MODEL, "messages": history}, ledger=second.ledger)
    assert third.request["toolConfig"] == second.request["toolConfig"]
    assert third.ledger.cuts == second.ledger.cuts
    assert refusals(third.request) == ""


def test_a_document_gets_a_text_before_it_if_its_message_is_written_anew() -> None:
    original = request(user(document()), user({"text": "Read it."}))
    content = sent(original)["messages"][0]["content"]
    assert [next(iter(block)) for block in content] == ["text", "document", "text"]


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("rates.pdf", "rates-pdf"),
        ("a  b", "a b"),
        ("", "document"),
        ("x" * 300, "x" * 200),
        ("a (1)", "a (1)"),
    ],
)
def test_names_of_documents_are_made_safe(name: str, safe: str) -> None:
    assert make_document_name(name) == safe


def test_only_four_cache_points_leave_and_those_on_tools_and_system_stay() -> None:
    points = [user({"text": "a"}, POINT), says({"text": "b"}, POINT)] * 3
    original = request(*points, user(), toolConfig={"tools": [TOOL, POINT]}, system=[{"text": "s"}, POINT])
    rendered = sent(original)
    assert rendered["toolConfig"]["tools"] == [TOOL, POINT]
    assert rendered["system"] == [{"text": "s"}, POINT]
    marked = [POINT in message["content"] for message in rendered["messages"]]
    assert marked == [False, False, False, False, True, True, False]


def test_a_cache_point_stays_with_a_result_that_is_lowered() -> None:
    long_result = answers("t1", {"text": "line\n" * 3_000})
    steps = [says(called("t1")), user(long_result, POINT)]
    for number in range(2, 5):
        steps += [says(called(f"t{number}")), user(answers(f"t{number}"))]
    rendered = sent(request(user(), *steps), window=5_000)
    lowered = rendered["messages"][2]["content"]
    assert lowered != [long_result, POINT]
    assert lowered[-1] == POINT


def test_moving_a_cache_point_among_tools_is_no_change_of_the_tools() -> None:
    other_tool = {"toolSpec": {"name": "grep", "inputSchema": {"json": {"type": "object"}}}}
    history = [user(), says(), user()]
    first = fit_request(request(user(), toolConfig={"tools": [TOOL, other_tool, POINT]}))
    second = fit_request(
        request(*history, toolConfig={"tools": [TOOL, POINT, other_tool]}), ledger=first.ledger
    )
    assert second.ledger.cuts == ()
    assert second.request["toolConfig"] == {"tools": [TOOL, POINT, other_tool]}


def test_lamina_marks_long_requests_of_a_model_whose_cache_takes_markers() -> None:
    original = request(user({"text": "word " * 6_000}), says(), user())
    marked = fit_request(original).request
    assert json.dumps(marked).count("cachePoint") > 0
    assert refusals(marked) == ""


def test_the_window_of_the_model_is_found_by_its_id() -> None:
    long_history = [user({"text": "word " * 30_000}), says()] * 9
    fitted = fit_request(request(*long_history, user(), modelId="anthropic.claude-3-haiku-20240307-v1:0"))
    assert fitted.envelope.cut is not None
    assert fitted.request["modelId"] == "anthropic.claude-3-haiku-20240307-v1:0"


GROUNDING = {"toolUseId": "g1", "name": "nova_grounding", "type": "server_tool_use"}
FOUND = {"toolUseId": "g1", "type": "nova_grounding_result", "status": "success"}
GROUNDED = [
    {"toolUse": {**GROUNDING, "input": {"query": "rates"}}},
    {"toolResult": {**FOUND, "content": [{"text": "41 pages"}, {"json": {"page": 1}}]}},
    {"text": "There are 41."},
]
"""What a model of Bedrock says that searched with a tool that the API runs."""


def test_what_a_tool_of_the_api_found_stays_with_its_call() -> None:
    tools = {"tools": [{"systemTool": {"name": "nova_grounding"}}]}
    original = request(user({"text": "How many?"}), says(*GROUNDED), user(), toolConfig=tools)
    assert DIALECT.wire.check(original) == []
    assert fit_request(original, policy=Policy(breakpoints="keep")).request is original
    kinds = [segment.kind for segment in DIALECT.wire.parse(original).log]
    assert kinds == ["user", "assistant", "assistant", "user"]
    misplaced = request(user(GROUNDED[1]), toolConfig=tools)
    assert [violation.rule for violation in DIALECT.wire.check(misplaced)] == ["calls_and_results_pair"]


def test_a_stream_has_what_a_tool_of_the_api_found() -> None:
    def begin(index: int, start: Json) -> Json:
        return {"contentBlockStart": {"contentBlockIndex": index, "start": start}}

    def add(index: int, delta: Json) -> Json:
        return {"contentBlockDelta": {"contentBlockIndex": index, "delta": delta}}

    events: list[Json] = [
        begin(0, {"toolUse": GROUNDING}),
        add(0, {"toolUse": {"input": '{"query": "rates"}'}}),
        {"contentBlockStop": {"contentBlockIndex": 0}},
        begin(1, {"toolResult": FOUND}),
        add(1, {"toolResult": [{"text": "41 "}]}),
        add(1, {"toolResult": [{"text": "pages"}, {"json": {"page": 1}}]}),
        {"contentBlockStop": {"contentBlockIndex": 1}},
        add(2, {"text": "There are 41."}),
        {"messageStop": {"stopReason": "end_turn"}},
    ]
    whole = {"output": {"message": says(*GROUNDED)}, "stopReason": "end_turn"}
    streamed = DIALECT.answers.absorb_stream(events).segments
    assert [segment.parts for segment in streamed] == [
        segment.parts for segment in DIALECT.answers.absorb(whole).segments
    ]


def test_what_a_guardrail_judges_is_never_lowered() -> None:
    guarded: Any = {"guardContent": {"text": {"text": "word " * 400, "qualifiers": ["query"]}}}
    steps: list[Json] = []
    for number in range(9):
        steps += [says(called(f"t{number}")), user(answers(f"t{number}", {"text": "line\n" * 300}))]
    rendered = sent(request(user(guarded), *steps), window=3_500)
    assert rendered["messages"][0] == user(guarded)
