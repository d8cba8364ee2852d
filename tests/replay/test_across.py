from __future__ import annotations

import msgspec
import pytest

from lamina.caches.prices import WorkingCost
from lamina.conversations.lost_caches import LostCache
from lamina.replay.across import SessionFigures, summarise_across
from lamina.replay.values import Reported

DAY = 86_400.0


def figures(number: int, *, dollars: float | None = 2.0, **fields: object) -> SessionFigures:
    reported = Reported(
        trace=f"t{number}",
        source="claude-code",
        client="claude-code",
        project="app",
        model="claude-opus-4-6",
        calls=10,
        read=90_000,
        written=10_000,
        output=500,
        dollars=dollars,
        began=1_770_000_000.0 + number * DAY,
        title=f"Session {number}",
        place=f"logs/{number}.jsonl:1",
    )
    return SessionFigures(id=f"id{number}", reported=msgspec.structs.replace(reported, **fields))


def test_sums_are_those_of_the_sessions_and_groups_are_in_order() -> None:
    sessions = [
        figures(0),
        figures(1, dollars=5.0, project="site"),
        figures(2, dollars=None, model="mystery"),
    ]
    summary = summarise_across([*sessions, figures(3, calls=0)])
    assert (summary.sessions, summary.calls, summary.priced, summary.dollars) == (3, 30, 2, 7.0)
    assert summary.cached == pytest.approx(0.9)
    assert [row.name for row in summary.groups["project"]] == ["site", "app"]
    assert [row.name for row in summary.groups["day"]] == ["2026-02-02", "2026-02-03", "2026-02-04"]
    assert [each.place.title for each in summary.dearest][:2] == ["Session 1", "Session 0"]


def test_what_each_setting_would_have_cost_is_the_sum_of_the_sessions() -> None:
    costs = tuple(WorkingCost(dollars=dollars, cuts=1) for dollars in (2.0, 1.9, 1.0, 0.8))
    saving = summarise_across([figures(0, by_setting=costs), figures(1, by_setting=costs), figures(2)]).saving
    assert saving is not None
    assert (saving.sessions, [row.dollars for row in saving.rows]) == (2, [4.0, 3.8, 2.0, 1.6])
    assert [row.saved for row in saving.rows if row.is_recommended] == [0.5]


def test_lost_caches_are_told_by_reason_with_what_to_do_and_with_their_places() -> None:
    pause = "past the lifetime of 5 minutes"
    first = (
        LostCache(call=4, tokens=5_000, why="the model changed from a to b", dollars=0.6, advice="Stay."),
        LostCache(call=6, tokens=2_000, why=f"idle for 20 minutes, {pause}", dollars=0.5, advice="Go on."),
    )
    second = (LostCache(call=3, tokens=3_000, why=f"idle for 9 minutes, {pause}", dollars=0.4),)
    summary = summarise_across([figures(0, lost=first), figures(1, lost=second)])
    assert (summary.losses, summary.lost_tokens, summary.lost_dollars) == (3, 10_000, 1.5)
    assert [(reason.times, round(reason.dollars or 0, 3)) for reason in summary.reasons] == [
        (2, 0.9),
        (1, 0.6),
    ]
    assert all(reason.advice for reason in summary.reasons)
    assert [(lost.place.session, lost.place.request) for lost in summary.lost] == [
        ("id0", 3),
        ("id0", 5),
        ("id1", 2),
    ]
