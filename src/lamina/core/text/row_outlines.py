"""The outline of a text in rows, JSON or CSV: what the columns hold, then as many rows as fit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lamina.core.text.clipping import (
    SMALLEST_PIECE,
    clip,
    clip_lines,
    count_units,
    left_out_marker,
    measure,
    take_lines,
)
from lamina.core.text.json_values import (
    abbreviate_value,
    describe_keys,
    describe_value,
    find_first_table,
    parse_json,
    quote_json,
)

_LONGEST_JSON = 2_000_000  # characters of JSON that are worth parsing for an outline
_SAMPLE_ROWS = 200  # rows that are read to say what a column holds
_LONGEST_CELL = 100  # characters of a cell that are read

# What a column may hold, tried in order.
_CELL_TYPES = (
    ("integer", re.compile(r"[+-]?\d{1,30}", re.ASCII)),  # -12
    ("number", re.compile(r"[+-]?\d{0,30}\.?\d{1,30}(?:[eE][+-]?\d{1,4})?", re.ASCII)),  # 1.5e-3
    ("date", re.compile(r"\d{4}-\d\d-\d\d(?:[ T][\d:.+Z-]{1,32})?", re.ASCII)),  # 2026-03-01T12:00:00Z
    ("boolean", re.compile(r"true|false", re.IGNORECASE | re.ASCII)),
)


def outline_json(text: str, *, limit: int) -> str:
    """Keys and types, then the first rows; a text that does not parse is shown by head and tail.

    The outline of an array of objects begins with `JSON array of 200 rows` and `"id": number; "name":
    string`.
    """
    if not limit < len(text) <= _LONGEST_JSON:
        return clip_lines(text, limit=limit)
    value = parse_json(text)
    if isinstance(value, dict) and value:
        return _outline_object(value, text, limit)
    if isinstance(value, list) and value:
        heading = [
            f"JSON array of {count_units(len(value), 'rows')}",
            clip(describe_keys(value), limit // 3),
        ]
        rows = map(abbreviate_value, value)
        return _fill_rows(heading, rows, text, limit=limit, total=len(value), unit="rows")
    return clip_lines(text, limit=limit)


def _outline_object(value: dict[str, Any], text: str, limit: int) -> str:
    """An object's keys; the rows of its first table too, where the keys leave room for them.

    An answer of an API is often one object with a list in it, and the list is what was asked for.
    """
    title = f"JSON object of {count_units(len(value), 'keys')}"
    widest_key = max(limit // 6, SMALLEST_PIECE)
    keys = [clip(f"  {quote_json(key)}: {describe_value(item)}", widest_key) for key, item in value.items()]
    table = find_first_table(value)
    length_of_keys = sum(len(key) for key in keys) + len(keys)
    if not table.rows or length_of_keys > limit // 2:
        return _fill_rows([title], keys, text, limit=limit, total=len(keys), unit="keys")
    heading = [title, *keys, clip(f"rows of {table.path}:", limit // 6)]
    rows = map(abbreviate_value, table.rows)
    return _fill_rows(heading, rows, text, limit=limit, total=len(table.rows), unit="rows")


def outline_csv(text: str, *, limit: int, delimiter: str = ",") -> str:
    """The number of rows and columns, what the columns hold, then the first rows as they are."""
    rows = list(_join_quoted(text.rstrip("\n").split("\n"), "\n"))
    if len(text) <= limit or len(rows) <= 1:
        return clip_lines(text, limit=limit)
    columns = _split_row(rows[0], delimiter)
    sample = [_split_row(row, delimiter) for row in rows[1 : _SAMPLE_ROWS + 1]]
    descriptions = [f"{name}: {_describe_column(sample, index)}" for index, name in enumerate(columns)]
    heading = [
        f"{count_units(len(rows) - 1, 'rows')}, {count_units(len(columns), 'columns')}",
        clip(f"first {count_units(len(sample), 'rows')} hold {'; '.join(descriptions)}", limit // 3),
        clip(rows[0], limit // 4),
    ]
    return _fill_rows(heading, rows[1:], text, limit=limit, total=len(rows) - 1, unit="rows")


def looks_tabular(lines: Sequence[str], delimiter: str) -> bool:
    """At least three rows of the same three or more columns; the last line may be cut off.

    A comma between quotes is no border of a column: `1,"a, b",2` has three of them.
    """
    widths = [len(list(_join_quoted(line.split(delimiter), delimiter))) for line in lines[:-1]]
    if len(widths) < 3 or widths[0] < 3:
        return False
    return len(set(widths)) == 1


def _split_row(row: str, delimiter: str) -> list[str]:
    """The cells of one row; a delimiter between quotes does not divide them."""
    return list(_join_quoted(row.rstrip("\r").split(delimiter), delimiter))


def _join_quoted(pieces: Iterable[str], glue: str) -> Iterator[str]:
    """Pieces of a split text, joined again where the split fell between quotes: `"a` and `b"` as `"a,b"`."""
    open_pieces: list[str] = []
    quotes = 0
    for piece in pieces:
        open_pieces.append(piece)
        quotes += piece.count('"')
        if quotes % 2 == 0:
            yield glue.join(open_pieces)
            open_pieces.clear()
    if open_pieces:
        yield glue.join(open_pieces)


def _describe_column(rows: Sequence[Sequence[str]], column: int) -> str:
    """What a column holds: the first type of `_CELL_TYPES` that all its cells have, else "text".

    Empty cells say nothing. A column of `12`, an empty cell and `7` holds integers.
    """
    cells = [row[column].strip('" ') for row in rows if column < len(row)]
    values = {cell[:_LONGEST_CELL] for cell in cells} - {""}
    if not values:
        return "nothing"
    for type_name, pattern in _CELL_TYPES:
        if all(pattern.fullmatch(value) for value in values):
            return type_name
    return "text"


def _fill_rows(
    heading: Sequence[str], rows: Iterable[str], text: str, *, limit: int, total: int, unit: str
) -> str:
    """The heading, as many rows as fit, and the number of those that do not."""
    shortened_marker = f"[... shortened from {count_units(measure(text), 'bytes')} ...]"
    longest_marker = max(len(left_out_marker(total, unit)), len(shortened_marker))
    room = limit - sum(len(line) + 1 for line in heading) - longest_marker
    if room < 0:
        return clip_lines(text, limit=limit)
    shown_rows = take_lines(rows, room, max(limit // 4, SMALLEST_PIECE))
    left_out = total - len(shown_rows)
    last_line = left_out_marker(left_out, unit) if left_out else shortened_marker
    return "\n".join([*heading, *shown_rows, last_line])
