"""`lamina replay --lifetimes`: what each lifetime would have cost, from the recorded sizes and pauses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.samples import recorded_session
from lamina.caches import rules_for
from lamina.replay.lifetimes import AUTO, EXPLICIT, compare_lifetimes
from lamina.replay.values import RecordedUsage, Trace
from tests.cli.running import run

CLAUDE = "claude-sonnet-4-5"


def trace(pauses: list[float], *, model: str = CLAUDE, dialect: str = "anthropic", read: int = 0) -> Trace:
    used: dict[int, RecordedUsage] = {}
    at = 0.0
    for number, pause in enumerate([0.0, *pauses]):
        at += pause
        used[2 * number] = RecordedUsage(uncached=20_000 + 500 * number - read, read=read, at=at)
    return Trace(id="s", place="here", dialect=dialect, items=[], model=model, used=used)


def test_long_pauses_are_cheaper_with_an_hour_and_short_ones_are_not() -> None:
    minutes = {row.lifetime: row for row in compare_lifetimes([trace([900.0] * 60)])}
    assert minutes["5m"].late == 60
    assert minutes["1h"].late == 0
    assert minutes["1h"].saved > 0.5
    assert 0 < minutes[AUTO].saved < minutes["1h"].saved  # the first pauses teach it
    seconds = {row.lifetime: row for row in compare_lifetimes([trace([20.0] * 60)])}
    assert seconds["1h"].saved < 0
    assert seconds[AUTO].saved == 0


def test_a_client_that_cut_its_history_holds_nothing() -> None:
    whole = trace([10.0, 10.0])
    cut = Trace(
        id="c",
        place="here",
        dialect="anthropic",
        items=[],
        model=CLAUDE,
        used={**whole.used, 4: RecordedUsage(uncached=5_000, at=20.0)},
    )
    row = compare_lifetimes([cut])[0]
    rules = rules_for(CLAUDE, dialect="anthropic")
    read = 20_000 * rules.read_share(CLAUDE)
    assert row.cost == pytest.approx((20_000 + 500 + 5_000) * rules.write + read)


def test_gemini_shows_an_explicit_cache_beside_what_was_reported() -> None:
    missed = {
        row.lifetime: row
        for row in compare_lifetimes([trace([10.0] * 40, model="gemini-3-pro", dialect="gemini")])
    }
    assert missed[EXPLICIT].saved > 0
    hit = trace([10.0] * 40, model="gemini-3-pro", dialect="gemini", read=20_000)
    found = {row.lifetime: row for row in compare_lifetimes([hit])}
    assert found[EXPLICIT].saved < 0


def test_the_command_prints_a_table_and_json(tmp_path: Path) -> None:
    path = tmp_path / "sessions.jsonl"
    sessions: list[Any] = [recorded_session(seed, "anthropic-messages", turns=4) for seed in range(2)]
    path.write_text("".join(json.dumps(session) + "\n" for session in sessions))
    printed = run("replay", path, "--lifetimes")
    assert printed.code == 0
    assert "1h" in printed.out
    rows = json.loads(run("replay", path, "--lifetimes", "--json", "-").out)
    assert {row["lifetime"] for row in rows} == {"5m", "1h", "auto"}


def test_sessions_without_times_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "sessions.jsonl"
    path.write_text(json.dumps({"model": CLAUDE, "messages": [{"role": "user", "content": "Hi"}]}) + "\n")
    refused = run("replay", path, "--lifetimes")
    assert refused.code == 2
    assert "times" in refused.err
