"""The tables, their version, and what has to happen to older ones before a store writes to them.

Every row begins with its workspace and its conversation, and no row refers to a row of another conversation,
so that the tables can be divided among machines. Names sort by code point, as Python sorts them. An
idempotency key is stored as its hash: three names of full length would not fit into an index. Each row has a
checksum (`stores.checksums`).

Tables of an older release are read as they are. Before the first write they are brought up to date: small
ones at once, in one transaction. Large ones only get the new columns, which is a matter of milliseconds; from
then on programs of both releases can write. `lamina migrate` does the rest while they run (`migrate`).
"""

from __future__ import annotations

from typing import LiteralString

import msgspec
from psycopg import sql

from lamina.errors import StoreError
from lamina.stores.postgres import migrations
from lamina.stores.postgres.statements import PostgresConnection, select_flag, select_row, select_value

NEWEST = migrations.MIGRATIONS[-1].version

WITH_SUMS = 3
"""The version that brought checksums."""

SMALL = 64 << 20
"""Bytes of tables that are brought up to date at once. It takes seconds, in which nobody else can write."""

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
"""The tables of the newest version. `lamina`, with one row, says which version they have."""


class TableVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The version of the tables; `finished` is 0 if there are none.

    `expanded` is higher while a migration is under way: the columns of that version are there, and rows may
    lack a value in them. Then programs of both releases can write.
    """

    finished: int = 0
    expanded: int = 0

    @property
    def has_sums(self) -> bool:
        return self.expanded >= WITH_SUMS

    @property
    def can_be_written(self) -> bool:
        """Whether this release can write to them as they are."""
        return self.expanded >= NEWEST


async def begin(connection: PostgresConnection, schema: str) -> TableVersion:
    """The version of the tables. They are made if there are none; older ones stay as they are."""
    tables = await read_version(connection)
    if tables.finished:
        return tables
    async with connection.transaction():
        await migrations.lock_changes(connection)
        # This looks into pg_namespace first. Else the server would not notice here that another process has
        # made the schema while this one waited for the lock.
        await _make_schema(connection, schema)
        tables = await read_version(connection)
        if not tables.finished:
            await _make_tables(connection)
            tables = TableVersion(finished=NEWEST, expanded=NEWEST)
    return tables


async def prepare_writes(connection: PostgresConnection, schema: str) -> TableVersion:
    """Make older tables such that this release can write to them."""
    tables = await begin(connection, schema)
    if tables.can_be_written:
        return tables
    if not await _are_small(connection):
        return await expand_tables(connection)
    async with connection.transaction():
        await connection.execute("SET LOCAL statement_timeout = 0")
        await migrations.lock_changes(connection)
        tables = await read_version(connection)
        if not tables.can_be_written:
            await _upgrade_at_once(connection, tables)
    return await read_version(connection)


async def expand_tables(connection: PostgresConnection) -> TableVersion:
    """Add what the newest version adds, in short transactions. Older releases do not notice it."""
    while True:
        tables = await read_version(connection)
        if tables.can_be_written:
            return tables
        migration = migrations.migration_to(tables.expanded + 1)
        for step in migration.expand:
            await migrations.take_briefly(connection, step)
        await migrations.take_briefly(connection, migrations.note_expanded(migration.version))


async def read_version(connection: PostgresConnection) -> TableVersion:
    """The version of the tables; raises StoreError if a newer release has finished them."""
    if not await select_flag(connection, "SELECT to_regclass('lamina') IS NOT NULL"):
        return TableVersion()
    # Tables that no release with migrations has written to have no column `expanded`.
    row = await select_row(connection, "SELECT version, to_jsonb(lamina) ->> 'expanded' FROM lamina")
    if row is None:
        return TableVersion()
    finished = int(row[0])
    if finished > NEWEST:
        hint = "a newer release wrote them: update lamina"
        raise StoreError(f"the tables have version {finished}, and this release reads {NEWEST}", hint=hint)
    return TableVersion(finished=finished, expanded=max(finished, int(row[1] or 0)))


async def _make_schema(connection: PostgresConnection, schema: str) -> None:
    cursor = await connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", [schema])
    if cursor.rowcount == 0:  # a user who may not make schemas can use one that an administrator made
        await connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))


async def _make_tables(connection: PostgresConnection) -> None:
    for statement in TABLES:
        await connection.execute(statement)
    await connection.execute("CREATE TABLE lamina (version integer NOT NULL, expanded integer NOT NULL)")
    await connection.execute("INSERT INTO lamina VALUES (%s, %s)", [NEWEST, NEWEST])


async def _are_small(connection: PostgresConnection) -> bool:
    size = await select_value(
        connection,
        "SELECT pg_total_relation_size('conversation') + pg_total_relation_size('record') "
        "+ pg_total_relation_size('once')",
    )
    return bool(size < SMALL)


async def _upgrade_at_once(connection: PostgresConnection, tables: TableVersion) -> None:
    """Take all steps of all migrations, in the transaction that has begun. Nobody else can read or write."""
    await connection.execute("LOCK TABLE conversation, record, once")
    for migration in migrations.MIGRATIONS:
        if migration.version <= tables.finished:
            continue
        for step in (*migration.expand, *migration.refuse):
            await migrations.take_step(connection, step)
        for fill in migration.fills:
            await migrations.fill_all(connection, fill)
        for step in migration.contract:
            await migrations.take_step(connection, step)
        await migrations.take_step(connection, migrations.note_expanded(migration.version))
        await migrations.take_step(connection, migrations.note_finished(migration.version))
