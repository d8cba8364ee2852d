"""What `fit_request` costs, through parse, hash and render, as ratios to one JSON dump of the same request.

    python bench/fit_request.py [--runs N] [--json FILE] [--quick]

CPU time of this process, the best of several runs; the request is a made-up session of a coding agent.
A next-turn call gets the memo and the ledger of the call before it.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.samples import QUICK_HELP
from lamina.core.build import build
from lamina.core.values import Budget, Ledger
from lamina.dialects import DIALECTS
from lamina.fitting.policy import Policy
from lamina.fitting.request import RequestMemo, fit_request
from lamina.models.counters.openai import o200k
from lamina.replay.generated_sessions import generate_session

HUGE = 100_000_000
MODELS = {"openai_chat": "gpt-5", "anthropic": "claude-sonnet-4-5"}


class Extent(NamedTuple):
    """How much is measured. `turns` are enough for the largest of `sizes`; `narrow` is a window."""

    messages: int = 2_004
    turns: int = 490
    sizes: tuple[int, ...] = (250, 500, 1_000, 2_000, 4_000, 8_000)
    narrow: int = 128_000


QUICK = Extent(messages=100, turns=12, sizes=(50, 100), narrow=16_000)


def request(dialect: str, messages: int, turns: int) -> dict[str, Any]:
    """A request of the dialect with so many messages, ending with the user's side."""
    rendered = DIALECTS[dialect].wire.render(build(generate_session(3, turns=turns)))
    kept = rendered["messages"][:messages]
    while kept[-1]["role"] == "assistant":
        kept.pop()
    return {**rendered, "model": MODELS[dialect], "max_tokens": 4_000, "messages": kept}


def measure(work: Callable[[], Any], runs: int) -> float:
    best = float("inf")
    for _ in range(runs):
        gc.collect()
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best


def first(whole: dict[str, Any], window: int, runs: int) -> float:
    return measure(
        lambda: fit_request(whole, budget=Budget(window=window), policy=Policy(counter=o200k())), runs
    )


def cut_by(whole: dict[str, Any], window: int) -> dict[str, Any]:
    """The request itself, if a window of this size makes a cut in it; else the figures would be wrong."""
    if fit_request(whole, budget=Budget(window=window), policy=Policy(counter=o200k())).envelope.cut is None:
        sys.exit(f"expected a cut in a window of {window:,}")
    return whole


def next_turn(whole: dict[str, Any], window: int, runs: int) -> float:
    """The last step of a request, after the request without it; settled by three calls before."""
    best = float("inf")
    for _ in range(runs):
        memo, ledger = RequestMemo(), Ledger()
        for cut in (6, 4, 2):
            shorter = {**whole, "messages": _ending_with_user(whole["messages"][:-cut])}
            budget = Budget(window=window)
            ledger = fit_request(
                shorter, budget=budget, ledger=ledger, policy=Policy(counter=o200k()), memo=memo
            ).ledger
        gc.collect()
        started = time.process_time()
        fit_request(
            whole, budget=Budget(window=window), ledger=ledger, policy=Policy(counter=o200k()), memo=memo
        )
        best = min(best, time.process_time() - started)
    return best


def _ending_with_user(messages: list[Any]) -> list[Any]:
    end = len(messages)
    while messages[end - 1]["role"] == "assistant":
        end -= 1
    return messages[:end]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    options = parser.parse_args()
    extent = QUICK if options.quick else Extent()
    runs = 1 if options.quick else options.runs
    figures: dict[str, Any] = {}
    for dialect in MODELS:
        whole = request(dialect, extent.messages, extent.turns)
        dump = measure(lambda whole=whole: orjson.dumps(whole), 20)  # type: ignore[misc]
        rows = {
            "first": first(whole, HUGE, runs),
            "next turn": next_turn(whole, HUGE, runs),
            "first, with a cut": first(cut_by(whole, extent.narrow), extent.narrow, runs),
            "next turn after a cut": next_turn(whole, extent.narrow, runs),
        }
        print(f"\n{dialect}: {len(whole['messages']):,} messages, one dump {dump * 1000:.2f} ms")
        for name, seconds in rows.items():
            print(f"  {name:<24}{seconds * 1000:>9.2f} ms  {seconds / dump:>7.1f} x the dump")
        figures[dialect] = {"dump": dump, **rows, "growth": _growth(dialect, runs, extent)}
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    return 0


def _growth(dialect: str, runs: int, extent: Extent) -> list[dict[str, float]]:
    rows: list[dict[str, float]] = []
    print(f"  {'messages':>9}{'first ms':>10}{'next ms':>10}")
    for size in extent.sizes:
        whole = request(dialect, size, extent.turns)
        row = {
            "messages": size,
            "first": first(whole, HUGE, max(1, runs // 2)),
            "next": next_turn(whole, HUGE, runs),
        }
        rows.append(row)
        print(f"  {size:>9,}{row['first'] * 1000:>10.1f}{row['next'] * 1000:>10.2f}")
    return rows


if __name__ == "__main__":
    sys.exit(main())
