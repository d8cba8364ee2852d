"""The rows of `record`: reading them, and finding those that are intact. Nothing here writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamina.stores.checksums import Checksums, is_intact
from lamina.stores.port import Where
from lamina.stores.sqlite.connections import SqliteConnection

_CHUNK = 500
"""Places that one statement reads; older builds of SQLite accept 999 values."""


def select_records(
    connection: SqliteConnection,
    conversation_id: int,
    places: Sequence[int],
    *,
    and_after: bool = False,
) -> list[Any]:
    """The rows at these places, in order.

    `and_after`: also a row after the last place of a range, where there should be none.
    """
    if isinstance(places, range):
        return _select_range(connection, conversation_id, places, and_after=and_after)
    rows: list[Any] = []
    for start in range(0, len(places), _CHUNK):
        chunk = places[start : start + _CHUNK]
        marks = ", ".join("?" * len(chunk))
        sql = f"SELECT seq, body, sum FROM record WHERE conversation = ? AND seq IN ({marks}) ORDER BY seq"  # noqa: S608
        rows += connection.run(sql, (conversation_id, *chunk))
    return rows


def _select_range(
    connection: SqliteConnection, conversation_id: int, places: range, *, and_after: bool
) -> list[Any]:
    if not places:
        return []
    if and_after:
        sql = "SELECT seq, body, sum FROM record WHERE conversation = ? AND seq >= ? ORDER BY seq LIMIT ?"
        return connection.run(sql, (conversation_id, places[0], len(places) + 1))
    sql = "SELECT seq, body, sum FROM record WHERE conversation = ? AND seq BETWEEN ? AND ? ORDER BY seq"
    return connection.run(sql, (conversation_id, places[0], places[-1]))


def select_intact_records(
    connection: SqliteConnection, where: Where, conversation_id: Any
) -> list[tuple[int, bytes]]:
    """Place and body of each record that is what was written."""
    sql = "SELECT seq, body, sum FROM record WHERE conversation = ? ORDER BY seq"
    rows = connection.run(sql, (conversation_id,))
    checksums = Checksums(where)
    return [(seq, body) for seq, body, checksum in rows if is_intact(checksums, (seq, body, checksum))]
