"""Depths that are promised from one half of the sessions, and checked on the other."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.replay.promises import (
    DEPTHS,
    bound_shares,
    depth_policies,
    fewest_sessions,
    promise_depths,
)
from lamina.replay.values import ReplayOutcome

NEEDED = 1_000


def outcomes_of(sessions: int, *, hidden_at: dict[float, int], source: str = "logs") -> list[ReplayOutcome]:
    """Sessions in which a depth hides up to so many of a thousand names, and costs its share of the room."""
    dice = Random(7)  # noqa: S311 - the same each time
    outcomes: list[ReplayOutcome] = []
    for number in range(sessions):
        share = dice.random()
        for depth, policy in zip(DEPTHS, depth_policies(), strict=True):
            hidden = int(hidden_at[depth] * share)
            outcomes.append(
                ReplayOutcome(
                    trace=f"session-{number}", source=source, policy=policy, window=32_000, rules="anthropic",
                    needed=NEEDED, visible=NEEDED - hidden, equivalents=depth * 1_000,
                )
            )  # fmt: skip
    return outcomes


HIDDEN = {0.75: 5, 0.6: 10, 0.5: 15, 0.4: 40, 0.3: 60, 0.2: 90}


def test_the_deepest_cut_that_keeps_the_limit_is_promised_and_comes_true() -> None:
    (promise,) = promise_depths(outcomes_of(200, hidden_at=HIDDEN), limit=0.02)
    assert promise.target == 0.5
    assert promise.bound <= 0.02
    assert (promise.calibrated, promise.held_out) == (100, 100)
    assert promise.came_true == 100
    assert promise.relative_cost == pytest.approx(0.5 / 0.75)
    assert "a target of 0.5 hides at most 2 % of the names" in promise.line()
    assert "it came true in 100 of 100 others" in promise.line()


def test_a_depth_behind_one_that_exceeds_the_limit_is_not_promised() -> None:
    """Otherwise one of many depths would keep the limit by luck."""
    lucky = {**HIDDEN, 0.6: 90}
    (promise,) = promise_depths(outcomes_of(200, hidden_at=lucky), limit=0.02)
    assert promise.target == 0.75


def test_few_sessions_promise_nothing() -> None:
    (promise,) = promise_depths(outcomes_of(38, hidden_at=HIDDEN), limit=0.02)
    assert (promise.target, promise.calibrated) == (0.5, 19)
    (promise,) = promise_depths(outcomes_of(36, hidden_at=HIDDEN), limit=0.02)
    assert promise.target is None
    assert "36 sessions are too few, it takes 38" in promise.line()


def test_a_limit_that_no_depth_keeps_is_told() -> None:
    much = dict.fromkeys(DEPTHS, 500)
    (promise,) = promise_depths(outcomes_of(100, hidden_at=much), limit=0.02)
    assert promise.target is None
    assert "even a target of 0.75 may hide" in promise.line()


def test_each_source_has_a_promise_of_its_own() -> None:
    other = dict.fromkeys(DEPTHS, 1)
    outcomes = [*outcomes_of(80, hidden_at=HIDDEN), *outcomes_of(80, hidden_at=other, source="talks")]
    promises = promise_depths(outcomes, limit=0.02)
    assert [(promise.group.source, promise.target) for promise in promises] == [("logs", 0.5), ("talks", 0.2)]


def test_other_policies_and_sessions_that_need_nothing_do_not_count() -> None:
    sliding = ReplayOutcome(trace="a", source="logs", policy="sliding", window=1, rules="r", needed=9)
    idle = ReplayOutcome(trace="b", source="logs", policy="lamina@0.5", window=1, rules="r", needed=0)
    assert promise_depths([sliding, idle], limit=0.02) == []


def test_how_many_sessions_a_confidence_takes() -> None:
    assert [fewest_sessions(confidence) for confidence in (0.5, 0.9, 0.95, 0.99)] == [1, 9, 19, 99]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=120), st.sampled_from([0.5, 0.8, 0.9, 0.95]))
def test_at_most_the_rest_of_the_shares_exceeds_the_bound(shares: list[float], confidence: float) -> None:
    """Whichever of n + 1 exchangeable shares is the new one, so many of them exceed the bound at most."""
    exceeding = 0
    for at, share in enumerate(shares):
        others = shares[:at] + shares[at + 1 :]
        exceeding += share > bound_shares(others, confidence)
    assert exceeding <= len(shares) * (1 - confidence) + 1e-6
