"""The tables, and how those of an older release become the ones of today.

Every row begins with its workspace and its conversation, and no row refers to one of another conversation,
so that the tables can be divided among machines. Names sort by code point, as Python sorts them. An
idempotency key stands there as its hash: three names of full length would not fit into an index.

Each row has a checksum, as `stores.checks` makes it. Those of tables of an older release are computed by the
server when the tables are brought up, which is before the first write; until then they are read as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from lamina.errors import StoreError
from lamina.stores.postgres.links import Link

WITH_SUMS = 3
"""The version that brought checksums."""


def _sum_in_sql(kind: str, name: str, *fields: str) -> str:
    """What `checks.Sums` computes, in the words of the server."""
    names = [_framed_in_sql(f"convert_to({column}, 'UTF8')") for column in ("workspace", name)]
    data = " || ".join([f"'lamina/{kind}/1'::bytea", *names, *fields])
    return f"substring(sha256({data}) from 1 for 8)"


def _framed_in_sql(field: str) -> str:
    return f"int8send(octet_length({field})::bigint) || {field}"


_RECORD_SUM = _sum_in_sql("record", "conversation", "int8send(seq)", "body")
_STATE_SUM = _sum_in_sql("state", "name", "state")
_HEAD_SUM = _sum_in_sql("head", "name", "int8send(count)", _framed_in_sql("state_sum"))
_ONCE_SUM = _sum_in_sql(
    "once", "conversation", _framed_in_sql("key"), _framed_in_sql("digest"), "int8send(count)"
)

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
    (
        "ALTER TABLE record ADD COLUMN sum bytea",
        f"UPDATE record SET sum = {_RECORD_SUM}",  # noqa: S608 - all of it stands here
        "ALTER TABLE record ALTER COLUMN sum SET NOT NULL",
        "ALTER TABLE once ADD COLUMN sum bytea",
        f"UPDATE once SET sum = {_ONCE_SUM}",  # noqa: S608
        "ALTER TABLE once ALTER COLUMN sum SET NOT NULL",
        "ALTER TABLE conversation ADD COLUMN state_sum bytea, ADD COLUMN sum bytea",
        f"UPDATE conversation SET state_sum = {_STATE_SUM}",  # noqa: S608
        f"UPDATE conversation SET sum = {_HEAD_SUM}",  # noqa: S608
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


async def bring_up(link: Link, schema: str, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Makes the tables of today, in one transaction and one process at a time; refuses newer ones."""
    if await version_of(link) == len(migrations):
        return
    async with link.transaction():
        await link.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"lamina {schema}"])
        await _make_schema(link, schema)
        version = await version_of(link)
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
