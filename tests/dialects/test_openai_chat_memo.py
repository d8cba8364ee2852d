"""A request that grows is parsed at its end only, and gives what parsing the whole of it gives."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core.values import Segment
from lamina.dialects.memos import ParseMemo
from lamina.dialects.openai_chat import DIALECT

Message = dict[str, Any]

USER: Message = {"role": "user", "content": "Go."}


def asks(*calls: tuple[str, str], text: str | None = None) -> Message:
    """An assistant message with these calls, each by its id and name."""
    tool_calls = [
        {"id": id_, "type": "function", "function": {"name": name, "arguments": "{}"}} for id_, name in calls
    ]
    return {"role": "assistant", "content": text, "tool_calls": tool_calls}


def answers(id_: str | None, text: str) -> Message:
    return {"role": "tool", "content": text, **({} if id_ is None else {"tool_call_id": id_})}


def grown(messages: list[Message], *, at: int) -> tuple[Segment, ...]:
    """The log of these messages after the first of them were parsed before."""
    memo = ParseMemo()
    DIALECT.wire.parse({"model": "m", "messages": messages[:at]}, memo=memo)
    return DIALECT.wire.parse({"model": "m", "messages": messages}, memo=memo).log


def whole(messages: list[Message]) -> tuple[Segment, ...]:
    return DIALECT.wire.parse({"model": "m", "messages": messages}).log


TWO = asks(("a", "read"), ("b", "search"))
GROWING = {
    "results by place": [USER, TWO, answers(None, "1"), answers(None, "2")],
    "after a step of the same kind": [
        USER,
        TWO,
        answers(None, "1"),
        answers(None, "2"),
        TWO,
        answers(None, "3"),
    ],
    "one id for all calls": [
        USER,
        asks(("x", "read"), ("x", "search")),
        answers("x", "1"),
        answers("x", "2"),
    ],
    "with words before the calls": [
        USER,
        asks(("a", "read"), ("b", "find"), text="I look."),
        answers(None, "1"),
    ],
    "one result too many": [USER, TWO, answers("a", "1"), answers("b", "2"), answers("b", "3")],
    "nothing was asked": [USER, answers("a", "1"), answers(None, "2"), answers("a", "3")],
    "calls from before tools": [
        USER,
        {"role": "assistant", "content": None, "function_call": {"name": "read", "arguments": "{}"}},
        {"role": "function", "name": "read", "content": "1"},
    ],
}


@pytest.mark.parametrize("messages", GROWING.values(), ids=GROWING)
def test_results_are_named_after_their_calls_wherever_a_request_was_parsed_before(
    messages: list[Message],
) -> None:
    for at in range(1, len(messages)):
        assert grown(messages, at=at) == whole(messages)


def test_results_without_an_id_answer_the_calls_in_order() -> None:
    names = [segment.parts[0].name for segment in grown(GROWING["results by place"], at=3)[-2:]]  # type: ignore[union-attr]
    assert names == ["read", "search"]


MESSAGES = st.sampled_from(
    [
        USER,
        {"role": "assistant", "content": "Done."},
        TWO,
        asks(("a", "edit")),
        asks(("x", "read"), ("x", "search"), text="Again."),
        *(answers(id_, "r") for id_ in ("a", "b", "x", None)),
    ]
)


@given(st.lists(MESSAGES, min_size=2, max_size=12), st.data())
def test_any_growing_request_is_parsed_as_a_whole_one(messages: list[Message], data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(messages) - 1))
    assert grown(messages, at=at) == whole(messages)
