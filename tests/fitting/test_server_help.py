"""What is left to the provider's server: dropping thinking, clearing tool uses; and the ledger in step."""

from __future__ import annotations

from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest
from anthropic.types.beta import BetaMessage

from lamina import Budget, BudgetExceeded, Ledger, Policy, RequestHead, fit_request
from lamina.core import Cut
from lamina.core.tokens import ESTIMATE
from lamina.dialects import Usage
from lamina.dialects.anthropic.model import asks_to_clear
from lamina.dialects.anthropic.server import (
    BINDING_BETA,
    ask_to_drop_thinking,
    merge_betas,
    read_cleared,
    refuses_binding_switch,
)
from lamina.dialects.usage import Cleared
from lamina.fitting.server_reports import extend_budget, record_clearing
from tests.fitting.test_request import talk

CLEARING = {"edits": [{"type": "clear_tool_uses_20250919"}]}


def thinking(steps: int, *, model: str = "claude-opus-5-5") -> dict[str, Any]:
    """A request with thinking in each step, in the middle of a tool loop."""
    request = talk(steps) | {"model": model, "thinking": {"type": "adaptive", "display": "omitted"}}
    for step, message in enumerate(request["messages"][1::2]):
        thought = {"type": "thinking", "thinking": f"Step {step}.", "signature": f"s{step}"}
        message["content"].insert(0, thought)
    return request


SMALL = Budget(window=3_000, reserve=500)


def test_thinking_that_no_longer_fits_is_dropped_by_the_server_unless_it_refused_that() -> None:
    request = thinking(40)
    before = deepcopy(request)
    with pytest.raises(BudgetExceeded, match="drop_block"):
        fit_request(request, budget=SMALL, drop_block=False)
    fitted = fit_request(request, budget=SMALL)
    assert fitted.request["thinking"] == {
        "type": "adaptive",
        "display": "omitted",
        "block_binding": {"prefix_mismatch_behavior": "drop_block"},
    }
    assert fitted.headers == {"anthropic-beta": BINDING_BETA}
    assert fitted.envelope.cut is not None
    assert request == before


def test_it_is_asked_for_from_the_first_cut_on_and_in_every_later_request() -> None:
    """The server does not remember it, and until the next cut the thinking that it dropped is sent again."""
    request = thinking(2)
    fitted = fit_request(request, budget=SMALL, policy=Policy(breakpoints="keep"))
    assert fitted.request is request
    assert fitted.headers == {}
    ledger: Ledger | None = None
    asked: list[bool] = []
    for steps in range(2, 40, 2):
        fitted = fit_request(thinking(steps), budget=SMALL, ledger=ledger)
        ledger = fitted.ledger
        asked.append(bool(fitted.headers))
        assert asked[-1] is ("block_binding" in fitted.request["thinking"])
    assert asked == sorted(asked)
    assert asked[-1]
    assert ledger is not None
    assert len(ledger.cuts) < asked.count(True)


@pytest.mark.parametrize(
    "change",
    [
        {"model": "claude-opus-5"},
        {"thinking": {"type": "disabled"}},
        {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}},
    ],
)
def test_where_it_means_nothing_or_the_caller_says_otherwise_nothing_changes(change: dict[str, Any]) -> None:
    request = talk(40) | {"model": "claude-opus-5-5"} | change
    fitted = fit_request(request, budget=SMALL)
    assert fitted.envelope.cut is not None
    assert fitted.request.get("thinking") == request.get("thinking")
    assert fitted.headers == {}


def test_a_request_that_does_not_configure_thinking_says_what_its_model_does_by_itself() -> None:
    switch = {"prefix_mismatch_behavior": "drop_block"}
    asked = ask_to_drop_thinking(talk(1))
    assert asked == talk(1) | {"thinking": {"type": "adaptive", "block_binding": switch}}
    assert ask_to_drop_thinking(asked) is asked


def test_what_the_server_clears_by_itself_needs_no_switch() -> None:
    usage = Usage(input=500, cleared=Cleared(tokens=100, tool_uses=1))
    first = fit_request(thinking(2))
    second = fit_request(thinking(3), ledger=first.ledger, usage=usage)
    assert second.ledger.cuts
    assert second.headers == {}


MISMATCH = (
    "Invalid `signature` in `thinking` block. The block is bound to a different conversation. "
    'Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)


@pytest.mark.parametrize(
    ("status", "message", "refused"),
    [
        (400, "thinking.adaptive.block_binding: Extra inputs are not permitted", True),
        (400, f"Unexpected value(s) `{BINDING_BETA}` for the `anthropic-beta` header", True),
        (500, "thinking.adaptive.block_binding: Extra inputs are not permitted", False),
        (400, "prompt is too long: 9000 tokens > 8000 maximum", False),
        (400, MISMATCH, False),
    ],
)
def test_an_error_says_whether_the_switch_is_refused(status: int, message: str, *, refused: bool) -> None:
    assert refuses_binding_switch(status, message) is refused


def answer(**edits: int) -> BetaMessage:
    """An answer of the beta endpoint, as the SDK reads it."""
    applied = [
        {"type": "clear_tool_uses_20250919", "cleared_input_tokens": 900, "cleared_tool_uses": edits["uses"]},
        {"type": "clear_thinking_20251015", "cleared_input_tokens": 100, "cleared_thinking_turns": 1},
    ]
    return BetaMessage.construct(
        id="m",
        type="message",
        role="assistant",
        content=[],
        model="claude-opus-5",
        stop_reason="end_turn",
        usage={"input_tokens": 500, "output_tokens": 1},
        context_management={"applied_edits": applied},
    )


def test_an_answer_says_what_was_cleared() -> None:
    expected = Cleared(tokens=1_000, tool_uses=12, thinking_turns=1)
    assert read_cleared(answer(uses=12)) == expected
    assert read_cleared(answer(uses=12).to_dict()) == expected
    assert str(expected) == "12 tool uses and 1 thinking turn"
    silent: tuple[Any, ...] = (None, {}, {"context_management": None}, SimpleNamespace())
    for nothing in silent:
        assert read_cleared(nothing) == Cleared()


def test_what_was_cleared_is_a_line_in_the_ledger_once_for_each_change() -> None:
    ledger = Ledger()
    for uses in (0, 3, 3, 3, 5, 5):
        usage = Usage(input=500, cleared=Cleared(tokens=100 * uses, tool_uses=uses))
        ledger = record_clearing(ledger, usage)
    assert ledger.cuts == (
        Cut(number=1, reason="the provider cleared 3 tool uses", before=800, after=500),
        Cut(number=2, reason="the provider cleared 5 tool uses", before=1_000, after=500),
    )


def test_the_callers_edits_pass_untouched_and_do_not_fool_the_calibration() -> None:
    request = talk(9) | {"context_management": CLEARING}
    first = fit_request(request, policy=Policy(counter=ESTIMATE, breakpoints="keep"))
    assert first.request is request
    half = first.envelope.tokens // 2
    usage = Usage(input=first.envelope.tokens - half, cleared=Cleared(tokens=half, tool_uses=4))
    second = fit_request(request, policy=Policy(counter=ESTIMATE), ledger=first.ledger, usage=usage)
    assert second.ledger.calibration is not None
    assert second.ledger.calibration.millis == 1000
    assert second.envelope.cut is None
    assert [cut.reason for cut in second.ledger.cuts] == ["the provider cleared 4 tool uses"]


def test_what_the_server_clears_is_not_cut_once_more() -> None:
    budget = Budget(window=3_000, reserve=500)
    request = talk(14) | {"context_management": CLEARING}
    whole = fit_request(request, budget=Budget(window=100_000)).envelope.tokens
    assert fit_request(request, budget=budget).envelope.cut is not None
    usage = Usage(input=whole - 3_000, cleared=Cleared(tokens=3_000, tool_uses=9))
    spared = fit_request(request, budget=budget, usage=usage, policy=Policy(breakpoints="keep"))
    assert spared.envelope.cut is None
    assert spared.request is request
    del request["context_management"]
    assert fit_request(request, budget=budget, usage=usage).envelope.cut is not None


def test_a_cut_that_is_due_all_the_same_goes_as_deep_as_ever() -> None:
    """It lowers what the server clears, so what is left must fit even if the server clears nothing more."""
    budget, head = Budget(window=10_000, reserve=1_000), RequestHead()
    wider = extend_budget(budget, head, 9_000, "balanced")
    assert wider.window - (wider.reserve or 0) == 18_000
    assert wider.trigger * 18_000 == pytest.approx(0.95 * 9_000 + 9_000)
    assert wider.target is not None
    assert wider.target * 18_000 < 0.8 * 9_000
    assert extend_budget(budget, head, 0, "balanced") is budget


def test_betas_are_named_once() -> None:
    assert merge_betas("a, b", "", "b,c") == "a,b,c"
    assert asks_to_clear({"context_management": {"edits": []}}) is False
