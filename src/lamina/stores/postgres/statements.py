"""Statements that ask for one row, one value, or whether something is so. This module knows no tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, LiteralString

from psycopg import AsyncConnection, sql

PostgresConnection = AsyncConnection[tuple[Any, ...]]
Row = tuple[Any, ...]
Statement = LiteralString | sql.SQL | sql.Composed
Arguments = Mapping[str, Any] | Sequence[Any]


async def select_row(
    connection: PostgresConnection, query: Statement, arguments: Arguments = ()
) -> Row | None:
    """The only row of a query; None if there is none."""
    cursor = await connection.cursor(binary=True).execute(query, arguments)
    return await cursor.fetchone()


async def select_value(connection: PostgresConnection, query: Statement, arguments: Arguments = ()) -> Any:
    """The first value of the only row; None if there is no row."""
    row = await select_row(connection, query, arguments)
    if row is None:
        return None
    return row[0]


async def select_flag(connection: PostgresConnection, query: Statement, arguments: Arguments = ()) -> bool:
    """Whether it is so; False if there is no row."""
    return bool(await select_value(connection, query, arguments))
