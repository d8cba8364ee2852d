"""Writes the figures of a table: how each column looks, and rows in columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lamina.core.text.characters import make_printable


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


def _format(number: float | None, pattern: str, *, scale: int = 1) -> str:
    """A number in this pattern, times the scale; "-" if it is not known."""
    if number is None:
        return "-"
    return pattern.format(scale * number)


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
