"""`lamina replay --saving`: what recorded sessions would have cost with each working window, in seconds.

Only sizes and times of the records are used, as for lifetimes. `lamina.caches.working_costs` simulates the
cuts. Sessions that ran under lamina are left out: their requests were cut already.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from lamina.caches.lifetimes import PausedRequest
from lamina.caches.working_costs import price_working
from lamina.core.cut_target import PRICING
from lamina.core.values import Preference
from lamina.dialects.usage import count_noun
from lamina.errors import BadInput
from lamina.models.facts import model_or_none, price_of
from lamina.replay.recorded_usage import ran_under_lamina, sum_recorded_usage
from lamina.replay.values import RecordedUsage, Trace

SETTINGS: tuple[Preference | None, ...] = (None, "memory", "balanced", "cost")
"""The rows, from what sends most to what sends least. None sends everything."""

NEAR = 1.05
"""A setting that keeps more is recommended if it costs at most so many times what the default costs."""

BASIS = "the first row is recorded; the others are simulated from sizes and pauses, as shares of it"
"""What the rows rest on. docs/replay.md says how far the simulation is off."""


class SavingRow(msgspec.Struct, frozen=True, kw_only=True):
    """All sessions with one setting. `working` is what is in sight of a conversation, in tokens."""

    flag: str
    working: int | None
    dollars: float
    saved: float
    cuts: int
    is_recommended: bool = False


class Saving(msgspec.Struct, frozen=True, kw_only=True):
    """The rows, and what they are of. `unpriced` sessions have no price, or no tokens that were reported."""

    sessions: int
    requests: int
    unpriced: int
    under_lamina: int
    rows: tuple[SavingRow, ...]


def compare_windows(traces: Iterable[Trace]) -> Saving:
    """What all sessions together would have cost with each setting."""
    dollars: defaultdict[Preference | None, float] = defaultdict(float)
    cuts: defaultdict[Preference | None, int] = defaultdict(int)
    sessions = 0
    requests = 0
    unpriced = 0
    under_lamina = 0
    for trace in traces:
        usages = [usage for _, usage in sorted(trace.used.items()) if usage.total]
        if ran_under_lamina(trace):
            under_lamina += 1
            continue
        answers = _price_answers(trace.model, usages)
        recorded = sum_recorded_usage(trace).dollars
        if answers is None or not recorded:
            unpriced += 1
            continue
        sessions += 1
        requests += len(usages)
        paused = _list_requests(usages)
        simulated: dict[Preference | None, float] = {}
        for prefer in SETTINGS:
            cost = price_working(paused, trace.model, dialect=trace.dialect, prefer=prefer)
            if cost is not None:
                simulated[prefer] = cost.dollars + answers
                cuts[prefer] += cost.cuts
        # What was paid is known. The simulation says only what share of it each setting would cost.
        for prefer, amount in simulated.items():
            dollars[prefer] += recorded * amount / simulated[None]
    rows: tuple[SavingRow, ...] = ()
    if sessions:
        rows = _make_rows(dollars, cuts)
    return Saving(
        sessions=sessions, requests=requests, unpriced=unpriced, under_lamina=under_lamina, rows=rows
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


def _make_rows(
    dollars: dict[Preference | None, float], cuts: dict[Preference | None, int]
) -> tuple[SavingRow, ...]:
    enough = dollars["balanced"] * NEAR
    recommended = next(prefer for prefer in SETTINGS if dollars[prefer] <= enough)
    rows: list[SavingRow] = []
    for prefer in SETTINGS:
        flag = "--window model"
        working = None
        if prefer is not None:
            flag = f"--prefer {prefer}"
            working = PRICING[prefer].working
        rows.append(
            SavingRow(
                flag=flag,
                working=working,
                dollars=dollars[prefer],
                saved=1 - dollars[prefer] / dollars[None],
                cuts=cuts[prefer],
                is_recommended=prefer == recommended,
            )
        )
    return tuple(rows)


def saving_text(saving: Saving) -> str:
    """The rows as a table for a terminal, with the command to run."""
    if not saving.rows:
        raise BadInput(
            "no session has tokens that were reported, of a model with a known price",
            place="--saving",
            hint="sessions of Claude Code and of Codex have them",
        )
    lines = [
        f"{count_noun(saving.sessions, 'session')}, {count_noun(saving.requests, 'request')}",
        f"{'lamina run …':<20} {'in sight':>9} {'USD':>10} {'saved':>7} {'cuts':>7}",
    ]
    flag = ""
    for row in saving.rows:
        working = "all"
        if row.working is not None:
            working = f"{row.working:,}"
        mark = ""
        if row.is_recommended:
            mark = "  <- recommended"
            flag = row.flag
        lines.append(
            f"{row.flag:<20} {working:>9} {row.dollars:>10,.2f} {row.saved:>7.1%} {row.cuts:>7,}{mark}"
        )
    lines += ["", f"lamina run {flag} -- claude", "", f"USD: {BASIS}."]
    lines.append(
        "in sight: tokens of a conversation, beside system text and tools; the rest can be recalled."
    )
    if saving.unpriced:
        lines.append(
            f"left out: {count_noun(saving.unpriced, 'session')} without reported tokens or a price."
        )
    if saving.under_lamina:
        lines.append(f"left out: {count_noun(saving.under_lamina, 'session')} that ran under lamina.")
    return "\n".join(lines)
