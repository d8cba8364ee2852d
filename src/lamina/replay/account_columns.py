"""Writes the figures of an account: what each column means, how its figures look, and rows in columns.

The terminal and the JSON file show the same figures under the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from lamina.core.text.characters import make_printable
from lamina.replay.account_sums import Total


class Column(NamedTuple):
    """One figure of a row: its name there and in the JSON file, its head, meaning, and how it is written."""

    name: str
    head: str
    meaning: str
    write: Callable[[Any], str]


def format_whole(number: float | None) -> str:
    """`1234.5` is "1,234"; "-" if it is not known."""
    return _format(number, "{:,.0f}")


def format_percent(share: float | None) -> str:
    """`0.251` is "25.1 %"."""
    return _format(share, "{:.1f} %", scale=100)


def format_money(dollars: float | None) -> str:
    """Two digits after the point; four for less than a dollar."""
    pattern = "{:.4f}"
    if abs(dollars or 0) >= 1:
        pattern = "{:,.2f}"
    return _format(dollars, pattern)


def format_date(moment: float | None) -> str:
    """The day, in UTC."""
    if moment is None:
        return "-"
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d}"


def _format(number: float | None, pattern: str, *, scale: int = 1) -> str:
    """A number in this pattern, times the scale; "-" if it is not known."""
    if number is None:
        return "-"
    return pattern.format(scale * number)


POLICY_COLUMNS = (
    Column("policy", "policy", "how the requests were made to fit", str),
    Column("price", "USD", "input, output and recalls, for sessions whose model has prices", format_money),
    Column(
        "price_of_recalls", "of it recalls", "what it takes to recall all that answers needed", format_money
    ),
    Column(
        "equivalents",
        "input",
        "input in tokens at full price, without recalls: a cached token counts for less",
        format_whole,
    ),
    Column("cached", "cached", "of the tokens sent, those that the cache gave", format_percent),
    Column(
        "recall",
        "in request",
        "of the names and numbers that answers took from before, those that the request had",
        format_percent,
    ),
    Column("within_reach", "in reach", "the same, with what could be recalled", format_percent),
    Column("cuts", "cuts", "times that something was left out; in the records, compactions", format_whole),
    Column(
        "refused", "refused", "calls without an answer: over the window, invalid, or given up", format_whole
    ),
)

_ALWAYS_SHOWN = frozenset(("policy", "equivalents", "refused"))

SAVED = Column("saved", "lamina saves", "of the cost, where it can be compared", format_percent)

GROUP_COLUMNS = (
    Column("name", "", "", str),
    Column("sessions", "sessions", "", format_whole),
    Column("calls", "calls", "", format_whole),
    Column("sent", "tokens sent", "", format_whole),
    Column("cached", "cached", "of the tokens sent, those that the cache gave", format_percent),
    Column("output", "output", "tokens that the model wrote", format_whole),
    Column("dollars", "USD", "at list prices, where they are known", format_money),
    Column("losses", "misses", "calls that read less than 3/4 of what they could", format_whole),
    Column("lost_dollars", "USD of misses", "what those calls cost beyond reading the cache", format_money),
    SAVED,
)


def useful_columns(rows: Sequence[Total]) -> list[Column]:
    """The columns that say anything: no dollars without prices, no recall where nothing was needed.

    A figure that is 0 or unknown in every row has no column, unless it is one that readers look for.
    """
    columns = []
    for column in POLICY_COLUMNS:
        has_figures = any(getattr(row, column.name) not in (None, 0) for row in rows)
        if has_figures or column.name in _ALWAYS_SHOWN:
            columns.append(column)
    return columns


def align_columns(columns: Sequence[Column], rows: Sequence[Any]) -> list[str]:
    """Rows in columns: the first to the left, figures to the right.

    Widths are those of the longest cell, the head included.
    """
    table = [[column.head for column in columns]]
    for row in rows:
        cells = [make_printable(column.write(getattr(row, column.name))) for column in columns]
        table.append(cells)
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    lines = []
    for cells in table:
        figures = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        lines.append("  ".join([cells[0].ljust(widths[0]), *figures]))
    return lines
