"""A request that grows is checked at its end only, and breaks the same rules as if all of it were checked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.dialects import DIALECTS
from lamina.dialects.memos import CheckMemo
from lamina.dialects.sending import find_violations
from tests.dialects.wires import WIRES, Wire

Turn = dict[str, Any]

MARK = {"cache_control": {"type": "ephemeral"}}
LONG_MARK = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def make_step(wire: Wire, id_: str, mark: Turn, answered_id: str) -> list[Turn]:
    """A call and its result, or another one's. Only the Messages API has marks."""
    step = wire.step(id_, answered_id=answered_id)
    if wire.name == "anthropic":
        step[1]["content"][0] |= mark
    return step


@pytest.mark.parametrize("name", WIRES)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from("abcde"),
            st.sampled_from([{}, MARK, LONG_MARK]),
            st.sampled_from(["", "", "", "nobody"]),
        ),
        min_size=1,
        max_size=9,
    )
)
def test_what_a_memo_spares_changes_no_verdict(name: str, steps: list[tuple[str, Turn, str]]) -> None:
    wire = WIRES[name]
    memo, turns = CheckMemo(tail=1), [wire.ask("Go.")]
    for step in steps:
        turns = [*turns, *make_step(wire, *step)]
        request = wire.request(turns)
        assert find_violations(request, DIALECTS[name], memo) == find_violations(request, DIALECTS[name])


def rules(name: str, steps: list[list[Turn]]) -> list[str]:
    """The rules that the last of these growing requests breaks, with a memo of those before."""
    wire = WIRES[name]
    memo, turns = CheckMemo(tail=1), [wire.ask("Go.")]
    broken: list[str] = []
    for step in steps:
        turns = [*turns, *step]
        violations = find_violations(wire.request(turns), DIALECTS[name], memo)
        broken = [violation.rule for violation in violations]
    return broken


def test_a_fifth_marker_is_found_when_it_comes_last() -> None:
    wire = WIRES["anthropic"]
    four = [make_step(wire, f"a{number}", MARK, "") for number in range(4)]
    assert rules("anthropic", four) == []
    assert rules("anthropic", [*four, make_step(wire, "a9", MARK, "")]) != []
    assert rules("anthropic", [*four, wire.step("a9")]) == []


@pytest.mark.parametrize("name", ["anthropic", "openai_responses"])
def test_an_id_that_an_early_step_had_is_found_when_it_comes_again(name: str) -> None:
    clean = [WIRES[name].step(f"id{number}") for number in range(6)]
    assert rules(name, clean) == []
    assert rules(name, [*clean, WIRES[name].step("id0")]) != []


def nest(depth: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(depth):
        nested = [nested]
    return nested


def test_messages_that_are_nested_too_deep_to_compare_are_checked_again() -> None:
    """The second request has another id in its first step, behind a value that cannot be compared."""
    wire, memo = WIRES["anthropic"], CheckMemo(tail=1)
    broken: list[set[str]] = []
    for first_id in ("a", "b"):
        steps = [wire.step(first_id), wire.step("b"), wire.step("c")]
        use = steps[0][0]["content"][0]
        steps[0][0]["content"] = [{"type": "text", "text": "I read.", "extra": nest(100_000)}, use]
        request = wire.request([wire.ask("Go."), *(turn for step in steps for turn in step)])
        broken.append({found.rule for found in find_violations(request, DIALECTS["anthropic"], memo)})
    assert broken[0] < broken[1]
