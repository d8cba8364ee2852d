from __future__ import annotations

import msgspec
import pytest

from lamina.replay.across import summarise_across
from lamina.replay.runs import TraceReplay
from lamina.replay.session_places import SessionFigures
from lamina.replay.values import (
    LargeResult,
    LostCache,
    RepeatedRead,
    ReplayOutcome,
    Reported,
    SessionFindings,
    UnusedTool,
)

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
        input_dollars=dollars and dollars / 2,
        began=1_770_000_000.0 + number * DAY,
        title=f"Session {number}",
        place=f"logs/{number}.jsonl:1",
    )
    return SessionFigures(id=f"id{number}", reported=msgspec.structs.replace(reported, **fields))


def with_findings(session: SessionFigures, **findings: object) -> SessionFigures:
    return msgspec.structs.replace(session, findings=SessionFindings(**findings))  # type: ignore[arg-type]


def read(name: str, times: int, tokens: int, *, again: int) -> RepeatedRead:
    return RepeatedRead(name=name, times=times, tokens=tokens, carried_again=again, call=2, last_call=7)


OTHER = read("b.py", 2, 10, again=0)


def test_sums_are_those_of_the_sessions_and_groups_are_in_order() -> None:
    sessions = [
        figures(0),
        figures(1, dollars=5.0, project="site"),
        figures(2, dollars=None, model="mystery"),
    ]
    summary = summarise_across([*sessions, figures(3, calls=0)])
    assert (summary.sessions, summary.calls, summary.priced, summary.dollars) == (3, 30, 2, 7.0)
    assert summary.cached == pytest.approx(0.9)
    assert [row["name"] for row in summary.groups["project"]] == ["site", "app"]
    assert [row["name"] for row in summary.groups["day"]] == ["2026-02-02", "2026-02-03", "2026-02-04"]
    assert [each.place.title for each in summary.dearest][:2] == ["Session 1", "Session 0"]


def test_a_file_that_was_read_again_is_summed_over_sessions_and_leads_to_the_place() -> None:
    sessions = [
        with_findings(figures(0), reads=(read("src/app.py", 12, 9_000, again=20_000),)),
        with_findings(figures(1), reads=(read("src/app.py", 29, 30_000, again=50_000), OTHER)),
        with_findings(figures(2, project="other"), reads=(read("src/app.py", 2, 50, again=0),)),
    ]
    summary = summarise_across(sessions)
    first, *_ = summary.reads
    assert (first.name, first.times, first.sessions, first.tokens) == ("src/app.py", 41, 2, 39_000)
    assert (first.place.session, first.place.request) == ("id1", 6)
    # A token of input cost 1 dollar in 100,000 on average: 70,000 tokens that were sent again cost 0.70.
    assert first.dollars == pytest.approx(0.7)
    [advice] = summary.advice
    assert (advice.basis, advice.tokens) == ("estimated", 70_000)
    assert advice.dollars == pytest.approx(0.7)
    assert "src/app.py: 41 times, 39,000 tokens" in advice.why


def test_each_advice_says_what_it_would_save_and_the_most_comes_first() -> None:
    lost = (LostCache(call=4, tokens=5_000, why="the model changed from a to b", dollars=0.6),)
    session = with_findings(
        figures(0, lost=lost),
        results=(LargeResult(tool="Bash", name="ls -R", tokens=30_000, carried=60_000, call=3),),
        tools=(UnusedTool(name="browse", tokens=900, carried=9_000),),
    )
    summary = summarise_across([session])
    assert [(each.basis, round(each.dollars or 0, 3)) for each in summary.advice] == [
        ("reported", 0.6),
        ("estimated", 0.4),
        ("estimated", 0.09),
    ]
    assert [each.place.request for each in summary.advice if each.place] == [3, 2, None]
    assert "most of all browse: 9,000 tokens" in summary.advice[2].why
    assert (summary.losses, summary.lost_dollars, summary.lost[0].place.request) == (1, 0.6, 3)


@pytest.mark.parametrize(("paid", "saves"), [(0.5, 0.4), (3.0, None)])
def test_the_longer_lifetime_is_advised_only_where_it_would_have_paid(
    paid: float, saves: float | None
) -> None:
    why = "idle for 20 minutes, past the lifetime of 5 minutes"
    lost = (
        LostCache(call=4, tokens=5_000, why=why, dollars=0.9, idle=1_200.0),
        LostCache(call=6, tokens=5_000, why=why, dollars=0.7, idle=9_000.0),
    )
    summary = summarise_across([figures(0, lost=lost, longer_lifetime=3_600.0, longer_dollars=paid)])
    bought = [each for each in summary.advice if each.what.startswith("Buy")]
    [idle] = [each for each in summary.advice if each.what.startswith("Go on")]
    assert idle.dollars == pytest.approx(1.6)
    if saves is None:
        assert not bought
        assert "would have saved $0.90 of that, and dearer writes would have cost $3.00" in idle.why
    else:
        [advice] = bought
        assert advice.dollars == pytest.approx(saves)


def test_a_session_of_a_folder_has_no_page_and_lamina_is_advised_if_it_was_replayed() -> None:
    session = msgspec.structs.replace(figures(0), has_page=False)
    outcomes = tuple(
        ReplayOutcome(trace="t0", source="x", policy=policy, window=1, rules="r", calls=10, dollars=dollars)
        for policy, dollars in (("none", 2.0), ("lamina", 1.5))
    )
    replay = TraceReplay(reported=session.reported, outcomes=outcomes)
    summary = summarise_across([session], replays=[replay])
    assert not summary.dearest[0].place.has_page
    assert summary.dearest[0].place.file == "logs/0.jsonl:1"
    [advice] = summary.advice
    assert advice.basis == "simulated"
    assert advice.dollars == pytest.approx(0.5)
    assert summary.groups["project"][0]["saved"] == pytest.approx(0.25)


def test_without_a_price_tokens_say_what_is_worth_it() -> None:
    session = with_findings(figures(0, dollars=None), reads=(read("a.py", 3, 90, again=600),))
    [advice] = summarise_across([session]).advice
    assert (advice.dollars, advice.tokens) == (None, 600)
