"""One table: what every view says of a session is what its upstream has in its own log.

The upstream has a prefix cache and reports what it read and wrote. Everything in its row is computed from the
requests that it received and the answers that it gave. Two caches are lost on the way: the client changes its
system text, and the upstream forgets. Then lamina cuts, which is no lost cache.
"""

from __future__ import annotations

import asyncio
import json
import re
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest

import lamina
from lamina import Budget, Policy, Session, telemetry
from lamina.cli.stored_sessions import LogSource
from lamina.conversations.store import WORKSPACE
from lamina.gateway import GatewayAccount, app
from lamina.inspector import Inspector, Sessions
from lamina.inspector.views import show_session
from lamina.telemetry.otel import OtelTelemetry
from lamina.wrapped import MissEvent
from tests.cli.running import run
from tests.conversations.recorded_talk import StoreAsker
from tests.conversations.truth import continues, drop_markers, open_inspector
from tests.gateway.growing import HEADERS, dump, messages_request, output
from tests.gateway.running import open_client, run_gateway, settings_for, until
from tests.gateway.test_closing_lines import CachingStub, price_calls
from tests.gateway.upstream_stub import serve_stub
from tests.plain_client import plain_client

STEPS = 26
CHANGED_AT = 4
FORGOTTEN_AT = 7
RESTARTED_AT = 10
BUDGET = Budget(window=8_000, reserve=500)

Row = dict[str, Any]
"""What one view says: the names of figures with their values. No view says all of them."""


class Upstream(CachingStub):
    """An upstream that forgets everything once."""

    def __init__(self) -> None:
        super().__init__(recalls=False)

    def answer_request(self, request: dict[str, Any]) -> dict[str, Any]:
        if len(self.calls) == FORGOTTEN_AT:
            self._sent.clear()
        return super().answer_request(request)

    def _report(self, request: dict[str, Any]) -> dict[str, Any]:
        """Cache markers move from request to request, and are no part of what is cached."""
        return super()._report(drop_markers(request))

    def write_row(self) -> Row:
        usages = [call["response"]["usage"] for call in self.calls]
        misses, cuts = self._tell_losses()
        return {
            "bodies": [call["request"] for call in self.calls],
            "requests": len(usages),
            "input": sum(map(count_input, usages)),
            "cached": sum(usage["cache_read_input_tokens"] for usage in usages),
            "written": sum(usage["cache_creation_input_tokens"] for usage in usages),
            "output": sum(usage["output_tokens"] for usage in usages),
            "dollars": price_calls(self.calls),
            "cuts": cuts,
            "misses": misses,
        }

    def _tell_losses(self) -> tuple[dict[str, int], int]:
        """The tokens of each lost cache by its cause, and the number of cuts."""
        misses: dict[str, int] = {}
        cuts = 0
        for before, after in pairwise(self.calls):
            held = before["response"]["usage"]
            paid = after["response"]["usage"]
            could_read = min(count_input(held) - held["input_tokens"], count_input(paid))
            lost = could_read - paid["cache_read_input_tokens"]
            is_lost = paid["cache_read_input_tokens"] < 0.75 * could_read
            if continues(dump(before["request"]), dump(after["request"])):
                cause = "forgotten"
            elif drop_markers(before["request"])["system"] != drop_markers(after["request"])["system"]:
                cause = "system changed"
            else:
                cuts += 1
                continue
            if is_lost:
                misses[cause] = lost
        return misses, cuts


def count_input(usage: dict[str, Any]) -> int:
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(usage[name] for name in names)


def list_requests() -> Iterator[dict[str, Any]]:
    """The requests of a client that changes its system text once."""
    for step in range(STEPS):
        system = "Be brief." if step < CHANGED_AT else "Be very brief."
        yield messages_request(step, system=system)


class Metered:
    """OpenTelemetry's own counters, in memory."""

    def __init__(self) -> None:
        measuring = pytest.importorskip("opentelemetry.sdk.metrics", reason="the extra is not installed")
        reading = pytest.importorskip("opentelemetry.sdk.metrics.export")
        self._reader = reading.InMemoryMetricReader()
        self.provider = measuring.MeterProvider(metric_readers=[self._reader])

    def write_row(self) -> Row:
        sums: Counter[str] = Counter()
        misses: dict[str, int] = {}
        for scope in self._reader.get_metrics_data().resource_metrics[0].scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    amount = getattr(point, "sum", getattr(point, "value", 0))
                    kind = point.attributes.get("gen_ai.token.type", "")
                    sums[f"{metric.name} {kind}".strip()] += amount
                    if metric.name == "lamina.cache.lost":
                        misses[point.attributes["lamina.cause"]] = amount
        assert sums["lamina.cache.misses"] == len(misses)
        return {
            "input": sums["gen_ai.client.token.usage input"],
            "output": sums["gen_ai.client.token.usage output"],
            "cached": sums["lamina.cache.reported"],
            "cuts": sums["lamina.cuts"],
            "misses": misses,
        }


# What the views of a store say.


def read_views(store: Path, *, is_session: bool = False) -> dict[str, Row]:
    inspector = open_inspector(StoreAsker(store), WORKSPACE)
    if is_session:
        arguments = Namespace(store=str(store), workspace=None, key_file=None, settings=None)
        inspector = Inspector(Sessions(sources=[LogSource(arguments)]))
    [summary] = inspector.sessions.complete(inspector.sessions.summaries())
    shown = show_session(inspector, summary.id)
    totals = shown["totals"]
    losses = [call["loss"] for call in shown["calls"] if call["loss"] and call["loss"]["by"] != "lamina"]
    rows: dict[str, Row] = {
        "list": {
            "requests": summary.calls,
            "dollars": summary.dollars,
            "cuts": summary.cuts,
            "lost": summary.lost_caches,
        },
        "page": {
            "requests": totals["calls"],
            "input": totals["sent"],
            "cached": totals["read"],
            "written": totals["written"],
            "output": totals["output"],
            "dollars": totals["dollars"],
            "cuts": totals["cuts"],
            "lost": len(losses),
        },
    }
    if not is_session:  # the bytes say why, and a session keeps none
        rows["page"]["misses"] = {loss["cause"]: loss["tokens"] for loss in losses}
    return rows | {"cost": read_cost(store)}


def read_cost(store: Path) -> Row:
    done = run("cost", "--store", store, "--json", "-")
    assert done.code == 0, done.err
    sums = json.loads(done.out)["sums"]
    names = ("requests", "cached", "written", "output", "dollars", "cuts")
    row = {name: sums[name] for name in names if name in sums}
    return row | {"input": sums["tokens"], "cached": sums["read"], "lost": sums["losses"]}


# What only a gateway has.


def read_tail(journal: Path) -> Row:
    done = run("log", "-f", journal, "--once", "-n", "1000")
    assert done.code == 0, done.err
    amounts: Counter[str] = Counter()
    for amount, name in re.findall(r"([0-9][0-9,]*) (in|read|written|out)\b", done.out):
        amounts[name] += int(amount.replace(",", ""))
    misses: dict[str, int] = {}
    for cause, lost in re.findall(r"cache lost: ([a-z ]+) at .*?, ([0-9,]+) tokens paid again", done.out):
        misses[cause] = int(lost.replace(",", ""))
    return {
        "requests": len(re.findall(r" out +\$", done.out)),
        "input": amounts["in"],
        "cached": amounts["read"],
        "written": amounts["written"],
        "output": amounts["out"],
        "cuts": len(re.findall(r"  cut [0-9]+, ", done.out)),
        "misses": misses,
    }


def read_closing_lines(journal: Path) -> Row:
    account = GatewayAccount()
    for line in journal.read_bytes().splitlines():
        account.read_line(line)
    lost = re.search(r"cache lost ([0-9]+) times", "\n".join(account.write_lines()))
    assert lost is not None
    return {
        "requests": account.calls + account.recalls,
        "input": account.table.sum("sum(tokens)"),
        "cached": account.table.sum("sum(read)"),
        "written": account.table.sum("sum(written)"),
        "output": account.table.sum("sum(output)"),
        "dollars": account.cost,
        "cuts": account.cuts,
        "lost": int(lost[1]),
    }


def read_prometheus(text: str) -> Row:
    lines = re.findall(r"^(lamina_.*) ([0-9.]+)$", text, re.MULTILINE)
    amounts = {name: float(value) for name, value in lines}
    tokens = {
        kind: amounts.get(f'lamina_tokens_total{{kind="{kind}"}}', 0)
        for kind in ("input", "cached", "written", "output")
    }
    causes = re.findall(r'lamina_misses_total\{cause="([a-z ]+)",upstream="claude"\} 1\.0', text)
    return {
        **tokens,
        "requests": sum(value for name, value in amounts.items() if name.startswith("lamina_requests_total")),
        "cuts": amounts.get('lamina_cuts_total{upstream="claude"}', 0),
        "causes": sorted(causes),
    }


# The doors.


class Played(NamedTuple):
    upstream: Upstream
    rows: dict[str, Row]


def play_gateway(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    """Through two gateways on one store: the first one is stopped in the middle."""
    store = folder / "kept.db"
    journal = folder / "requests.jsonl"
    meters: list[Metered] = []
    texts: list[str] = []

    def open_telemetry(_: object) -> OtelTelemetry:
        meters.append(Metered())
        return OtelTelemetry(meter_provider=meters[-1].provider)

    monkeypatch.setattr(app, "open_telemetry", open_telemetry)

    async def play(upstream: Upstream, requests: Sequence[dict[str, Any]], misses: int) -> None:
        policy = {"budget": BUDGET, "breakpoints": "auto"}
        settings = settings_for(upstream, store, keep="all", upstream=policy)
        async with run_gateway(settings, journal_path=journal) as gateway, open_client() as client:
            for request in requests:
                url = f"{gateway.url}/v1/messages"
                async with client.post(url, data=dump(request), headers=HEADERS) as answer:
                    text = await answer.text()  # a client that leaves before is no part of this
                    assert answer.status == 200, text
            await until(lambda: len(gateway.events("answered")) == len(requests))
            await until(lambda: len(gateway.events("miss")) == misses)
            async with client.get(f"{gateway.url}/metrics") as metrics:
                texts.append(await metrics.text())

    async def play_both() -> Upstream:
        async with serve_stub(Upstream()) as upstream:
            requests = list(list_requests())
            await play(upstream, requests[:RESTARTED_AT], 2)
            await play(upstream, requests[RESTARTED_AT:], 0)
            return upstream

    upstream = asyncio.run(play_both())
    rows = {
        "tail": read_tail(journal),
        "closing lines": read_closing_lines(journal),
        "Prometheus": add_rows([read_prometheus(text) for text in texts]),
        "OpenTelemetry": add_rows([meter.write_row() for meter in meters]),
        **read_views(store),
    }
    return Played(upstream, rows)


def add_rows(rows: Sequence[Row]) -> Row:
    """The figures of several processes together."""
    total: Row = dict(rows[0])
    for row in rows[1:]:
        for name, value in row.items():
            total[name] = total[name] | value if isinstance(value, dict) else total[name] + value
    return total


def play_wrapped(folder: Path, _: pytest.MonkeyPatch) -> Played:
    """Through a wrapped client."""
    upstream = Upstream()
    metered = Metered()
    events: list[MissEvent] = []
    cuts: list[Any] = []

    policy = Policy(budget=BUDGET, keep="all")
    store = folder / "kept.db"
    telemetry.turn_on(meter_provider=metered.provider)
    try:
        client: Any = lamina.wrap(
            plain_client(upstream.answer_request),
            store=str(store),
            policy=policy,
            on_miss=events.append,
            on_cut=cuts.append,
        )
        for request in list_requests():
            client.messages.create(**request)
    finally:
        telemetry.turn_off()
    rows = {
        "events": {"misses": {event.cause: event.lost for event in events}, "cuts": len(cuts)},
        "OpenTelemetry": metered.write_row(),
        **read_views(store),
    }
    return Played(upstream, rows)


def play_session(folder: Path, _: pytest.MonkeyPatch) -> Played:
    """Through a session, as the chat has one. It keeps its texts in its own log, and so no bodies."""
    upstream = Upstream()
    metered = Metered()
    store = folder / "kept.db"

    async def play() -> None:
        policy = Policy(budget=BUDGET)
        async with Session.open(str(store), "chat", model="claude-sonnet-5", policy=policy) as session:
            for step in range(STEPS):
                await session.ask(f"Step {step}: {output(step, 2_000)}")
                request = {"tools": [], "system": "", **await session.request()}
                answer = upstream.answer_request(json.loads(json.dumps(request)))
                await session.record(answer)

    telemetry.turn_on(meter_provider=metered.provider)
    try:
        anyio.run(play)
    finally:
        telemetry.turn_off()
    rows = {"OpenTelemetry": metered.write_row(), **read_views(store, is_session=True)}
    return Played(upstream, rows)


DOORS = {"gateway": play_gateway, "wrap": play_wrapped, "session": play_session}


@pytest.mark.parametrize("door", DOORS)
def test_every_view_says_what_the_upstream_has_in_its_log(
    door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream, rows = DOORS[door](tmp_path, monkeypatch)
    truth = upstream.write_row()
    assert truth["cuts"] > 1
    assert "forgotten" in truth["misses"]
    truth |= {"lost": len(truth["misses"]), "causes": sorted(truth["misses"])}
    wrong = list(compare_rows(truth, rows))
    assert not wrong, "\n".join(wrong)


def compare_rows(truth: Row, rows: dict[str, Row]) -> Iterator[str]:
    """Each figure of a view that is not the upstream's."""
    for view, row in rows.items():
        for name, value in row.items():
            expected = truth[name]
            if name == "dollars":
                expected = pytest.approx(expected, abs=1e-6)
            if value != expected:
                yield f"{view} says {name} {str(value)[:200]}, the upstream has {str(expected)[:200]}"
