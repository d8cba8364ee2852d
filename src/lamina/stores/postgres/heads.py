"""The row of one conversation in `conversation`, its head: locked, checked, or found to be gone.

Writers of one conversation lock its row first, so that they follow each other. Everything that is read is
checked against its checksums. If a head is gone, that is noticed as long as there are records of its
conversation. To notice more is up to the server, which has checksums for its pages.
"""

from __future__ import annotations

import hashlib
from typing import Any, LiteralString

from psycopg import pq

from lamina.errors import Damaged
from lamina.stores.checks import check_key, is_sealed_name
from lamina.stores.checksums import HeadRow, find_head_problem, intact_records
from lamina.stores.port import HEADER, RESERVED, RESERVED_END, Once, Record, StoredHead, Where
from lamina.stores.postgres.connections import PostgresConnection, select_row

Values = dict[str, Any]


def names_of(where: Where, once: Once | None = None) -> Values:
    """The names of a conversation as the statements use them."""
    key = None
    if once is not None:
        key = hashlib.sha256(once.key.encode()).digest()
    return {
        "workspace": str(where.workspace),
        "conversation": where.conversation,
        "key": key,
        "reserved": RESERVED,
        "reserved_end": RESERVED_END,
        "header": HEADER.conversation,
    }


async def lock_head(
    connection: PostgresConnection, where: Where, names: Values
) -> tuple[HeadRow | None, bool]:
    """Begin a transaction, and lock the conversation until its end; None if there is no such conversation.

    Also whether there are records that the row does not count: all of them, if there is no row. No plain
    conversation begins while the store is being sealed: each of the two waits for the other, and only then
    looks.
    """
    lock: LiteralString = ""
    if where == HEADER:
        lock = _LOCK_FOR_SEALING
    elif not is_sealed_name(where.workspace):
        lock = _LOCK_AGAINST_SEALING
    if connection.pgconn.transaction_status == pq.TransactionStatus.IDLE:  # a pooler's has begun already
        await connection.execute("BEGIN; " + lock)
    elif lock:
        await connection.execute(lock)
    row = await select_row(connection, _LOCK, names)
    assert row is not None  # noqa: S101 - it has one row, whatever there is
    sealed, has_uncounted, count, state, state_sum, checksum = row
    check_key(where.workspace, sealed=sealed)
    if count is None:
        return None, has_uncounted
    return HeadRow(count, state, state_sum, checksum, has_uncounted), has_uncounted


_LOCK: LiteralString = """
    WITH taken AS (
        SELECT count, state, state_sum, sum FROM conversation
        WHERE workspace = %(workspace)s AND name = %(conversation)s
        FOR UPDATE
    )
    SELECT EXISTS (SELECT FROM conversation WHERE workspace = %(reserved)s AND name = %(header)s),
        EXISTS (
            SELECT FROM record
            WHERE workspace = %(workspace)s AND conversation = %(conversation)s
            AND seq >= coalesce(taken.count, 0)
        ), taken.*
    FROM (SELECT 1) AS one LEFT JOIN taken ON true"""
_LOCK_FOR_SEALING: LiteralString = (
    "SELECT pg_advisory_xact_lock(hashtextextended('lamina seal ' || current_schema(), 0))"
)
_LOCK_AGAINST_SEALING: LiteralString = (
    "SELECT pg_advisory_xact_lock_shared(hashtextextended('lamina seal ' || current_schema(), 0))"
)
HAS_PLAIN: LiteralString = """
    SELECT EXISTS (
        SELECT FROM conversation WHERE workspace < %(reserved)s OR workspace >= %(reserved_end)s
    )"""
IS_SEALED = "SELECT EXISTS (SELECT FROM conversation WHERE workspace = %(reserved)s AND name = %(header)s)"


async def check_head_row(connection: PostgresConnection, where: Where, row: HeadRow) -> StoredHead:
    """The head in a row; raises Damaged if it is not what was written."""
    problem = find_head_problem(where, row)
    if problem:
        raise await damaged(connection, where, problem)
    return StoredHead(count=row.count, state=row.state)


async def damaged(connection: PostgresConnection, where: Where, problem: str) -> Damaged:
    """The error, with the places of the records that are intact."""
    intact = [record.seq for record in await select_intact_records(connection, where)]
    return Damaged(problem, conversation=where.conversation, whole=intact)


async def select_intact_records(connection: PostgresConnection, where: Where) -> list[Record]:
    """The records that are what was written."""
    cursor = connection.cursor(binary=True)
    await cursor.execute(_ALL_RECORDS, names_of(where))
    return intact_records(where, await cursor.fetchall())


_ALL_RECORDS = """
    SELECT seq, body, sum FROM record
    WHERE workspace = %(workspace)s AND conversation = %(conversation)s ORDER BY seq"""
