"""What recorded sessions would have cost with each working window of `lamina run`, and which one to take.

Only sizes and times of the records are used, so a hundred sessions take seconds.
`lamina.caches.prices` simulates the cuts. Sessions that ran under lamina are left out: their requests
were cut already.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from lamina.caches.lifetimes import PausedRequest
from lamina.caches.prices import WorkingCost, price_working
from lamina.core.cut_target import PRICING
from lamina.core.values import Preference
from lamina.dialects.usage import count_noun
from lamina.models.facts import model_or_none, price_of
from lamina.replay.values import RecordedUsage, Reported, Trace

SETTINGS: tuple[Preference | None, ...] = (None, "memory", "balanced", "cost")
"""The rows, from what sends most to what sends least. None sends everything."""

DEFAULT = SETTINGS.index("balanced")

NEAR = 1.05
"""A setting that keeps more is recommended if it costs at most so many times what the default costs."""


class SavingRow(msgspec.Struct, frozen=True, kw_only=True):
    """All sessions with one setting. `working` is what is in sight of a conversation, in tokens."""

    flag: str
    working: int | None
    dollars: float
    saved: float
    cuts: int
    is_recommended: bool = False


class Saving(msgspec.Struct, frozen=True, kw_only=True):
    """The rows, of how many sessions they are, and the command with the recommended setting."""

    sessions: int
    rows: tuple[SavingRow, ...]
    command: str


def price_settings(trace: Trace, recorded: float | None) -> tuple[WorkingCost, ...]:
    """What a session would have cost with each of `SETTINGS`; () if its price is not known."""
    usages = [usage for _, usage in sorted(trace.used.items()) if usage.total]
    answers = _price_answers(trace.model, usages)
    if answers is None or not recorded:
        return ()
    requests = _list_requests(usages)
    simulated: list[WorkingCost] = []
    for prefer in SETTINGS:
        cost = price_working(requests, trace.model, dialect=trace.dialect, prefer=prefer)
        if cost is None:
            return ()
        simulated.append(cost)
    # What was paid is known. The simulation says only what share of it each setting would cost.
    everything = simulated[0].dollars + answers
    return tuple(
        WorkingCost(dollars=recorded * (cost.dollars + answers) / everything, cuts=cost.cuts)
        for cost in simulated
    )


def _price_answers(model: str, usages: Sequence[RecordedUsage]) -> float | None:
    """What the answers cost, in USD. None if there are none, or the model has no price."""
    facts = model_or_none(model)
    if not usages or facts is None or facts.prices.input is None:
        return None
    total = 0.0
    for usage in usages:
        price = price_of(facts, tokens=usage.total).output or 0.0
        total += usage.output * price / 1_000_000
    return total


def _list_requests(usages: Sequence[RecordedUsage]) -> list[PausedRequest]:
    """The requests of a session with their pauses. A shorter one holds nothing of the one before."""
    requests: list[PausedRequest] = []
    last: RecordedUsage | None = None
    for usage in usages:
        held = 0
        pause = None
        if last is not None and usage.total >= last.total:
            held = last.total
        if last is not None and last.at is not None and usage.at is not None:
            pause = max(usage.at - last.at, 0.0)
        requests.append(PausedRequest(tokens=usage.total, held=held, pause=pause))
        last = usage
    return requests


def compare_settings(reports: Iterable[Reported]) -> Saving | None:
    """All sessions with each setting; None if no session has a price."""
    priced = [report for report in reports if report.by_setting]
    if not priced:
        return None
    sums = [_add(costs) for costs in zip(*(report.by_setting for report in priced), strict=True)]
    enough = sums[DEFAULT].dollars * NEAR
    recommended = next(at for at, cost in enumerate(sums) if cost.dollars <= enough)
    rows: list[SavingRow] = []
    for at, (prefer, cost) in enumerate(zip(SETTINGS, sums, strict=True)):
        flag = "--window model"
        working = None
        if prefer is not None:
            flag = f"--prefer {prefer}"
            working = PRICING[prefer].working
        rows.append(
            SavingRow(
                flag=flag,
                working=working,
                dollars=cost.dollars,
                saved=1 - cost.dollars / sums[0].dollars,
                cuts=cost.cuts,
                is_recommended=at == recommended,
            )
        )
    return Saving(
        sessions=len(priced), rows=tuple(rows), command=_write_command(rows[recommended].flag, priced)
    )


def _add(costs: Sequence[WorkingCost]) -> WorkingCost:
    return WorkingCost(dollars=sum(cost.dollars for cost in costs), cuts=sum(cost.cuts for cost in costs))


def _write_command(flag: str, reports: Sequence[Reported]) -> str:
    """The command with a setting, for the client that most of these sessions are of."""
    codex = sum(report.source == "codex" for report in reports)
    client = "claude"
    if 2 * codex > len(reports):
        client = "codex"
    if flag == f"--prefer {SETTINGS[DEFAULT]}":  # it needs no flag
        return f"lamina run -- {client}"
    return f"lamina run {flag} -- {client}"


def saving_lines(saving: Saving) -> list[str]:
    """The rows as a table for a terminal, with the command to run."""
    lines = [
        f"what lamina run would have saved in {count_noun(saving.sessions, 'session')}",
        f"{'lamina run …':<20} {'in sight':>9} {'USD':>10} {'saved':>7} {'cuts':>7}",
    ]
    for row in saving.rows:
        working = "all"
        if row.working is not None:
            working = f"{row.working:,}"
        mark = ""
        if row.is_recommended:
            mark = "  <- recommended"
        lines.append(
            f"{row.flag:<20} {working:>9} {row.dollars:>10,.2f} {row.saved:>7.1%} {row.cuts:>7,}{mark}"
        )
    return [
        *lines,
        "",
        f"    {saving.command}",
        "",
        "USD: the first row is recorded; the others are simulated from sizes and pauses, as",
        "      shares of it.",
        "in sight: tokens of a conversation, beside system text and tools; the rest can be",
        "      recalled. --policy shows how many names stay in sight in your sessions.",
        "",
    ]
