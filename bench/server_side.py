"""What the providers' own features save or cost, each beside not using it.

    python -m bench.server_side PATH... [--window N] [--json FILE]
    python -m bench.server_side --quick [--json FILE]

A path is a JSONL file of sessions, as for replay.py. Three tables:

- **history**: each session under lamina's own cuts, under clearing by the server with the boundary that
  lamina pins, under clearing as the server does it by itself, and under compaction on demand. What the model
  reads is made by `tests.servers.context_editing`, and its cache is simulated. Costs are input tokens at full
  price, with the output of compactions.
- **lifetimes**: the recorded pauses with each lifetime of the cache.
- **explicit caches**: Gemini, by how often a head is used in an hour and what the implicit cache gives back.

No provider was asked: servers, caches and prices are as their pages say.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started


from bench.samples import QUICK_HELP, sample_sessions
from bench.why_miss import sessions
from lamina import Budget, Policy, fit_request
from lamina.caches import all_rules, rules_for, simulator
from lamina.caches.explicit import price_explicit_cache
from lamina.dialects import DIALECTS
from lamina.dialects.anthropic.server import BETAS, EDITING_BETA, read_cleared
from lamina.dialects.usage import Usage
from lamina.errors import BudgetExceeded
from lamina.fitting.request import RequestMemo
from lamina.fitting.server_compaction import (
    ServerCompaction,
    apply_compaction,
    plan_next_compaction,
    read_compaction,
)
from lamina.fitting.server_reports import ServerUse
from lamina.models.facts import model as facts_of
from lamina.models.facts import price_of
from lamina.replay.lifetimes import LifetimeRow, compare_lifetimes, lifetimes_text
from lamina.replay.traces import read_traces
from lamina.replay.values import Trace
from tests.servers.compaction import compact_messages
from tests.servers.context_editing import edit

Json = dict[str, Any]

MODEL = "claude-opus-5"
SUMMARY = 800
"""Tokens that a compaction of the provider is taken to have."""

CHARACTERS = 4


class HistoryRow(NamedTuple):
    way: str
    sessions: int
    requests: int
    cost: float
    changed: int
    calls: int


class _Bill:
    """Adds up what one way of shortening histories costs, session by session."""

    def __init__(self) -> None:
        self.rules = rules_for(MODEL, dialect="anthropic")
        self.cost = 0.0
        self.requests = 0
        self.changed = 0
        self.calls = 0
        self._cache = simulator(self.rules)
        self._last: list[Json] = []
        self._at = 0.0

    def begin(self) -> None:
        self._cache = simulator(self.rules)
        self._last = []

    def send(self, request: Json, messages: list[Json]) -> None:
        """A request was sent, and its model reads these messages."""
        self._at += 30.0
        stream = DIALECTS["anthropic"].cache.stream({**request, "messages": messages})
        stream = stream.weighed([len(block.data) // CHARACTERS for block in stream.blocks])
        tally = self._cache.send(stream, at=self._at)
        self.cost += tally.read * self.rules.read_share(MODEL) + tally.uncached
        self.cost += tally.written * self.rules.write + tally.written_long * self.rules.write_long
        self.requests += 1
        plain = json.loads(json.dumps(messages).replace(', "cache_control": {"type": "ephemeral"}', ""))
        self.changed += plain[: len(self._last)] != self._last
        self._last = plain

    def compact(self, covered: Sequence[Json]) -> None:
        """The provider was asked for a compaction of these messages, which its cache has."""
        prices = price_of(facts_of(MODEL))
        ratio = (prices.output or 0.0) / (prices.input or 1.0)
        self.cost += len(json.dumps(list(covered))) // CHARACTERS * self.rules.read_share(MODEL)
        self.cost += SUMMARY * ratio
        self.calls += 1


def grow(request: Json) -> Iterator[Json]:
    """The requests of a session, one for each answer of the model."""
    messages = request["messages"]
    for end in range(1, len(messages)):
        if messages[end]["role"] == "assistant" and messages[end - 1]["role"] == "user":
            yield {**request, "messages": messages[:end]}


def run_policy(requests: Sequence[Json], budget: Budget, server: ServerUse) -> HistoryRow:
    """Sessions under lamina, with its own cuts or with those of the server."""
    bill = _Bill()
    policy = Policy(server=server, breakpoints="plan", recall="off")
    for session in requests:
        bill.begin()
        ledger = None
        usage = None
        memo = RequestMemo()
        for request in grow(session):
            try:
                fitted = fit_request(
                    request, budget=budget, policy=policy, ledger=ledger, usage=usage, memo=memo
                )
            except BudgetExceeded:
                break
            ledger = fitted.ledger
            prompt = edit(fitted.request, fitted.headers.get(BETAS, ""))
            usage = Usage(input=prompt.tokens, cleared=read_cleared({"context_management": prompt.report}))
            bill.send(fitted.request, prompt.messages)
    way = "lamina's own cuts" if server == "thinking" else f"clearing by the server, server = {server!r}"
    return HistoryRow(way, len(requests), bill.requests, bill.cost, bill.changed, 0)


def run_plain_clearing(requests: Sequence[Json], budget: Budget) -> HistoryRow:
    """Sessions whose client asks the server to clear by itself, as the page shows it."""
    bill = _Bill()
    trigger = {"type": "input_tokens", "value": budget.window * 3 // 4}
    wanted = {
        "type": "clear_tool_uses_20250919",
        "trigger": trigger,
        "keep": {"type": "tool_uses", "value": 3},
    }
    for session in requests:
        bill.begin()
        for request in grow(session):
            asking = {**request, "context_management": {"edits": [wanted]}}
            fitted = fit_request(asking, policy=Policy(breakpoints="plan", recall="off"))
            prompt = edit(fitted.request, EDITING_BETA)
            bill.send(fitted.request, prompt.messages)
    return HistoryRow(
        "clearing as the server does it", len(requests), bill.requests, bill.cost, bill.changed, 0
    )


def run_compaction(requests: Sequence[Json], budget: Budget) -> HistoryRow:
    """Sessions that are compacted by the provider whenever they are over the trigger."""
    bill = _Bill()
    limit = budget.window * 3 // 4
    for session in requests:
        bill.begin()
        compaction: ServerCompaction | None = None
        for request in grow(session):
            applied = apply_compaction(request, compaction) if compaction else request
            if len(json.dumps(applied["messages"])) // CHARACTERS > limit:
                call = plan_next_compaction(request, applied, dialect="anthropic")
                if call is not None:
                    bill.compact(call.request["messages"])
                    compaction = _with_size(
                        read_compaction(call, compact_messages(call.request, call.headers[BETAS]))
                    )
                    applied = apply_compaction(request, compaction)
            fitted = fit_request(applied, policy=Policy(breakpoints="plan", recall="off"))
            bill.send(fitted.request, fitted.request["messages"])
    return HistoryRow(
        "compaction by the provider, on demand",
        len(requests),
        bill.requests,
        bill.cost,
        bill.changed,
        bill.calls,
    )


def _with_size(compaction: ServerCompaction) -> ServerCompaction:
    """The compaction with a text of the usual size, since the test server writes one line."""
    block = {**compaction.items[0], "content": "word " * (SUMMARY * CHARACTERS // 5)}
    return ServerCompaction(
        dialect=compaction.dialect, items=(block,), covers=compaction.covers, covered=compaction.covered
    )


def compare_histories(requests: Sequence[Json], window: int) -> list[HistoryRow]:
    budget = Budget(window=window, reserve=window // 8)
    ways: tuple[Callable[[], HistoryRow], ...] = (
        lambda: run_policy(requests, budget, "thinking"),
        lambda: run_policy(requests, budget, "when cheaper"),
        lambda: run_policy(requests, budget, "first"),
        lambda: run_plain_clearing(requests, budget),
        lambda: run_compaction(requests, budget),
    )
    return [way() for way in ways]


def compare_explicit() -> list[tuple[str, int, float, float, float]]:
    """Model, uses in an hour, what the implicit cache reads, and USD for a million tokens: without, with."""
    rules = all_rules()["gemini_explicit"]
    rows = []
    for name in ("gemini-3.8-flash", "gemini-3-pro"):
        for uses in (2, 5, 20):
            for share in (0.0, 0.5, 0.9):
                price = price_explicit_cache(rules, name, uses=uses, seconds=3600, implicit_share=share)
                rows.append((name, uses, share, round(price.without, 3), round(price.with_cache, 3)))
    return rows


def shown_histories(rows: Sequence[HistoryRow]) -> None:
    own = rows[0].cost
    print(f"{'history':<46} {'requests':>8} {'input':>12} {'of own cuts':>12} {'changed':>8} {'calls':>6}")
    for row in rows:
        share = f"{row.cost / own:>12.1%}"
        print(f"{row.way:<46} {row.requests:>8} {row.cost:>12,.0f} {share} {row.changed:>8} {row.calls:>6}")
    print()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--window", type=int, default=32_000)
    parser.add_argument("--limit", type=int, default=20, help="sessions whose histories are compared")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    arguments = parser.parse_args()
    if arguments.quick:
        with sample_sessions(sessions=2, turns=5) as path:
            return measure([str(path)], arguments, window=6_000)
    if not arguments.paths:
        parser.error("name recorded sessions, or say --quick")
    return measure(arguments.paths, arguments, window=arguments.window)


def measure(paths: Sequence[str], arguments: argparse.Namespace, *, window: int) -> int:
    requests = [{**request, "model": MODEL} for request in sessions(paths)["anthropic"]]
    histories = compare_histories(requests[: arguments.limit], window)
    shown_histories(histories)
    traces = (trace for trace in read_traces(list(paths)) if isinstance(trace, Trace))
    lifetimes: list[LifetimeRow] = compare_lifetimes(traces)
    if lifetimes:
        print(lifetimes_text(lifetimes), "\n")
    explicit = compare_explicit()
    print(f"{'model':<18} {'uses/h':>6} {'implicit':>9} {'without':>9} {'with a cache':>13}")
    for name, uses, share, without, with_cache in explicit:
        print(f"{name:<18} {uses:>6} {share:>9.0%} {without:>9.2f} {with_cache:>13.2f}")
    if arguments.json:
        figures = {
            "histories": [row._asdict() for row in histories],
            "lifetimes": [_to_plain(row) for row in lifetimes],
            "explicit": explicit,
        }
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    return 0


def _to_plain(row: LifetimeRow) -> Json:
    return {name: getattr(row, name) for name in row.__struct_fields__}


if __name__ == "__main__":
    sys.exit(main())
