"""The tables, and how those of an older release become the ones of today.

Every row begins with its workspace and its conversation, and no row refers to one of another conversation,
so that the tables can be divided among machines. Names sort by code point, as Python sorts them. An
idempotency key stands there as its hash: three names of full length would not fit into an index.

Each row has a checksum, as `stores.checks` makes it. Rows of an older release get theirs when the tables are
brought up, which is before the first write, in one transaction; until then they are read as they are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, LiteralString

from psycopg import sql

from lamina.errors import StoreError
from lamina.stores.checksums import Sums
from lamina.stores.port import Where
from lamina.stores.postgres.links import Link

WITH_SUMS = 3
"""The version that brought checksums."""


_BATCH = 1000

Row = tuple[Any, ...]
Step = LiteralString | Callable[[Link], Awaitable[None]]


async def _batches(
    link: Link, query: LiteralString, last: list[str | int | bytes]
) -> AsyncIterator[list[Row]]:
    """Rows in the order of their key, behind `last`, so many at a time that they fit into memory.

    The key is what a row begins with, and stands in the query behind the last one of the batch before.
    """
    while rows := await (await link.execute(query, [*last, _BATCH])).fetchall():
        yield rows
        last = list(rows[-1][: len(last)])


async def _sum_records(link: Link) -> None:
    find: LiteralString = (
        "SELECT workspace, conversation, seq, body FROM record "
        "WHERE (workspace, conversation, seq) > (%s, %s, %s) ORDER BY 1, 2, 3 LIMIT %s"
    )
    write = (
        "UPDATE record SET sum = given.sum FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::bigint[]) "
        "AS given (workspace, name, seq, sum) WHERE record.workspace = given.workspace "
        "AND record.conversation = given.name AND record.seq = given.seq"
    )
    async for rows in _batches(link, find, ["", "", -1]):
        sums = [Sums(Where(space, name)).record(seq, body) for space, name, seq, body in rows]
        spaces, names, seqs, _ = (list(column) for column in zip(*rows, strict=True))
        await link.execute(write, [spaces, names, seqs, sums])


async def _sum_keys(link: Link) -> None:
    find: LiteralString = (
        "SELECT workspace, conversation, key, digest, count FROM once "
        "WHERE (workspace, conversation, key) > (%s, %s, %s) ORDER BY 1, 2, 3 LIMIT %s"
    )
    write = "UPDATE once SET sum = %s WHERE workspace = %s AND conversation = %s AND key = %s"
    async for rows in _batches(link, find, ["", "", b""]):
        for space, name, key, digest, count in rows:
            await link.execute(write, [Sums(Where(space, name)).once(key, digest, count), space, name, key])


async def _sum_heads(link: Link) -> None:
    find: LiteralString = (
        "SELECT workspace, name, count, state FROM conversation "
        "WHERE (workspace, name) > (%s, %s) ORDER BY 1, 2 LIMIT %s"
    )
    write = "UPDATE conversation SET state_sum = %s, sum = %s WHERE workspace = %s AND name = %s"
    async for rows in _batches(link, find, ["", ""]):
        for space, name, count, state in rows:
            sums = Sums(Where(space, name))
            state_sum = sums.state(state)
            await link.execute(write, [state_sum, sums.head(count, state_sum), space, name])


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
    (  # a key keeps no state any more; a dropped column alone would leave the bytes in every row
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
"""What made each version from the one before it. Never changed once released, only added to."""


NEWEST = len(MIGRATIONS)


async def begin(link: Link, schema: str) -> int:
    """The version of the tables, which are made if there are none; older ones stay as they are."""
    version = await version_of(link)
    if not version:
        await bring_up(link, schema)
        return NEWEST
    _check(version, NEWEST)
    return version


async def bring_up(link: Link, schema: str, migrations: Sequence[Sequence[Step]] = MIGRATIONS) -> None:
    """Makes the tables of today, in one transaction and one process at a time; refuses newer ones."""
    if await version_of(link) == len(migrations):
        return
    async with link.transaction():
        await link.execute("SET LOCAL statement_timeout = 0")  # rows of an older release may be many
        await link.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"lamina {schema}"])
        await _make_schema(link, schema)
        version = await version_of(link)
        _check(version, len(migrations))
        for step in (each for steps in migrations[version:] for each in steps):
            await (step(link) if callable(step) else link.execute(sql.SQL(step)))
        await link.execute("UPDATE lamina SET version = %s", [len(migrations)])


async def _make_schema(link: Link, schema: str) -> None:
    found = await link.execute("SELECT FROM pg_namespace WHERE nspname = %s", [schema])
    if found.rowcount == 0:  # who may only use a schema that an administrator made is not asked to make one
        await link.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    if not await _there(link):
        await link.execute("CREATE TABLE lamina (version integer NOT NULL)")
        await link.execute("INSERT INTO lamina VALUES (0)")


async def version_of(link: Link) -> int:
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
