"""Brings tables of an older release up to date while programs read and write them.

    await migrate_tables(url, report=print)                  # while programs of the older release run
    await migrate_tables(url, report=print, finish=True)     # when none of them runs any more

It can be killed at any moment: the next run goes on where this one stopped. The rows that are left to fill
are in an index, so neither a later run nor the end reads all rows again. `migrations` has the steps.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import LiteralString

import anyio
import msgspec
from psycopg import sql

from lamina.errors import Broken, StoreError
from lamina.stores.postgres import migrations
from lamina.stores.postgres.connections import (
    ConnectionLimits,
    ConnectionLost,
    ConnectionPool,
)
from lamina.stores.postgres.migrations import Migration, RowFill
from lamina.stores.postgres.schema import NEWEST, TableVersion, expand_tables, read_version
from lamina.stores.postgres.statements import PostgresConnection, Row, select_flag, select_value

Report = Callable[[str], None]

ROUNDS = 100
"""How often the rows that writers had locked are tried again."""

LOCK_ATTEMPTS = 10
"""How often the lock of a migration is asked for."""

LOCK_PAUSE = 0.3
"""Seconds between two attempts."""


class MigrationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is left to do. `before` can be done while programs of the older release run, `after` cannot."""

    tables: TableVersion
    newest: int = NEWEST
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


async def plan_migration(url: str, *, schema: str = "lamina") -> MigrationPlan:
    """Say what `migrate_tables` would do. Changes nothing."""
    async with _connect(url, schema) as connection:
        tables = await read_version(connection)
        if not tables.finished or tables.finished == NEWEST:
            return MigrationPlan(tables=tables)
        before: list[str] = []
        after: list[str] = []
        for migration in _migrations_after(tables.finished):
            if tables.expanded < migration.version:
                before += [step.purpose for step in migration.expand]
            for fill in migration.fills:
                purpose = f"{fill.purpose} ({await _count_left(connection, tables, migration, fill):,} rows)"
                if fill.is_late:
                    after.append(purpose)
                else:
                    before.append(purpose)
            after += [step.purpose for step in (*migration.refuse, *migration.contract)]
    return MigrationPlan(tables=tables, before=tuple(before), after=tuple(after))


async def migrate_tables(
    url: str, *, schema: str = "lamina", finish: bool = False, report: Report = lambda _: None
) -> TableVersion:
    """Add columns and fill them. With `finish`, also take away what the older release needed."""
    async with _connect(url, schema) as connection:
        tables = await read_version(connection)
        if not tables.finished or tables.finished == NEWEST:
            return tables
        await _lock_migration(connection, schema)
        tables = await expand_tables(connection)
        report(f"the columns of version {tables.expanded} are there")
        for migration in _migrations_after(tables.finished):
            for fill in migration.fills:
                if not fill.is_late:
                    await _fill_rows(connection, fill, report)
        if finish:
            for migration in _migrations_after(tables.finished):
                await _finish(connection, migration, report)
        return await read_version(connection)


@asynccontextmanager
async def _connect(url: str, schema: str) -> AsyncIterator[PostgresConnection]:
    """A connection to the server itself: an index cannot be made in a pooler's transaction."""
    pool = ConnectionPool(url, schema, ConnectionLimits(connections=1))
    try:
        await pool.connect_once()
        if pool.has_pooler:
            hint = "give the address of PostgreSQL, not that of the pooler"
            raise StoreError("a migration needs a connection of its own", hint=hint)
        async with pool.call(patient=True) as call:
            yield call.connection
    except ConnectionLost as lost:
        hint = "run it again when the server answers: it goes on where it stopped"
        raise Broken(f"no connection: {lost.reason}", hint=hint) from None
    finally:
        await pool.close()


async def _lock_migration(connection: PostgresConnection, schema: str) -> None:
    """Refuse a second migration of the same tables. The lock ends with the connection.

    A run that was killed leaves its lock until the server has ended its last statement, so this one waits for
    a moment.
    """
    query = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
    for _ in range(LOCK_ATTEMPTS):
        if await select_flag(connection, query, [f"lamina migrate {schema}"]):
            return
        await anyio.sleep(LOCK_PAUSE)
    raise StoreError("these tables are being migrated already", hint="wait until that run has ended")


def _migrations_after(version: int) -> list[Migration]:
    return [migration for migration in migrations.MIGRATIONS if migration.version > version]


async def _finish(connection: PostgresConnection, migration: Migration, report: Report) -> None:
    for step in migration.refuse:
        await migrations.take_briefly(connection, step)
        report(step.purpose)
    for fill in migration.fills:
        await _fill_rows(connection, fill, report)
    for step in migration.contract:
        await migrations.take_briefly(connection, step)
        report(step.purpose)
    for fill in migration.fills:
        await _drop_index(connection, fill)
    await migrations.take_briefly(connection, migrations.note_finished(migration.version))
    report(f"the tables are of version {migration.version}")


async def _fill_rows(connection: PostgresConnection, fill: RowFill, report: Report) -> None:
    """Fill rows until none is left that is not locked at the moment."""
    if not await _has_column(connection, fill):
        return
    await _make_index(connection, fill)
    total = await _count_rows(connection, fill.table, fill.condition)
    filled = 0
    for _ in range(ROUNDS):
        key: Row | None = fill.first_key
        while key is not None:
            key, rows = await migrations.fill_batch(connection, fill, key)
            filled += rows
            if rows:
                report(f"{fill.purpose}: {filled:,} of {max(total, filled):,} rows")
        if not await _count_rows(connection, fill.table, fill.condition):
            return
        await anyio.sleep(0.1)
    hint = "look for a transaction that stays open (pg_stat_activity), and run it again"
    raise StoreError(f"{fill.purpose}: rows stayed locked", hint=hint)


async def _has_column(connection: PostgresConnection, fill: RowFill) -> bool:
    """False if an earlier run has dropped the column already."""
    query = "SELECT FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = %s"
    cursor = await connection.execute(query, [fill.table, fill.column])
    return cursor.rowcount > 0


async def _make_index(connection: PostgresConnection, fill: RowFill) -> None:
    """Make the index of the rows that are left. It locks nobody out, and waits for open transactions."""
    query = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)"
    if await select_flag(connection, query, [fill.index]):
        return
    await _drop_index(connection, fill)  # a run that was killed may have left half of it
    columns = sql.SQL(", ").join([sql.Identifier(name) for name in fill.key_columns])
    create = sql.SQL("CREATE INDEX CONCURRENTLY {} ON {} ({}) WHERE {}").format(
        sql.Identifier(fill.index), sql.Identifier(fill.table), columns, sql.SQL(fill.condition)
    )
    await _run_unhurried(connection, create)


async def _drop_index(connection: PostgresConnection, fill: RowFill) -> None:
    drop = sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(sql.Identifier(fill.index))
    await _run_unhurried(connection, drop)


async def _run_unhurried(connection: PostgresConnection, statement: sql.Composed) -> None:
    """Run a statement that nobody waits for, without the limits of the connection."""
    await connection.execute("SET lock_timeout = 0; SET statement_timeout = 0")
    await connection.execute(statement)


async def _count_left(
    connection: PostgresConnection, tables: TableVersion, migration: Migration, fill: RowFill
) -> int:
    """The rows that a fill has to change; before the column is there, all rows of the table."""
    if tables.expanded >= migration.version or fill.is_late:
        return await _count_rows(connection, fill.table, fill.condition)
    return await _count_rows(connection, fill.table, "true")


async def _count_rows(connection: PostgresConnection, table: str, condition: LiteralString) -> int:
    query = sql.SQL("SELECT count(*) FROM {} WHERE {}").format(sql.Identifier(table), sql.SQL(condition))
    return int(await select_value(connection, query))
