"""The tables, and how those of an older release are brought up to date.

Every row begins with its workspace and its conversation, and no row refers to a row of another conversation,
so that the tables can be divided among machines. Names sort by code point, as Python sorts them. An
idempotency key is stored as its hash: three names of full length would not fit into an index.

Each row has a checksum (`stores.checksums`). Rows of an older release get theirs before the first write, in
one transaction; until then they are read as they are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, LiteralString

from psycopg import sql

from lamina.errors import StoreError
from lamina.stores.checksums import Checksums
from lamina.stores.port import Where
from lamina.stores.postgres.connections import PostgresConnection

WITH_SUMS = 3
"""The version that brought checksums."""

_BATCH = 1000

Row = tuple[Any, ...]
Step = LiteralString | Callable[[PostgresConnection], Awaitable[None]]


async def _batches(
    connection: PostgresConnection, query: LiteralString, last_key: list[str | int | bytes]
) -> AsyncIterator[list[Row]]:
    """Rows in the order of their key, after `last_key`, in batches that fit into memory.

    A row begins with its key. The query gets the key of the last row of the batch before.
    """
    while True:
        cursor = await connection.execute(query, [*last_key, _BATCH])
        rows = await cursor.fetchall()
        if not rows:
            return
        yield rows
        last_key = list(rows[-1][: len(last_key)])


async def _sum_records(connection: PostgresConnection) -> None:
    """Write the checksum of every record, in batches, for tables of a release that had none."""
    select: LiteralString = (
        "SELECT workspace, conversation, seq, body FROM record "
        "WHERE (workspace, conversation, seq) > (%s, %s, %s) ORDER BY 1, 2, 3 LIMIT %s"
    )
    update = (
        "UPDATE record SET sum = given.sum FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::bigint[]) "
        "AS given (workspace, name, seq, sum) WHERE record.workspace = given.workspace "
        "AND record.conversation = given.name AND record.seq = given.seq"
    )
    async for rows in _batches(connection, select, ["", "", -1]):
        sums = [Checksums(Where(workspace, name)).record(seq, body) for workspace, name, seq, body in rows]
        workspaces = [row[0] for row in rows]
        names = [row[1] for row in rows]
        places = [row[2] for row in rows]
        await connection.execute(update, [workspaces, names, places, sums])


async def _sum_keys(connection: PostgresConnection) -> None:
    """Write the checksum of every key that an append was made once with."""
    select: LiteralString = (
        "SELECT workspace, conversation, key, digest, count FROM once "
        "WHERE (workspace, conversation, key) > (%s, %s, %s) ORDER BY 1, 2, 3 LIMIT %s"
    )
    update = "UPDATE once SET sum = %s WHERE workspace = %s AND conversation = %s AND key = %s"
    async for rows in _batches(connection, select, ["", "", b""]):
        for workspace, name, key, digest, count in rows:
            checksum = Checksums(Where(workspace, name)).once(key, digest, count)
            await connection.execute(update, [checksum, workspace, name, key])


async def _sum_heads(connection: PostgresConnection) -> None:
    """Write the checksum of every state and head. Records and keys have theirs by then."""
    select: LiteralString = (
        "SELECT workspace, name, count, state FROM conversation "
        "WHERE (workspace, name) > (%s, %s) ORDER BY 1, 2 LIMIT %s"
    )
    update = "UPDATE conversation SET state_sum = %s, sum = %s WHERE workspace = %s AND name = %s"
    async for rows in _batches(connection, select, ["", ""]):
        for workspace, name, count, state in rows:
            checksums = Checksums(Where(workspace, name))
            state_sum = checksums.state(state)
            checksum = checksums.head(count, state_sum)
            await connection.execute(update, [state_sum, checksum, workspace, name])


MIGRATIONS: tuple[tuple[Step, ...], ...] = (
    (
        """CREATE TABLE conversation (
            workspace text COLLATE "C" NOT NULL,
            name text COLLATE "C" NOT NULL,
            count bigint NOT NULL,
            state bytea NOT NULL,
            PRIMARY KEY (workspace, name)
        )""",
        """CREATE TABLE record (
            workspace text COLLATE "C" NOT NULL,
            conversation text COLLATE "C" NOT NULL,
            seq bigint NOT NULL,
            body bytea NOT NULL,
            PRIMARY KEY (workspace, conversation, seq)
        )""",
        """CREATE TABLE once (
            workspace text COLLATE "C" NOT NULL,
            conversation text COLLATE "C" NOT NULL,
            key bytea NOT NULL,
            digest bytea NOT NULL,
            count bigint NOT NULL,
            state bytea,
            PRIMARY KEY (workspace, conversation, key)
        )""",
    ),
    (  # a key has no state any more; a dropped column alone would leave the bytes in every row
        "UPDATE once SET state = NULL",
        "ALTER TABLE once DROP COLUMN state",
    ),
    (
        "ALTER TABLE record ADD COLUMN sum bigint",
        "ALTER TABLE once ADD COLUMN sum bigint",
        "ALTER TABLE conversation ADD COLUMN state_sum bigint, ADD COLUMN sum bigint",
        _sum_records,
        _sum_keys,
        _sum_heads,
        "ALTER TABLE record ALTER COLUMN sum SET NOT NULL",
        "ALTER TABLE once ALTER COLUMN sum SET NOT NULL",
        "ALTER TABLE conversation ALTER COLUMN state_sum SET NOT NULL, ALTER COLUMN sum SET NOT NULL",
    ),
)
"""The steps to each version from the one before it. Released steps never change; new ones are added."""

NEWEST = len(MIGRATIONS)


async def begin(connection: PostgresConnection, schema: str) -> int:
    """The version of the tables. They are made if there are none; older ones stay as they are."""
    version = await version_of(connection)
    if not version:
        await bring_up(connection, schema)
        return NEWEST
    _check_version(version, NEWEST)
    return version


async def bring_up(
    connection: PostgresConnection, schema: str, migrations: Sequence[Sequence[Step]] = MIGRATIONS
) -> None:
    """Bring the tables up to date, in one transaction and one process at a time. Raises for newer ones."""
    if await version_of(connection) == len(migrations):
        return
    async with connection.transaction():
        await connection.execute("SET LOCAL statement_timeout = 0")  # an older release may have many rows
        await connection.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"lamina {schema}"]
        )
        await _make_schema(connection, schema)
        version = await version_of(connection)
        _check_version(version, len(migrations))
        for steps in migrations[version:]:
            for step in steps:
                await _take_step(connection, step)
        await connection.execute("UPDATE lamina SET version = %s", [len(migrations)])


async def _take_step(connection: PostgresConnection, step: Step) -> None:
    """Take one step of an upgrade: a statement, or a function that changes rows."""
    if callable(step):
        await step(connection)
    else:
        await connection.execute(sql.SQL(step))


async def _make_schema(connection: PostgresConnection, schema: str) -> None:
    """Make the schema and the table of its version, if they are missing. Version 0 has no other tables."""
    cursor = await connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", [schema])
    if cursor.rowcount == 0:  # a user who may not make schemas can use one that an administrator made
        await connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    if not await _has_version_table(connection):
        await connection.execute("CREATE TABLE lamina (version integer NOT NULL)")
        await connection.execute("INSERT INTO lamina VALUES (0)")


async def version_of(connection: PostgresConnection) -> int:
    """The version of the tables; 0 if there are none."""
    if not await _has_version_table(connection):
        return 0
    cursor = await connection.execute("SELECT version FROM lamina")
    row = await cursor.fetchone()
    if row is None:
        return 0
    return int(row[0])


async def _has_version_table(connection: PostgresConnection) -> bool:
    """Whether the table with the version is there: only lamina makes it."""
    cursor = await connection.execute("SELECT to_regclass('lamina') IS NOT NULL")
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


def _check_version(version: int, newest: int) -> None:
    """Raise StoreError for tables of a newer release, which this one could damage."""
    if version > newest:
        hint = "a newer release wrote them: update lamina"
        raise StoreError(f"the tables have version {version}, and this release reads {newest}", hint=hint)
