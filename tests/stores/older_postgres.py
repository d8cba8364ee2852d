"""Tables in PostgreSQL as older versions made them, and a writer with the statements of version 2."""

from __future__ import annotations

from typing import Any

import psycopg

from lamina.stores.port import Where
from lamina.stores.postgres.schema import TABLES

VERSION_1 = (
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
)
STATEMENTS = {1: VERSION_1, 2: (*VERSION_1, "ALTER TABLE once DROP COLUMN state"), 3: TABLES}


def make_older_tables(link: psycopg.Connection[Any], schema: str, version: int) -> None:
    """Make the tables of a version in a new schema, which is the path of the connection from then on."""
    link.execute(f'CREATE SCHEMA "{schema}"')
    link.execute(f'SET search_path TO "{schema}"')
    for statement in STATEMENTS[version]:
        link.execute(statement)
    link.execute("CREATE TABLE lamina (version integer NOT NULL)")
    link.execute("INSERT INTO lamina VALUES (%s)", [version])


async def append_as_version_2(
    link: psycopg.AsyncConnection[Any], where: Where, body: bytes, *, state: bytes, key: bytes
) -> int:
    """Append one record with the statements of version 2, and return the number of records."""
    names = [where.workspace, where.conversation]
    async with link.transaction():
        make = "INSERT INTO conversation VALUES (%s, %s, 0, '') ON CONFLICT DO NOTHING"
        await link.execute(make, names)
        cursor = await link.execute(
            "SELECT count FROM conversation WHERE workspace = %s AND name = %s FOR UPDATE", names
        )
        row = await cursor.fetchone()
        assert row is not None
        count = int(row[0]) + 1
        insert = "INSERT INTO record (workspace, conversation, seq, body) VALUES (%s, %s, %s, %s)"
        await link.execute(insert, [*names, count - 1, body])
        once = "INSERT INTO once (workspace, conversation, key, digest, count) VALUES (%s, %s, %s, %s, %s)"
        await link.execute(once, [*names, key, b"d", count])
        update = "UPDATE conversation SET count = %s, state = %s WHERE workspace = %s AND name = %s"
        await link.execute(update, [count, state, *names])
    return count
