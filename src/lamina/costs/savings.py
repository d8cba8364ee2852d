"""What conversations would have cost with each working window of `lamina run`, and which one to take.

Only sizes and pauses are used, so a hundred conversations take seconds. The sizes are those with nothing cut,
so it does not matter whether a conversation ran under lamina. `lamina.caches.prices` simulates the cuts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from lamina.caches.lifetimes import PausedRequest
from lamina.caches.prices import WorkingCost, price_working
from lamina.conversations.costs import price_usage
from lamina.core.cut_target import PRICING
from lamina.core.values import Preference
from lamina.costs.table import RequestTable
from lamina.dialects.usage import Usage, count_noun

SETTINGS: tuple[Preference | None, ...] = (None, "memory", "balanced", "cost")
"""The rows, from what sends most to what sends least. None sends everything."""

DEFAULT = SETTINGS.index("balanced")

NEAR = 1.05
"""A setting that keeps more is recommended if it costs at most so many times what the default costs."""

_COLUMNS = "file, root, model, dialect, whole, pause, output, tier, at, dollars_uncut"
_MEASURED = "not recalled and whole is not null"


class SavingRow(msgspec.Struct, frozen=True, kw_only=True):
    """All conversations with one setting. `working` is what is in sight of one of them, in tokens."""

    flag: str
    prefer: Preference | None
    working: int | None
    dollars: float
    saved: float
    cuts: int
    is_recommended: bool = False


class Saving(msgspec.Struct, frozen=True, kw_only=True):
    """The rows, of how many conversations they are, and the command with the recommended setting."""

    conversations: int
    rows: tuple[SavingRow, ...]
    command: str


def compare_settings(table: RequestTable, where: str = "true") -> Saving | None:
    """All conversations with each setting; None if no conversation has a price."""
    priced = list(_price_conversations(table, where))
    if not priced:
        return None
    sums = [_add(costs) for costs in zip(*priced, strict=True)]
    if not sums[0].dollars:
        return None
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
                prefer=prefer,
                working=working,
                dollars=cost.dollars,
                saved=1 - cost.dollars / sums[0].dollars,
                cuts=cost.cuts,
                is_recommended=at == recommended,
            )
        )
    command = _write_command(rows[recommended].flag, table, where)
    return Saving(conversations=len(priced), rows=tuple(rows), command=command)


def _price_conversations(table: RequestTable, where: str) -> Iterator[Sequence[WorkingCost]]:
    """Each conversation that has a price, with each setting."""
    rows = table.select(_COLUMNS, f"{where} and {_MEASURED}", "order by file, root, rowid")
    for _, group in groupby(rows, lambda row: (row["file"], row["root"])):
        costs = _price_conversation(list(group))
        if costs:
            yield costs


def _price_conversation(rows: Sequence[dict[str, Any]]) -> Sequence[WorkingCost]:
    """One conversation with each of `SETTINGS`; () if its price is not known.

    What it would have cost with nothing cut is known. The simulation says only what share of its input each
    setting would cost.
    """
    prices = [row["dollars_uncut"] for row in rows]
    if None in prices:
        return ()
    answers = sum(_price_answer(row) for row in rows)
    requests = _list_requests(rows)
    model, dialect = rows[-1]["model"], rows[-1]["dialect"]
    simulated: list[WorkingCost] = []
    for prefer in SETTINGS:
        cost = price_working(requests, model, dialect=dialect, prefer=prefer)
        if cost is None:
            return ()
        simulated.append(cost)
    everything = simulated[0].dollars
    if not everything:
        return ()
    paid_input = sum(prices) - answers
    return [
        WorkingCost(dollars=answers + paid_input * cost.dollars / everything, cuts=cost.cuts)
        for cost in simulated
    ]


def _price_answer(row: dict[str, Any]) -> float:
    output = Usage(output=row["output"], tier=row["tier"])
    return price_usage(output, row["model"], dialect=row["dialect"], at=row["at"]) or 0.0


def _list_requests(rows: Sequence[dict[str, Any]]) -> list[PausedRequest]:
    """The requests of a conversation with their pauses. A shorter one holds nothing of the one before."""
    requests: list[PausedRequest] = []
    last = 0
    for row in rows:
        held = 0
        if requests and row["whole"] >= last:
            held = last
        requests.append(PausedRequest(tokens=row["whole"], held=held, pause=row["pause"]))
        last = row["whole"]
    return requests


def _add(costs: Sequence[WorkingCost]) -> WorkingCost:
    return WorkingCost(dollars=sum(cost.dollars for cost in costs), cuts=sum(cost.cuts for cost in costs))


def _write_command(flag: str, table: RequestTable, where: str) -> str:
    """The command with a setting, for the client that most of these requests are of."""
    [row] = table.select("total(client = 'codex') as codex, count(*) as count", where)
    client = "claude"
    if 2 * row["codex"] > row["count"]:
        client = "codex"
    if flag == f"--prefer {SETTINGS[DEFAULT]}":  # it needs no flag
        return f"lamina run -- {client}"
    return f"lamina run {flag} -- {client}"


def saving_lines(saving: Saving) -> list[str]:
    """The rows as a table for a terminal, with the command to run."""
    lines = [
        f"what lamina run would have saved in {count_noun(saving.conversations, 'conversation')}",
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
        "USD: the first row is what was paid, or would have been with nothing cut; the others",
        "      are simulated from sizes and pauses, as shares of it.",
        "in sight: tokens of a conversation, beside system text and tools; the rest can be",
        "      recalled.",
        "",
    ]
