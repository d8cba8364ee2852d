from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from lamina.conversations.lost_caches import LostCache
from lamina.replay import ReplayAccount, ReplayOutcome, UnreadableLine, account_json, account_text
from lamina.replay.account_columns import (
    POLICY_COLUMNS,
    format_money,
    format_percent,
    useful_columns,
)
from lamina.replay.account_sums import list_losses, sum_losses, sum_outcomes
from lamina.replay.headline import group_sessions
from lamina.replay.values import Reported
from tests.replay.accounts import HOSTILE, POLICIES, account


def outcome(policy: str = "p", **figures: float) -> ReplayOutcome:
    return msgspec.convert(
        {"trace": "t", "source": "s", "policy": policy, "window": 9, "rules": "r", **figures}, ReplayOutcome
    )


def test_sums_are_of_every_session_of_a_policy_window_and_cache() -> None:
    found = account(sessions=3, windows=(100, 200))
    sums = sum_outcomes(found.outcomes)
    assert [(each.window, each.policy) for each in sums] == [(w, p) for w in (100, 200) for p in POLICIES]
    for each in sums:
        own = [o for o in found.outcomes if (o.window, o.policy) == (each.window, each.policy)]
        assert each.sessions == 3
        assert each.equivalents == sum(o.equivalents for o in own)
        assert each.recall == sum(o.visible for o in own) / sum(o.needed for o in own)


def test_a_share_of_nothing_is_not_a_number() -> None:
    (empty,) = sum_outcomes([outcome()])
    assert (empty.cached, empty.recall, empty.within_reach, empty.price) == (None,) * 4


def test_dollars_are_of_the_sessions_that_have_a_price() -> None:
    (sums,) = sum_outcomes([outcome(), outcome(dollars=2.5), outcome(dollars=0.0)])
    assert (sums.price, sums.priced, sums.sessions) == (2.5, 2, 3)


def test_records_are_added_up_by_model_and_lost_caches_by_reason() -> None:
    found = [
        Reported(
            trace="a",
            source="s",
            model="m",
            calls=2,
            read=30,
            uncached=10,
            dollars=1.0,
            lost=(LostCache(call=2, tokens=7, why="idle"),),
        ),
        Reported(
            trace="b",
            source="s",
            model="m",
            calls=3,
            written=60,
            lost=(LostCache(call=1, tokens=9, why="edit"), LostCache(call=3, tokens=4, why="idle")),
        ),
        Reported(trace="c", source="s", model="n", calls=9),
    ]
    ours, other = group_sessions(ReplayAccount(reported=tuple(found)), "model")
    assert (other.name, ours.sessions, ours.sent, ours.read, ours.cached) == ("n", 2, 100, 30, 0.3)
    assert (ours.dollars, ours.losses, other.dollars) == (1.0, 3, None)
    reasons = [(each.why, each.times, each.tokens) for each in sum_losses(list_losses(found))]
    assert reasons == [("idle", 2, 11), ("edit", 1, 9)]


def test_gaps_of_any_length_are_one_reason() -> None:
    spans = ("42 minutes", "3 hours")
    lost = tuple(
        LostCache(call=n, tokens=5, why=f"idle for {span}, past the lifetime of 5 minutes", dollars=0.5)
        for n, span in enumerate(spans)
    )
    found = [Reported(trace="a", source="s", lost=lost)]
    [reason] = sum_losses(list_losses(found))
    assert (reason.why, reason.times, reason.dollars) == ("idle, past the lifetime of 5 minutes", 2, 1.0)


def test_json_has_every_figure_that_a_table_shows() -> None:
    told = json.loads(json.dumps(account_json(account()), allow_nan=False))
    assert {column.name for column in POLICY_COLUMNS} <= set(told["totals"][0])
    assert len(told["outcomes"]) == 16
    assert len(told["reported"]) == 4
    assert told["as_of"] == "2026-11-09"


def test_the_answer_comes_first_then_the_table_with_its_legend() -> None:
    lines = account_text(account(windows=(32_000, 64_000))).splitlines()
    assert lines[0] == "4 sessions, 120 calls"
    answer = lines[1 : lines.index("")]
    amounts = [line.partition("$")[0].strip() for line in answer if not line.startswith(" ")]
    assert amounts == ["they cost", "under lamina", "lost to cache misses"]
    assert "prices of 2026-11-09" in " ".join(" ".join(answer).split())
    at = lines.index("window 64,000, cache rules anthropic: 4 sessions, 120 calls")
    table = lines[at + 1 : at + 7]
    assert [line.split("  ")[0] for line in table] == ["policy", "as it was", "none", *POLICIES[1:]]
    assert len({len(line) for line in table}) == 1
    assert len(table[0]) <= 100
    heads = {column.head for column in POLICY_COLUMNS}
    assert {line.partition(":")[0] for line in lines} >= {"USD", "cached", "in request", "refused"} <= heads
    assert "1 damaged, and skipped" in lines


def test_columns_that_say_nothing_are_left_out() -> None:
    heads = [column.name for column in useful_columns(sum_outcomes([outcome(equivalents=5)]))]
    assert heads == ["policy", "equivalents", "refused"]


def test_what_is_not_known_is_said() -> None:
    assert "what they cost is not known" in account_text(ReplayAccount(outcomes=(outcome(),)))


def test_names_cannot_move_the_cursor() -> None:
    hostile = UnreadableLine(place="x\x1b[2J", reason="r\x07")
    reported = Reported(
        trace="t\x1b",
        source="s",
        model="m\x1b",
        calls=1,
        dollars=1.0,
        lost=(LostCache(call=1, tokens=2, why="w\x1b"),),
    )
    written = account_text(ReplayAccount(damaged=(hostile,), reported=(reported,)))
    assert "\x1b" not in written
    assert "\x07" not in written


@pytest.mark.parametrize(("dollars", "written"), [(None, "-"), (0.0123, "0.0123"), (1234.5, "1,234.50")])
def test_money(dollars: float | None, written: str) -> None:
    assert format_money(dollars) == written


def test_shares_and_hostile_names() -> None:
    assert format_percent(0.1234) == "12.3 %"
    assert format_percent(None) == "-"
    assert HOSTILE in account_text(account())


def simulated_beside(paid: float, *, simulated: float, **fields: Any) -> str:
    report = {"trace": "t", "source": "s", "calls": 5, "dollars": paid, "uncached": 1_000, **fields}
    outcomes = [outcome(name, dollars=simulated, calls=5, sent=4_000) for name in ("none", "lamina")]
    found = ReplayAccount(outcomes=tuple(outcomes), reported=(msgspec.convert(report, Reported),))
    return " ".join(account_text(found).split())


def test_a_simulation_that_is_near_the_records_stands_under_them() -> None:
    told = simulated_beside(1.0, simulated=1.19, uncached=4_000)
    assert "as it was 1.00" in told
    assert "not to be compared" not in told


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "1,000 tokens were sent, and the logs hold 4,000"),
        ({"under_lamina": True}, "the records are of requests that lamina had cut"),
        ({"compactions": 1}, "the clients compacted what they sent"),
        ({"uncached": 4_000}, "the real cache did not do what its rules say"),
    ],
)
def test_two_scales_do_not_stand_under_each_other(fields: dict[str, Any], why: str) -> None:
    told = simulated_beside(1.67, simulated=4.50, **fields)
    assert "as it was 1.67" not in told
    assert "as it was: $1.67, which is not to be compared" in told
    assert f"2.69 times that: {why}" in told


def test_a_session_that_something_shortened_is_not_compared() -> None:
    """The log of a client whose requests went through a gateway: the record is of what the gateway sent."""
    told = simulated_beside(1.67, simulated=4.50)
    assert "not compared: of 1 session far less was sent than the log holds" in told
    assert "no window was full" not in told
