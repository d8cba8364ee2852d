"""What working windows would have cost, from the recorded sizes and pauses."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from bench.samples import recorded_session
from lamina.caches import PausedRequest
from lamina.caches.prices import price_working
from lamina.costs import RecordedUsage, RequestTable, Trace, compare_settings, price_trace
from lamina.costs.savings import Saving
from tests.cli.running import run

CLAUDE = "claude-opus-4-6"


def growing(calls: int, *, grown: int = 1_500, pause: float = 20.0) -> list[PausedRequest]:
    """The requests of a session that begins with 30,000 tokens and grows."""
    sizes = [30_000 + grown * number for number in range(calls)]
    requests = [PausedRequest(tokens=sizes[0])]
    for before, size in pairwise(sizes):
        requests.append(PausedRequest(tokens=size, held=before, pause=pause))
    return requests


def trace(calls: int, *, model: str = CLAUDE) -> Trace:
    used = {
        2 * number: RecordedUsage(uncached=request.tokens, output=100, at=20.0 * number)
        for number, request in enumerate(growing(calls))
    }
    return Trace(id=f"s{calls}", place="here", dialect="anthropic", items=[], model=model, used=used)


def compare(*traces: Trace) -> Saving | None:
    table = RequestTable()
    for each in traces:
        table.add(price_trace(each))
    return compare_settings(table)


def test_everything_is_read_again_at_the_price_of_the_cache() -> None:
    requests = growing(3)
    everything = price_working(requests, CLAUDE)
    assert everything is not None
    tokens = 30_000 * 1.25 + (30_000 * 0.1 + 1_500 * 1.25) + (31_500 * 0.1 + 1_500 * 1.25)
    assert everything.dollars == pytest.approx(tokens * 5 / 1_000_000)
    assert everything.cuts == 0


def test_the_less_is_in_sight_the_cheaper_a_long_session_is() -> None:
    costs = {}
    for prefer in (None, "memory", "balanced", "cost"):
        cost = price_working(growing(300), CLAUDE, prefer=prefer)
        assert cost is not None
        costs[prefer] = cost
    assert costs["cost"].dollars < costs["balanced"].dollars < costs["memory"].dollars < costs[None].dollars
    assert costs["cost"].cuts > costs["balanced"].cuts > costs["memory"].cuts > 0
    assert price_working(growing(9), "nobody-knows-it") is None


def test_a_cut_is_free_after_a_pause_and_a_shorter_request_begins_anew() -> None:
    slow = price_working(growing(40, pause=900.0), CLAUDE, prefer="balanced")
    slow_whole = price_working(growing(40, pause=900.0), CLAUDE)
    assert slow is not None
    assert slow_whole is not None
    assert slow.dollars < slow_whole.dollars
    anew = [*growing(20), PausedRequest(tokens=20_000, pause=1.0)]
    assert price_working(anew, CLAUDE, prefer="balanced") is not None


def test_the_default_is_recommended_where_it_saves_and_everything_where_nothing_would() -> None:
    long = compare(trace(300), trace(40), trace(9, model="nobody-knows-it"))
    assert long is not None
    assert long.conversations == 2
    assert [row.flag for row in long.rows if row.is_recommended] == ["--prefer balanced"]
    assert long.command == "lamina run -- claude"
    short = compare(trace(9))
    assert short is not None
    assert short.command == "lamina run --window model -- claude"


def test_a_log_of_what_lamina_cut_does_not_say_what_was_whole() -> None:
    under_lamina = msgspec.structs.replace(trace(300), under_lamina=True)
    assert compare(under_lamina) is None


def test_the_command_prints_the_table_and_json(tmp_path: Path) -> None:
    path = tmp_path / "sessions.jsonl"
    path.write_text(json.dumps(recorded_session(1, "anthropic-messages", turns=4)) + "\n")
    printed = run("cost", path, "--jobs", "1")
    assert printed.code == 0
    assert printed.out.startswith("1 conversation, ")
    assert "<- recommended" in printed.out
    figures = json.loads(run("cost", path, "--jobs", "1", "--json", "-").out)
    assert [row["flag"] for row in figures["saving"]["rows"]] == [
        "--window model",
        "--prefer memory",
        "--prefer balanced",
        "--prefer cost",
    ]
    assert figures["saving"]["rows"][0]["dollars"] == pytest.approx(figures["sums"]["dollars"])
