"""An account as text for a terminal, and as JSON. `account_sums` has the sums that both show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from lamina.replay.account_sums import (
    PaidTotal,
    Total,
    group_by_setting,
    list_losses,
    sum_losses,
    sum_outcomes,
    sum_paid,
)
from lamina.replay.values import ReplayAccount

MOST_LISTED = 8
"""Reasons, and damaged lines, that the terminal shows; the JSON file has all."""


class Column(NamedTuple):
    """One figure of a row: its name there and in the JSON file, its head, meaning, and how it is written."""

    name: str
    head: str
    meaning: str
    write: Callable[[Any], str]


def format_whole(number: float | None) -> str:
    return "-" if number is None else f"{number:,.0f}"


def format_percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def format_money(dollars: float | None) -> str:
    """Two digits after the point; four for less than a dollar."""
    if dollars is None:
        return "-"
    if dollars >= 1:
        return f"{dollars:,.2f}"
    return f"{dollars:.4f}"


def format_milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.1f}"


def format_model(name: str) -> str:
    return name or "(not named)"


POLICY_COLUMNS = (
    Column("policy", "policy", "how the requests were made to fit", str),
    Column(
        "equivalents", "cost", "input, in tokens at full price, as the cache's rules price it", format_whole
    ),
    Column("price", "USD", "input and output, where the models have prices", format_money),
    Column("cached", "cached", "of the tokens sent, those that the cache gave", format_percent),
    Column("recall", "recall", "of what the answers needed, what stood in the request", format_percent),
    Column(
        "within_reach",
        "reach",
        "of what the answers needed, what stood there or could be recalled",
        format_percent,
    ),
    Column("recall_equivalents", "for recalls", "what those recalls would add to the cost", format_whole),
    Column("cuts", "cuts", "times that something was lowered or dropped", format_whole),
    Column("broken", "broken", "requests that did not continue the one before byte for byte", format_whole),
    Column("over", "over", "requests over the window", format_whole),
    Column("invalid", "invalid", "requests that the provider would refuse", format_whole),
    Column("failed", "failed", "calls that the policy gave up", format_whole),
    Column("pace", "ms a call", "time that the policy took for each call", format_milliseconds),
)

_ALWAYS_SHOWN = frozenset(("policy", "equivalents", "over", "invalid", "broken"))

PAID_COLUMNS = (
    Column("model", "model", "as the records name it", format_model),
    Column("sessions", "sessions", "", format_whole),
    Column("calls", "calls", "", format_whole),
    Column("sent", "tokens sent", "", format_whole),
    Column("cached", "cached", "of the tokens sent, those that the cache gave", format_percent),
    Column("output", "output", "tokens that the model wrote", format_whole),
    Column("dollars", "USD", "at the prices of this day, where they are known", format_money),
    Column(
        "losses",
        "caches lost",
        "calls that read less than half of what the call before had sent",
        format_whole,
    ),
    Column("paid_again", "paid again", "tokens that those calls had to pay again", format_whole),
)


def account_json(account: ReplayAccount) -> dict[str, Any]:
    """Everything as plain JSON: the sums that are shown, and what they are sums of."""
    totals = [
        _row_as_json(POLICY_COLUMNS, total) | {"refused": total.refused}
        for total in sum_outcomes(account.outcomes)
    ]
    losses = [
        {"why": why, "times": times, "tokens": tokens}
        for why, times, tokens in sum_losses(list_losses(account.reported))
    ]
    return {
        "as_of": account.as_of,
        "totals": totals,
        "paid": [_row_as_json(PAID_COLUMNS, total) for total in sum_paid(account.reported)],
        "losses": losses,
        "reported": msgspec.to_builtins(account.reported),
        "outcomes": msgspec.to_builtins(account.outcomes),
        "damaged": msgspec.to_builtins(account.damaged),
    }


def _row_as_json(columns: Iterable[Column], row: Total | PaidTotal) -> dict[str, Any]:
    """A sum with every figure that a table shows, under the name it has there."""
    figures = {column.name: getattr(row, column.name) for column in columns}
    return {**msgspec.to_builtins(row), **figures}


def account_text(account: ReplayAccount, *, recorded: bool = True) -> str:
    """The account for a terminal; without what was `recorded`, only what each policy would cost."""
    lines: list[str] = []
    if recorded:
        lines += _paid_lines(account)
    lines += _policy_lines(account)
    lines += _damaged_lines(account)
    return "\n".join(lines).rstrip("\n")


def _paid_lines(account: ReplayAccount) -> list[str]:
    rows = sum_paid(account.reported)
    if not rows:
        return ["the records hold no usage: what these sessions took is not known", ""]
    lines = ["what these sessions took, as their records say", *align_columns(PAID_COLUMNS, rows), ""]
    sums = sum_losses(list_losses(account.reported))
    if not sums:
        return lines
    lines.append("where caches were lost")
    for why, times, tokens in sums[:MOST_LISTED]:
        lines.append(f"{times:>6,} times {tokens:>12,} tokens  {printable(why)}")
    lines += _lines_about_more(len(sums) - MOST_LISTED, "reasons")
    lines.append("")
    return lines


def _policy_lines(account: ReplayAccount) -> list[str]:
    lines: list[str] = []
    for (rules, window), rows in group_by_setting(sum_outcomes(account.outcomes)).items():
        noun = "session" if rows[0].sessions == 1 else "sessions"
        counts = f"{rows[0].sessions:,} {noun}, {rows[0].calls:,} calls"
        lines.append(f"window {window:,}, cache rules {rules}: {counts}")
        lines += align_columns(useful_columns(rows), rows)
        lines.append("")
    return lines


def useful_columns(rows: Sequence[Total]) -> list[Column]:
    """The columns that say anything: no dollars without prices, no recall where nothing was needed."""
    columns = []
    for column in POLICY_COLUMNS:
        has_figures = any(getattr(row, column.name) not in (None, 0) for row in rows)
        if has_figures or column.name in _ALWAYS_SHOWN:
            columns.append(column)
    return columns


def _damaged_lines(account: ReplayAccount) -> list[str]:
    if not account.damaged:
        return []
    lines = [f"{len(account.damaged):,} damaged, and skipped"]
    lines += [
        f"  {printable(damage.place)}: {printable(damage.reason)}" for damage in account.damaged[:MOST_LISTED]
    ]
    lines += _lines_about_more(len(account.damaged) - MOST_LISTED, "places")
    lines.append("")
    return lines


def _lines_about_more(count: int, noun: str) -> list[str]:
    if count <= 0:
        return []
    return [f"  and {count:,} more {noun}; the JSON file has all"]


def align_columns(columns: Sequence[Column], rows: Sequence[Any]) -> list[str]:
    """Rows in columns: the first to the left, figures to the right."""
    table = [[column.head for column in columns]]
    table += [_written_cells(columns, row) for row in rows]
    widths = [max(len(cells[at]) for cells in table) for at in range(len(columns))]
    return [_align_cells(cells, widths) for cells in table]


def _written_cells(columns: Sequence[Column], row: Any) -> list[str]:
    return [printable(column.write(getattr(row, column.name))) for column in columns]


def _align_cells(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cells[0].ljust(widths[0])]
    for cell, width in zip(cells[1:], widths[1:], strict=True):
        padded.append(cell.rjust(width))
    return "  ".join(padded)


def printable(text: str) -> str:
    """On one line, without what would move a terminal's cursor: names come from files."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)
