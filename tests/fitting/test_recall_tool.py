"""When the recall tool is added to a request, and that it stays: its coming is part of a cut, never a cut."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

from lamina import Budget, Fitted, Ledger, Policy, fit_request
from lamina.core import CHARS4, ToolCall
from lamina.core.cut import OVER_THE_TRIGGER
from lamina.core.epochs import TOOLS_CHANGED
from tests.dialects.wires import WIRES, Call, Result
from tests.fitting.test_server_help import thinking

DIALECTS = ("anthropic", "openai_chat")


def make_request(dialect: str, steps: int, *, tools: int = 1) -> dict[str, Any]:
    """A tool loop of so many steps in one of two APIs."""
    wire = WIRES[dialect]
    messages = [wire.ask("Read them all.")]
    for step in range(steps):
        messages += wire.call([Call(f"c{step}", "t0")])
        messages += wire.answer([Result(f"c{step}", "", f"result {step} " + "word " * 200)])
    names = [f"t{number}" for number in range(tools)]
    definitions: list[Any] = [{"name": name, "input_schema": {"type": "object"}} for name in names]
    if dialect == "openai_chat":
        functions = [{"name": name, "parameters": {"type": "object"}} for name in names]
        definitions = [{"type": "function", "function": function} for function in functions]
    return {**wire.request(messages), "max_tokens": 100, "tools": definitions}


def fit(request: dict[str, Any], room: int, ledger: Ledger | None = None) -> Fitted:
    budget = Budget(window=room, reserve=0)
    return fit_request(request, budget=budget, ledger=ledger, policy=Policy(recall="tool", counter=CHARS4))


def find_floor(request: dict[str, Any]) -> int:
    """The smallest room in which a request fits without the recall tool."""
    low, high = 1, 10_000
    while low < high:
        middle = (low + high) // 2
        try:
            fit(request, middle)
            high = middle
        except ValueError:
            low = middle + 1
    return low


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_tool_comes_with_a_cut_and_never_makes_one(dialect: str) -> None:
    """If the first cut has no room for the tool, the next one brings it, for its own reason."""
    request = make_request(dialect, 6)
    first = fit(request, find_floor(request))
    assert first.ledger.lines
    assert not first.has_recall
    second = fit(make_request(dialect, 7), 3_000, first.ledger)
    assert not second.has_recall
    assert second.envelope.cut is None
    third = fit(make_request(dialect, 30), 3_000, second.ledger)
    assert third.has_recall
    assert [cut.reason for cut in third.ledger.cuts] == [OVER_THE_TRIGGER] * 2
    assert all(cut.before > cut.after for cut in third.ledger.cuts)
    fourth = fit(make_request(dialect, 31), 3_000, third.ledger)
    assert fourth.has_recall
    assert fourth.envelope.cut is None


@pytest.mark.parametrize("dialect", DIALECTS)
def test_it_goes_if_the_window_has_become_too_small_for_it(dialect: str) -> None:
    """A request that fits without lamina's own tool was refused for it."""
    first = fit(make_request(dialect, 30), 3_000)
    assert first.has_recall
    request = make_request(dialect, 31)
    small = fit(request, find_floor(request), first.ledger)
    assert not small.has_recall
    assert small.envelope.cut is not None
    assert fit(make_request(dialect, 32), 3_000, small.ledger).has_recall


@pytest.mark.parametrize("dialect", DIALECTS)
def test_it_stays_if_the_client_changes_its_own_tools_or_goes_back(dialect: str) -> None:
    cut = fit(make_request(dialect, 30), 3_000)
    assert cut.has_recall
    changed = fit(make_request(dialect, 31, tools=2), 3_000, cut.ledger)
    assert changed.has_recall
    assert changed.envelope.cut is not None
    assert changed.envelope.cut.reason == TOOLS_CHANGED
    rewound = fit(make_request(dialect, 2), 3_000, cut.ledger)
    assert rewound.has_recall


def test_where_thinking_holds_a_cut_back_no_tool_changes_what_it_is_bound_to() -> None:
    """The tools are the first bytes that thinking is bound to."""
    ledger = None
    for steps in range(1, 12):
        fitted = fit_request(
            thinking(steps),
            budget=Budget(window=1_200, reserve=0),
            ledger=ledger,
            policy=Policy(recall="tool", counter=CHARS4),
            drop_block=False,
        )
        ledger = fitted.ledger
        assert not fitted.has_recall
        latest = fitted.request["messages"][-2]["content"][0]
        assert latest == thinking(steps)["messages"][-2]["content"][0]
    assert ledger is not None
    assert ledger.cuts


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_call_is_answered_in_the_words_of_its_api_whoever_wrote_it(dialect: str) -> None:
    fitted = fit(make_request(dialect, 20), 4_000)
    [key, *_] = re.findall(r'recall\("(\w+)"\)', str(fitted.request))
    own = ToolCall(id="r1", name="recall", arguments=json.dumps({"key": key}))
    message = fitted.answer(own)
    held = message
    if dialect == "anthropic":
        [held] = message["content"]
    assert held.get("tool_call_id", held.get("tool_use_id")) == "r1"
    assert held["content"].startswith("result ")
    function = {"name": own.name, "arguments": own.arguments}
    for call in (
        {"id": "r1", "type": "function", "function": function},
        {"id": "r1", "type": "tool_use", "name": "recall", "input": {"key": key}},
        {"id": "fc_1", "call_id": "r1", "type": "function_call", **function},
        SimpleNamespace(id="r1", function=SimpleNamespace(**function)),
    ):
        assert fitted.answer(call) == message


@pytest.mark.parametrize(("count", "may_call"), [(None, True), (1, True), (2, False), (5, False)])
def test_of_several_choices_none_is_offered_the_tool(count: int | None, *, may_call: bool) -> None:
    """One of them might recall while another has answered."""
    request = {**make_request("openai_chat", 30), "n": count}
    fitted = fit(request, 3_000)
    assert fitted.envelope.cut is not None
    assert fitted.has_recall is may_call
