"""The tables and their version.

Every row begins with its workspace and its conversation, and no row refers to a row of another conversation,
so that the tables can be divided among machines. Names sort by code point, as Python sorts them. An
idempotency key is stored as its hash: three names of full length would not fit into an index. Each row has a
checksum (`stores.checksums`).
"""

from __future__ import annotations

from typing import LiteralString

from psycopg import sql

from lamina.errors import StoreError, advise_on_version
from lamina.stores.postgres.statements import PostgresConnection, select_flag, select_value

VERSION = 3

TABLES: tuple[LiteralString, ...] = (
    """CREATE TABLE conversation (
        workspace text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        count bigint NOT NULL,
        state bytea NOT NULL,
        state_sum bigint NOT NULL,
        sum bigint NOT NULL,
        PRIMARY KEY (workspace, name)
    )""",
    """CREATE TABLE record (
        workspace text COLLATE "C" NOT NULL,
        conversation text COLLATE "C" NOT NULL,
        seq bigint NOT NULL,
        body bytea NOT NULL,
        sum bigint NOT NULL,
        PRIMARY KEY (workspace, conversation, seq)
    )""",
    """CREATE TABLE once (
        workspace text COLLATE "C" NOT NULL,
        conversation text COLLATE "C" NOT NULL,
        key bytea NOT NULL,
        digest bytea NOT NULL,
        count bigint NOT NULL,
        sum bigint NOT NULL,
        PRIMARY KEY (workspace, conversation, key)
    )""",
)
"""`lamina`, with one row, says which version they have."""


async def make_tables(connection: PostgresConnection, schema: str) -> None:
    """Make the tables if there are none. Raises StoreError for tables of another version."""
    if await _has_tables(connection):
        return
    async with connection.transaction():
        await connection.execute(_LOCK_MAKING)
        # This looks into pg_namespace first. Else the server would not notice here that another process has
        # made the schema while this one waited for the lock.
        await _make_schema(connection, schema)
        if await _has_tables(connection):
            return
        for statement in TABLES:
            await connection.execute(statement)
        await connection.execute("CREATE TABLE lamina (version integer NOT NULL)")
        await connection.execute("INSERT INTO lamina VALUES (%s)", [VERSION])


_LOCK_MAKING = (
    "SELECT pg_advisory_xact_lock(hashtextextended('lamina ' || current_setting('search_path'), 0))"
)


async def _has_tables(connection: PostgresConnection) -> bool:
    """Whether there are tables; raises StoreError if another release made them."""
    if not await select_flag(connection, "SELECT to_regclass('lamina') IS NOT NULL"):
        return False
    version = await select_value(connection, "SELECT version FROM lamina")
    if version != VERSION:
        raise StoreError(f"the tables have version {version}", hint=advise_on_version(version, VERSION))
    return True


async def _make_schema(connection: PostgresConnection, schema: str) -> None:
    cursor = await connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", [schema])
    if cursor.rowcount == 0:  # a user who may not make schemas can use one that an administrator made
        await connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
