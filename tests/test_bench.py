"""Every bench runs, in its quick form, and what it writes makes sense. No figure is judged."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.fit_request import keep_history
from lamina.dialects import DIALECTS

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / "bench"
PARTS = frozenset(
    (
        "arguments",
        "clearing",
        "generated_logs",
        "policies_bars",
        "process_tree",
        "samples",
        "standing_rules",
        "variants",
        "wishes",
    )
)
"""Files that other benches import; they are no programs."""


def positive(*numbers: float) -> bool:
    return all(number > 0 for number in numbers)


def check_fit_request(figures: Any) -> None:
    assert {name.split()[0] for name in figures} == set(DIALECTS)
    for row in figures.values():
        assert row.keys() >= {"json", "count", "first", "next", "frozen", "cut", "after"}
        assert positive(*row.values())


def check_counting(figures: Any) -> None:
    assert positive(*figures["speed"].values())
    (found,) = figures["slopes"].values()
    assert found["counter"] == "o200k"
    assert found["results"] >= 20
    assert 0.5 < found["slope"] < 3


def check_engines(figures: Any) -> None:
    one_process, several = figures["runs"]
    assert (one_process["jobs"], several["jobs"]) == (1, 2)
    assert one_process["digest"] == several["digest"]
    assert positive(figures["sessions"], one_process["driver_mb"], several["seconds"])


def check_estimate(figures: Any) -> None:
    assert set(figures) == {"o200k", "cl100k"}
    for counters in figures.values():
        assert set(counters) == {"estimate", "chars/4", "bytes/3.5 + 5 %"}
        overall = counters["estimate"]["all"]
        assert overall["worst"] <= overall["p5"] <= overall["mean"] <= overall["p95"]


def check_policies(figures: Any) -> None:
    (table,) = figures["tables"]
    assert {row["policy"] for row in table["rows"]} == {"sliding", "lamina", "sliding@0.3", "sliding@0.5"}
    assert {bar["name"] for bar in table["bars"] if bar["holds"] is None} == set()
    own = next(row for row in table["rows"] if row["policy"] == "lamina")
    assert positive(own["cost"], own["cuts"])
    assert (own["over"], own["invalid"], own["failed"], own["lost"]) == (0, 0, 0, 0)
    assert set(table["gaps"]) == {"lamina"}


def check_replay(figures: Any) -> None:
    (found,) = figures.values()
    assert positive(found["calls"], found["cuts"], found["lowered"])
    for broken in ("unconverted", "invalid", "over", "moved", "inexact", "unlawful", "lost", "exceeded"):
        assert found.get(broken, 0) == 0


def check_search(figures: Any) -> None:
    assert {name: set(ways) for name, ways in figures.items()} == {
        "talks": {"plain BM25", "words"},
        "made_up": {"plain BM25", "words"},
    }
    assert all(ways["words"]["R@5"] == 1 for ways in figures.values())


def check_simulators(figures: Any) -> None:
    assert set(figures) >= {"openai_legacy", "anthropic, 5m", "anthropic, fitted lifetime"}
    for row in figures.values():
        assert row["calls"] > 20
        assert 0 <= row["error"] <= 1


def check_store(figures: Any) -> None:
    rows = {row["what"]: row for row in figures["appends"]}
    assert {"raw sqlite3", "lamina sqlite", "lamina memory"} <= set(rows)
    assert rows["raw sqlite3"]["ratio"] == 1
    assert positive(*(row["per_second"] for row in rows.values()))
    (tail,) = figures["tails"]
    assert tail["messages"] == 1_000
    assert positive(tail["tail_us"], tail["raw_us"])


def check_why_miss(figures: Any) -> None:
    assert sum(row["tried"] for row in figures["faults"]) > 20
    assert all(row["right"] <= row["tried"] for row in figures["faults"])
    assert all(row["right"] == row["tried"] > 0 for row in figures["harmless"] if row["tried"])
    assert {row[0] for row in figures["times"]} == {"anthropic", "openai_chat"}


def check_fuzz(figures: Any) -> None:
    assert figures["rows"]["all"]["conversations"] == 6
    assert figures["rows"]["all"]["violations"] == {}


def check_markers(figures: Any) -> None:
    assert len(figures) == 6
    for row in figures:
        assert row["sessions"] == 2
        assert not row["worse"]
        assert row["read"]["plan"] >= max(row["read"]["two"], row["read"]["four"])


def check_gateway(figures: Any) -> None:
    assert {row["proxy"] for row in figures["rows"]} == {"floor", "lamina"}
    assert positive(*(row[figure] for row in figures["rows"] for figure in ("p50", "cpu")))


def check_talks(figures: Any) -> None:
    assert {row["policy"] for row in figures} == {"sliding@0.5", "lamina"}
    for row in figures:
        if row["policy"] == "lamina":
            assert all(seen == count for seen, count in row["found"].values())
    assert positive(*(row["cost"] for row in figures))


def check_frontier(figures: Any) -> None:
    (panel,) = figures
    assert {policy for policy, _, _ in panel["points"]} == {"lamina", "sliding", "drop_oldest"}


def check_working_window(figures: Any) -> None:
    ways = {row["way"] for row in figures["rows"]}
    assert ways == {"everything", "by price", "64,000", "96,000", "128,000", "192,000", "hindsight"}
    assert len({row["model"] for row in figures["rows"]}) == 6
    assert all(row["cost"] == pytest.approx(1) for row in figures["rows"] if row["way"] == "everything")


CHECKS: dict[str, Callable[[Any], None]] = {
    "counting": check_counting,
    "engines": check_engines,
    "estimate": check_estimate,
    "fit_request": check_fit_request,
    "frontier": check_frontier,
    "fuzz": check_fuzz,
    "gateway": check_gateway,
    "markers": check_markers,
    "policies": check_policies,
    "replay": check_replay,
    "search": check_search,
    "simulators": check_simulators,
    "store": check_store,
    "talks": check_talks,
    "why_miss": check_why_miss,
    "working_window": check_working_window,
}


QUICKEST = frozenset(("frontier", "search", "store"))
"""The others take seconds even in their quick form, over code that many tests run: for `make seeds`."""

BENCHES = [
    pytest.param(name, marks=() if name in QUICKEST else pytest.mark.thorough) for name in sorted(CHECKS)
]


def test_a_ratio_that_has_changed_by_more_than_a_fifth_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "ratios.jsonl"
    for ratio in (2.0, 2.3, 2.1, 3.0):
        keep_history({"first": ratio, "next": 1.0}, history)
    output = capsys.readouterr().out
    assert [line for line in output.splitlines() if line.startswith("changed")] == [
        "changed: first: 2.1 -> 3.0"
    ]
    assert len(history.read_text().splitlines()) == 4


def test_every_bench_is_run_here() -> None:
    programs = {path.stem for path in BENCH.glob("*.py")} - PARTS
    assert programs == set(CHECKS), "give it --quick and --json, and a check of what it writes"


@pytest.mark.parametrize("name", BENCHES)
def test_a_bench_runs_and_what_it_writes_makes_sense(name: str, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    command = [sys.executable, str(BENCH / f"{name}.py"), "--quick", "--json"]
    command += ["--fit"] if name == "estimate" else [str(file)]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    text = done.stdout if name == "estimate" else file.read_text(encoding="utf-8")
    CHECKS[name](json.loads(text))


def test_a_bench_that_needs_sessions_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("policies", "replay", "why_miss"):
        program = str(BENCH / f"{name}.py")
        monkeypatch.setattr(sys, "argv", [program])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(program, run_name="__main__")
        assert (ended.value.code, "--quick" in capsys.readouterr().err) == (2, True), name
