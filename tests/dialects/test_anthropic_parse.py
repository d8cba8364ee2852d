"""What parsing notes, what a memo may reuse, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lamina import BadInput
from lamina.core import Document, Image, Raw, Thinking, ToolResult
from lamina.core.wording import describe_segment
from lamina.dialects.anthropic import DIALECT
from lamina.dialects.memos import ParseMemo
from tests.dialects.anthropic_requests import EVERYTHING, SEARCH, Json, fitted
from tests.dialects.test_anthropic_render import CALL, REST, STEP


def test_parsing_says_what_each_segment_is() -> None:
    log = DIALECT.wire.parse(EVERYTHING).log
    assert [(s.role.value, s.kind, s.joins) for s in log[:9]] == [
        ("system", "system", False),
        ("user", "user", False),
        ("user", "user", True),
        ("user", "user", True),
        ("assistant", "thinking", False),
        ("assistant", "thinking", True),
        ("assistant", "assistant", True),
        ("assistant", "assistant", True),
        ("assistant", "assistant", True),
    ]
    assert isinstance(log[2].parts[0], Image)
    assert isinstance(log[3].parts[0], Document)
    assert log[4].parts == (Thinking(signature="sig"),)
    assert [part.data["type"] for part in log[6].parts if isinstance(part, Raw)] == [
        b["type"] for b in SEARCH
    ]
    (result, _) = (s for s in log if isinstance(s.parts[0], ToolResult))
    assert (describe_segment(result), result.attrs) == ("read_file a.py", {"path": "a.py"})
    assert isinstance(part := result.parts[0], ToolResult)
    assert part.error
    assert {segment.origin for segment in log} == {"anthropic"}


def test_head_keeps_everything_else() -> None:
    head = DIALECT.wire.parse(EVERYTHING).head
    assert head.tools[0] is EVERYTHING["tools"][0]
    assert head.parameters == {name: EVERYTHING[name] for name in ("model", "max_tokens", "thinking")}


def test_a_late_result_is_named_after_its_call() -> None:
    late = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "late"}]}
    memo = ParseMemo()
    messages = [*STEP[:2], *REST]
    DIALECT.wire.parse({"messages": messages}, memo=memo)
    for memo_or_none in (memo, None):
        result = DIALECT.wire.parse({"messages": [*messages, late]}, memo=memo_or_none).log[-1].parts[0]
        assert isinstance(result, ToolResult)
        assert result.name == "read"


def test_a_memo_outlives_a_shorter_request_and_objects_that_cannot_be_copied() -> None:
    memo = ParseMemo()
    odd = {"role": "user", "content": [SimpleNamespace(model_dump=lambda **_: {"type": "text", "text": "x"})]}
    for messages in ([*STEP, odd], STEP[:1], [*STEP, odd]):
        assert (
            DIALECT.wire.parse({"messages": messages}, memo=memo).log
            == DIALECT.wire.parse({"messages": messages}).log
        )


def test_fields_of_an_sdk_s_block_inside_a_result_are_counted() -> None:
    plain = {"type": "text", "text": "x = 1", "mood": "kind"}
    counted = []
    for block in (plain, SimpleNamespace(model_dump=lambda **_: plain)):
        result = {"type": "tool_result", "tool_use_id": "t1", "content": [block]}
        messages = [*STEP[:2], {"role": "user", "content": [result]}]
        counted.append(DIALECT.wire.parse({"messages": messages}).log[-1].beside)
    assert counted[0] == counted[1] == (Raw(dialect="anthropic", data={"mood": "kind"}),)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "block", [CALL | {"input": {"a": nested(50_000)}}, {"type": "novel", "data": nested(50_000)}]
)
def test_depth_bombs_are_refused(block: Json) -> None:
    request = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": [block]}]}
    with pytest.raises(BadInput):
        fitted(request, read=ParseMemo())


def test_many_blocks_take_linear_time() -> None:
    """No time is asserted: a scan that is not linear takes minutes over these."""
    many = 4_000
    calls = [CALL | {"id": "x"}] * many
    answers = [{"type": "tool_result", "tool_use_id": "x", "content": "a"}] * many
    blocks = [{"type": "novel"}] * many
    messages = [{"role": "assistant", "content": [*blocks, *calls]}, {"role": "user", "content": answers}]
    assert len(DIALECT.wire.parse({"messages": messages}).log) == 2 * many + 1
    assert DIALECT.wire.check({"messages": messages})


@pytest.mark.parametrize(
    ("path", "subject"), [("a.py", {"path": "a.py"}), ("a.py\n\x1b[31m", {}), ("a" * 201, {})]
)
def test_a_result_is_about_the_file_of_its_call_if_that_can_be_shown(path: str, subject: Json) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": path}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "x"}
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    log = DIALECT.wire.parse({"max_tokens": 9, "messages": messages}).log
    assert log[-1].attrs == subject
