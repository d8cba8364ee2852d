"""A request that grows is checked at its end only, and breaks the same rules as if all of it were checked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.dialects import DIALECTS
from lamina.dialects.memos import CheckMemo
from lamina.dialects.sending import find_violations

Turn = dict[str, Any]

MARK = {"cache_control": {"type": "ephemeral"}}
LONG_MARK = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def anthropic_step(id_: str, *, mark: Turn | None = None, is_answered: bool = True) -> list[Turn]:
    use = {"type": "tool_use", "id": id_, "name": "read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": id_ if is_answered else "nobody", "content": "1"}
    return [
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{**result, **(mark or {})}]},
    ]


def chat_step(id_: str, *, is_answered: bool = True) -> list[Turn]:
    call = {"id": id_, "type": "function", "function": {"name": "read", "arguments": "{}"}}
    answer = {"role": "tool", "tool_call_id": id_ if is_answered else "nobody", "content": "1"}
    return [{"role": "assistant", "content": None, "tool_calls": [call]}, answer]


def responses_step(id_: str, *, is_answered: bool = True) -> list[Turn]:
    call = {"type": "function_call", "call_id": id_, "name": "read", "arguments": "{}"}
    answered_id = id_ if is_answered else "nobody"
    return [call, {"type": "function_call_output", "call_id": answered_id, "output": "1"}]


def gemini_step(name: str, *, is_answered: bool = True) -> list[Turn]:
    call = {"role": "model", "parts": [{"functionCall": {"name": name, "args": {}}}]}
    answered_name = name if is_answered else "nobody"
    response = {"functionResponse": {"name": answered_name, "response": {"result": "1"}}}
    return [call, {"role": "user", "parts": [response]}]


IDS = st.sampled_from(["a", "b", "c", "d", "e"])
STEPS: dict[str, st.SearchStrategy[list[Turn]]] = {
    "anthropic": st.builds(
        anthropic_step,
        IDS,
        mark=st.sampled_from([None, MARK, LONG_MARK]),
        is_answered=st.sampled_from([True, True, True, False]),
    ),
    "openai_chat": st.builds(chat_step, IDS, is_answered=st.sampled_from([True, True, True, False])),
    "openai_responses": st.builds(
        responses_step, IDS, is_answered=st.sampled_from([True, True, True, False])
    ),
    "gemini": st.builds(gemini_step, IDS, is_answered=st.sampled_from([True, True, True, False])),
}
FIRST: dict[str, Turn] = {
    "anthropic": {"role": "user", "content": "Go."},
    "openai_chat": {"role": "user", "content": "Go."},
    "openai_responses": {"role": "user", "content": "Go."},
    "gemini": {"role": "user", "parts": [{"text": "Go."}]},
}
FIELDS = {"openai_responses": "input", "gemini": "contents"}


def request_of(name: str, turns: list[Turn]) -> dict[str, Any]:
    request: dict[str, Any] = {"model": "m", FIELDS.get(name, "messages"): turns}
    if name == "anthropic":
        request["max_tokens"] = 100
    return request


@pytest.mark.parametrize("name", [*STEPS])
@given(data=st.data())
def test_what_a_memo_spares_changes_no_verdict(name: str, data: st.DataObject) -> None:
    steps = data.draw(st.lists(STEPS[name], min_size=1, max_size=9))
    dialect = DIALECTS[name]
    memo = CheckMemo(tail=1)
    turns = [FIRST[name]]
    for step in steps:
        turns = [*turns, *step]
        request = request_of(name, turns)
        assert find_violations(request, dialect, memo) == find_violations(request, dialect)


def rules(name: str, steps: list[list[Turn]]) -> list[str]:
    """The rules that the last of these growing requests breaks, with a memo of those before."""
    dialect = DIALECTS[name]
    memo = CheckMemo(tail=1)
    turns = [FIRST[name]]
    broken: list[str] = []
    for step in steps:
        turns = [*turns, *step]
        broken = [violation.rule for violation in find_violations(request_of(name, turns), dialect, memo)]
    return broken


def test_a_fifth_marker_is_found_when_it_comes_last() -> None:
    four = [anthropic_step(f"a{number}", mark=MARK) for number in range(4)]
    assert rules("anthropic", four) == []
    assert rules("anthropic", [*four, anthropic_step("a9", mark=MARK)]) != []
    assert rules("anthropic", [*four, anthropic_step("a9")]) == []


@pytest.mark.parametrize(
    ("name", "step"), [("anthropic", anthropic_step), ("openai_responses", responses_step)]
)
def test_an_id_that_an_early_step_had_is_found_when_it_comes_again(name: str, step: Any) -> None:
    clean = [step(f"id{number}") for number in range(6)]
    assert rules(name, clean) == []
    assert rules(name, [*clean, step("id0")]) != []


def nest(depth: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(depth):
        nested = [nested]
    return nested


def test_messages_that_are_nested_too_deep_to_compare_are_checked_again() -> None:
    """The second request has another id in its first step, behind a value that cannot be compared."""
    memo = CheckMemo(tail=1)
    broken: list[set[str]] = []
    for first_id in ("a", "b"):
        steps = [anthropic_step(first_id), anthropic_step("b"), anthropic_step("c")]
        use = steps[0][0]["content"][0]
        steps[0][0]["content"] = [{"type": "text", "text": "I read.", "extra": nest(100_000)}, use]
        request = request_of("anthropic", [FIRST["anthropic"], *(turn for step in steps for turn in step)])
        broken.append({found.rule for found in find_violations(request, DIALECTS["anthropic"], memo)})
    assert broken[0] < broken[1]
