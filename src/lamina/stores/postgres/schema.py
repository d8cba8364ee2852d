"""The tables, and how those of an older release become the ones of today.

Every row begins with its workspace and its conversation, and no row refers to one of another conversation,
so that the tables can be divided among machines. Names sort by code point, as Python sorts them. An
idempotency key stands there as its hash: three names of full length would not fit into an index.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from lamina.errors import StoreError
from lamina.stores.postgres.links import Link

MIGRATIONS: tuple[tuple[str, ...], ...] = (
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
    (  # a key keeps no state any more; a dropped column alone would leave the bytes in every row
        "UPDATE once SET state = NULL",
        "ALTER TABLE once DROP COLUMN state",
    ),
)
"""What made each version from the one before it. Never changed once released, only added to."""


async def bring_up(link: Link, schema: str, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Makes the tables of today, in one transaction and one process at a time; refuses newer ones."""
    if await _version(link) == len(migrations):
        return
    async with link.transaction():
        await link.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"lamina {schema}"])
        await _make_schema(link, schema)
        version = await _version(link)
        _check(version, len(migrations))
        for statement in (each for step in migrations[version:] for each in step):
            await link.execute(sql.SQL(statement))
        await link.execute("UPDATE lamina SET version = %s", [len(migrations)])


async def _make_schema(link: Link, schema: str) -> None:
    found = await link.execute("SELECT FROM pg_namespace WHERE nspname = %s", [schema])
    if found.rowcount == 0:  # who may only use a schema that an administrator made is not asked to make one
        await link.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    if not await _there(link):
        await link.execute("CREATE TABLE lamina (version integer NOT NULL)")
        await link.execute("INSERT INTO lamina VALUES (0)")


async def _version(link: Link) -> int:
    """0: there are no tables."""
    if not await _there(link):
        return 0
    row = await (await link.execute("SELECT version FROM lamina")).fetchone()
    return int(row[0]) if row else 0


async def _there(link: Link) -> bool:
    row = await (await link.execute("SELECT to_regclass('lamina') IS NOT NULL")).fetchone()
    return bool(row and row[0])


def _check(version: int, newest: int) -> None:
    if version > newest:
        hint = "a newer release wrote them: update lamina"
        raise StoreError(f"the tables have version {version}, and this release reads {newest}", hint=hint)
