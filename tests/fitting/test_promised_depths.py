"""`hide_at_most`: a target from what recorded sessions say of each depth, and the promise in the account."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from lamina import BadInput, Budget, Policy, fit_request
from lamina.conversations.pending_call import limit_budget
from lamina.core.explanation import explain
from lamina.fitting.promised_depths import DepthBounds, DepthTable
from lamina.gateway.config import UpstreamSettings
from lamina.gateway.sizes import find_budget


def bounds_of(window: int, *bounds: float, source: str = "logs") -> DepthBounds:
    """A row with a bound for each of three depths, from the one that hides least."""
    pairs = zip((0.75, 0.5, 0.3), bounds, strict=True)
    return DepthBounds(source=source, window=window, sessions=40, bounds=tuple(pairs))


TABLE = DepthTable(
    confidence=0.95, rows=(bounds_of(8_000, 0.04, 0.08, 0.2), bounds_of(32_000, 0.01, 0.03, 0.06))
)


@pytest.mark.parametrize(
    ("window", "limit", "target"),
    [(32_000, 0.02, 0.75), (32_000, 0.03, 0.5), (32_000, 0.1, 0.3), (31_999, 0.1, 0.5), (200_000, 0.05, 0.5)],
)
def test_the_deepest_cut_that_keeps_the_limit_is_the_target(window: int, limit: float, target: float) -> None:
    budget = Policy(budget=window, hide_at_most=limit, depths=TABLE).own_budget
    assert budget is not None
    assert budget.target == target
    assert budget.promise.startswith(f"a cut leaves {target:.0%} of the room: so at most {limit:.1%}")


def test_of_several_sources_the_one_that_hides_most_decides() -> None:
    table = DepthTable(
        confidence=0.9,
        rows=(bounds_of(8_000, 0.01, 0.02, 0.03), bounds_of(8_000, 0.01, 0.2, 0.3, source="others")),
    )
    budget = Policy(budget=9_000, hide_at_most=0.05, depths=table).own_budget
    assert budget is not None
    assert budget.target == 0.75
    assert "in 90% of sessions (bound 1.0%, from 80 sessions)" in budget.promise


def test_a_depth_behind_one_that_exceeds_the_limit_is_not_promised() -> None:
    table = DepthTable(confidence=0.95, rows=(bounds_of(8_000, 0.01, 0.2, 0.02),))
    budget = Policy(budget=8_000, hide_at_most=0.05, depths=table).own_budget
    assert budget is not None
    assert budget.target == 0.75


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        (Policy(budget=4_000, hide_at_most=0.1, depths=TABLE), "nothing was measured for a window of 4,000"),
        (Policy(budget=8_000, hide_at_most=0.01, depths=TABLE), "give 0.040 or more"),
        (Policy(budget=8_000, hide_at_most=0.1), "depths is not given"),
        (Policy(budget=8_000, hide_at_most=0.1, depths="not-there.json"), "depths cannot be read"),
        (Policy(budget=Budget(window=8_000, target=0.4), hide_at_most=0.1, depths=TABLE), "has a target"),
    ],
)
def test_what_cannot_be_promised_is_an_error_that_says_why(policy: Policy, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        fit_request({"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi."}]}, policy=policy)


@pytest.mark.parametrize("limit", [0, 1, -0.1, True, "2 %"])
def test_a_limit_is_a_share(limit: Any) -> None:
    with pytest.raises(BadInput, match="hide_at_most"):
        Policy(hide_at_most=limit)


def talk(steps: int) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look at the services."}]
    for step in range(steps):
        function = {"name": "read", "arguments": f'{{"path": "service_{step}.py"}}'}
        messages += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{step}", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": f"c{step}", "content": f"port_{step} = {8_000 + step}\n" * 60},
        ]
    return {"model": "gpt-4o", "messages": messages}


def test_the_promise_stands_in_the_account_and_the_cut_keeps_to_its_target(tmp_path: Path) -> None:
    path = tmp_path / "depths.json"
    path.write_bytes(msgspec.json.encode(TABLE))
    policy = Policy(budget=Budget(window=8_000, reserve=500), hide_at_most=0.05, depths=str(path))
    fitted = fit_request(talk(16), policy=policy)
    cut = fitted.envelope.cut
    assert cut is not None
    assert cut.after <= 0.75 * 7_500
    assert cut.after > 0.65 * 7_500
    assert policy.own_budget is not None
    assert policy.own_budget.promise in explain(fitted.envelope).notes


def test_a_gateway_promises_the_same_of_the_windows_of_its_models() -> None:
    policy = Policy(hide_at_most=0.05, depths=TABLE)
    settings = UpstreamSettings(url="http://localhost:9", profile="vllm", policy=policy)
    budget = find_budget(settings, "unknown-model", None, served_window=40_000)
    assert (budget.window, budget.target) == (40_000, 0.5)
    assert find_budget(settings, "unknown-model", None, served_window=40_000) is budget


def test_a_smaller_window_than_was_promised_for_ends_the_promise() -> None:
    budget = Policy(budget=32_000, hide_at_most=0.05, depths=TABLE).own_budget
    assert budget is not None
    assert limit_budget(budget, 9_000).promise == ""
