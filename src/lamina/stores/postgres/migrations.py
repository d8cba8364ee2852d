"""What changes in the tables from one version to the next, in parts that can be taken while programs run.

    expand     new columns, empty. Programs of the older release go on; those of this release can write.
    fill       rows get their values, a batch at a time, each in a transaction of its own.
    refuse     from here on the tables refuse what an older release writes.
    contract   what only the older release needed goes.

Every step can be taken again: a migration that was interrupted begins at the front, and finds its work done.
A step that locks a table waits for the lock only for a moment, since whoever comes after it waits behind it;
then it lets everybody through and tries again.

While both releases write, an older one changes rows and leaves their checksums alone. So a trigger empties
the checksum of a row whose content was changed and whose checksum was not. An empty one is not checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import LiteralString

import anyio
import msgspec
from psycopg import sql
from psycopg.abc import Query
from psycopg.errors import DeadlockDetected, LockNotAvailable

from lamina.errors import StoreError
from lamina.stores.checksums import Checksums
from lamina.stores.port import Where
from lamina.stores.postgres.statements import PostgresConnection, Row

BATCH = 500
"""Rows that are filled in one transaction."""

LOCK_WAIT = "1s"
"""How long a step waits for its lock. All others wait as long, behind it."""

LOCK_ATTEMPTS = 60
"""How often a step tries to get its lock, with a pause between."""


class MigrationStep(msgspec.Struct, frozen=True, kw_only=True):
    """Statements of one transaction, and what they are for."""

    purpose: str
    statements: tuple[Query, ...]


class RowFill(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one table whose `column` has to change.

    `condition` says which rows are left. `select` returns rows after a key, in the order of the key, and
    locks them; a row begins with its key (`key_columns`).
    `compute` returns the new values of a row, and `update` takes the columns of keys and values as arrays.
    `is_late`: not before all programs of the older release have ended.
    """

    purpose: str
    table: LiteralString
    key_columns: tuple[LiteralString, ...]
    column: LiteralString
    condition: LiteralString
    first_key: tuple[str | int | bytes, ...]
    select: LiteralString
    update: LiteralString
    compute: Callable[[Row], Row]
    is_late: bool = False

    @property
    def index(self) -> str:
        """The index of the rows that are left, which is there while they are filled."""
        return f"{self.table}_unfilled"


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """The way to one version from the one before it."""

    version: int
    expand: tuple[MigrationStep, ...] = ()
    fills: tuple[RowFill, ...] = ()
    refuse: tuple[MigrationStep, ...] = ()
    contract: tuple[MigrationStep, ...] = ()


def migration_to(version: int) -> Migration:
    return next(migration for migration in MIGRATIONS if migration.version == version)


async def take_briefly(connection: PostgresConnection, step: MigrationStep) -> None:
    """Take a step in a short transaction. If somebody is in the way, let them through, and try again."""
    for _ in range(LOCK_ATTEMPTS):
        try:
            async with connection.transaction():
                await connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(LOCK_WAIT))
                await connection.execute("SET LOCAL statement_timeout = 0")
                await lock_changes(connection)
                await take_step(connection, step)
        except (LockNotAvailable, DeadlockDetected):
            await anyio.sleep(0.5)
        else:
            return
    hint = "look for a transaction that stays open (pg_stat_activity), and run it again"
    raise StoreError(f"{step.purpose}: the table was never free", hint=hint)


async def lock_changes(connection: PostgresConnection) -> None:
    """Wait until no other transaction makes or changes the tables of this schema."""
    await connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended('lamina ' || current_setting('search_path'), 0))"
    )


async def take_step(connection: PostgresConnection, step: MigrationStep) -> None:
    """Take a step in the transaction that has begun."""
    for statement in step.statements:
        await connection.execute(statement)


async def fill_all(connection: PostgresConnection, fill: RowFill) -> None:
    """Fill all rows, in the transaction that has begun."""
    key: Row | None = fill.first_key
    while key is not None:
        key, _ = await fill_batch(connection, fill, key)


async def fill_batch(connection: PostgresConnection, fill: RowFill, after: Row) -> tuple[Row | None, int]:
    """Fill the next rows after a key. Returns the last key, None at the end, and the number of rows.

    Rows that a writer has locked are left for the next round: nobody waits for anybody, so nobody deadlocks.
    """
    async with connection.transaction():
        cursor = await connection.execute(fill.select, [*after, BATCH])
        rows = await cursor.fetchall()
        if not rows:
            return None, 0
        size = len(fill.key_columns)
        values = [(*row[:size], *fill.compute(row)) for row in rows]
        await connection.execute(fill.update, [list(column) for column in zip(*values, strict=True)])
    return rows[-1][:size], len(rows)


def note_expanded(version: int) -> MigrationStep:
    """Note that the tables have the columns of a version."""
    statements: tuple[Query, ...] = (
        "ALTER TABLE lamina ADD COLUMN IF NOT EXISTS expanded integer NOT NULL DEFAULT 0",
        sql.SQL("UPDATE lamina SET expanded = {}").format(version),
    )
    return MigrationStep(purpose=f"lamina: the columns of version {version} are there", statements=statements)


def note_finished(version: int) -> MigrationStep:
    """Note that the tables are of a version, and of no older one any more."""
    statement = sql.SQL("UPDATE lamina SET version = {}").format(version)
    return MigrationStep(purpose=f"lamina: the tables are of version {version}", statements=(statement,))


# Version 2: an idempotency key has no state any more. A dropped column alone would leave the bytes in every
# row, so they are overwritten first. Version 1 needs them as long as it runs.
_EMPTY_STATES = RowFill(
    purpose="once: empty the column state",
    table="once",
    key_columns=("workspace", "conversation", "key"),
    column="state",
    condition="state IS NOT NULL",
    first_key=("", "", b""),
    select="""
        SELECT workspace, conversation, key FROM once
        WHERE (workspace, conversation, key) > (%s, %s, %s) AND state IS NOT NULL
        ORDER BY workspace, conversation, key LIMIT %s FOR UPDATE SKIP LOCKED""",
    update="""
        UPDATE once SET state = NULL
        FROM unnest(%s::text[], %s::text[], %s::bytea[]) AS filled (workspace, conversation, key)
        WHERE once.workspace = filled.workspace AND once.conversation = filled.conversation
            AND once.key = filled.key""",
    compute=lambda _: (),
    is_late=True,
)


# Version 3: checksums.
def _sum_record(row: Row) -> Row:
    workspace, conversation, seq, body = row
    return (Checksums(Where(workspace, conversation)).record(seq, body),)


def _sum_key(row: Row) -> Row:
    workspace, conversation, key, digest, count = row
    return (Checksums(Where(workspace, conversation)).once(key, digest, count),)


def _sum_head(row: Row) -> Row:
    workspace, name, count, state = row
    checksums = Checksums(Where(workspace, name))
    state_sum = checksums.state(state)
    return state_sum, checksums.head(count, state_sum)


_SUM_RECORDS = RowFill(
    purpose="record: compute the checksums",
    table="record",
    key_columns=("workspace", "conversation", "seq"),
    column="sum",
    condition="sum IS NULL",
    first_key=("", "", -1),
    select="""
        SELECT workspace, conversation, seq, body FROM record
        WHERE (workspace, conversation, seq) > (%s, %s, %s) AND sum IS NULL
        ORDER BY workspace, conversation, seq LIMIT %s FOR UPDATE SKIP LOCKED""",
    update="""
        UPDATE record SET sum = filled.sum
        FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::bigint[])
            AS filled (workspace, conversation, seq, sum)
        WHERE record.workspace = filled.workspace AND record.conversation = filled.conversation
            AND record.seq = filled.seq""",
    compute=_sum_record,
)
_SUM_KEYS = RowFill(
    purpose="once: compute the checksums",
    table="once",
    key_columns=("workspace", "conversation", "key"),
    column="sum",
    condition="sum IS NULL",
    first_key=("", "", b""),
    select="""
        SELECT workspace, conversation, key, digest, count FROM once
        WHERE (workspace, conversation, key) > (%s, %s, %s) AND sum IS NULL
        ORDER BY workspace, conversation, key LIMIT %s FOR UPDATE SKIP LOCKED""",
    update="""
        UPDATE once SET sum = filled.sum
        FROM unnest(%s::text[], %s::text[], %s::bytea[], %s::bigint[])
            AS filled (workspace, conversation, key, sum)
        WHERE once.workspace = filled.workspace AND once.conversation = filled.conversation
            AND once.key = filled.key""",
    compute=_sum_key,
)
_SUM_HEADS = RowFill(
    purpose="conversation: compute the checksums",
    table="conversation",
    key_columns=("workspace", "name"),
    column="sum",
    condition="sum IS NULL",
    first_key=("", ""),
    select="""
        SELECT workspace, name, count, state FROM conversation
        WHERE (workspace, name) > (%s, %s) AND sum IS NULL
        ORDER BY workspace, name LIMIT %s FOR UPDATE SKIP LOCKED""",
    update="""
        UPDATE conversation SET state_sum = filled.state_sum, sum = filled.sum
        FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::bigint[])
            AS filled (workspace, name, state_sum, sum)
        WHERE conversation.workspace = filled.workspace AND conversation.name = filled.name""",
    compute=_sum_head,
)

_ADD_SUMS = (
    MigrationStep(
        purpose="record: add the column sum, and the trigger that empties it",
        statements=(
            """CREATE OR REPLACE FUNCTION empty_sum() RETURNS trigger LANGUAGE plpgsql
                AS 'BEGIN NEW.sum := NULL; RETURN NEW; END'""",
            "ALTER TABLE record ADD COLUMN IF NOT EXISTS sum bigint",
            "DROP TRIGGER IF EXISTS empty_sum ON record",
            """CREATE TRIGGER empty_sum BEFORE UPDATE ON record FOR EACH ROW
                WHEN (NEW.body IS DISTINCT FROM OLD.body AND NEW.sum IS NOT DISTINCT FROM OLD.sum)
                EXECUTE FUNCTION empty_sum()""",
        ),
    ),
    MigrationStep(
        purpose="once: add the column sum",
        statements=("ALTER TABLE once ADD COLUMN IF NOT EXISTS sum bigint",),
    ),
    MigrationStep(
        purpose="conversation: add the columns state_sum and sum, and the trigger that empties sum",
        statements=(
            """ALTER TABLE conversation
                ADD COLUMN IF NOT EXISTS state_sum bigint, ADD COLUMN IF NOT EXISTS sum bigint""",
            "DROP TRIGGER IF EXISTS empty_sum ON conversation",
            """CREATE TRIGGER empty_sum BEFORE UPDATE ON conversation FOR EACH ROW
                WHEN ((NEW.count, NEW.state) IS DISTINCT FROM (OLD.count, OLD.state)
                    AND NEW.sum IS NOT DISTINCT FROM OLD.sum)
                EXECUTE FUNCTION empty_sum()""",
        ),
    ),
)
_REFUSE_ROWS_WITHOUT_SUMS = (
    MigrationStep(
        purpose="record: refuse new rows without a checksum",
        statements=(
            "ALTER TABLE record DROP CONSTRAINT IF EXISTS has_sum",
            "ALTER TABLE record ADD CONSTRAINT has_sum CHECK (sum IS NOT NULL) NOT VALID",
        ),
    ),
    MigrationStep(
        purpose="once: refuse new rows without a checksum",
        statements=(
            "ALTER TABLE once DROP CONSTRAINT IF EXISTS has_sum",
            "ALTER TABLE once ADD CONSTRAINT has_sum CHECK (sum IS NOT NULL) NOT VALID",
        ),
    ),
    MigrationStep(
        purpose="conversation: refuse rows without a checksum",
        statements=(
            "ALTER TABLE conversation DROP CONSTRAINT IF EXISTS has_sum",
            """ALTER TABLE conversation ADD CONSTRAINT has_sum
                CHECK (sum IS NOT NULL AND state_sum IS NOT NULL) NOT VALID""",
        ),
    ),
)
# A table with a valid constraint is not read again for SET NOT NULL. So the constraint goes only after it, in
# a statement of its own: within one ALTER TABLE the server would drop it first.
_REQUIRE_SUMS = (
    MigrationStep(
        purpose="record: check that all rows have a checksum",
        statements=("ALTER TABLE record VALIDATE CONSTRAINT has_sum",),
    ),
    MigrationStep(
        purpose="once: check that all rows have a checksum",
        statements=("ALTER TABLE once VALIDATE CONSTRAINT has_sum",),
    ),
    MigrationStep(
        purpose="conversation: check that all rows have a checksum",
        statements=("ALTER TABLE conversation VALIDATE CONSTRAINT has_sum",),
    ),
    MigrationStep(
        purpose="record: the column sum is never empty",
        statements=(
            "ALTER TABLE record ALTER COLUMN sum SET NOT NULL",
            "ALTER TABLE record DROP CONSTRAINT IF EXISTS has_sum",
            "DROP TRIGGER IF EXISTS empty_sum ON record",
        ),
    ),
    MigrationStep(
        purpose="once: the column sum is never empty",
        statements=(
            "ALTER TABLE once ALTER COLUMN sum SET NOT NULL",
            "ALTER TABLE once DROP CONSTRAINT IF EXISTS has_sum",
        ),
    ),
    MigrationStep(
        purpose="conversation: the columns state_sum and sum are never empty",
        statements=(
            "ALTER TABLE conversation ALTER COLUMN state_sum SET NOT NULL, ALTER COLUMN sum SET NOT NULL",
            "ALTER TABLE conversation DROP CONSTRAINT IF EXISTS has_sum",
            "DROP TRIGGER IF EXISTS empty_sum ON conversation",
            "DROP FUNCTION IF EXISTS empty_sum()",
        ),
    ),
)

MIGRATIONS: tuple[Migration, ...] = (
    Migration(
        version=2,
        fills=(_EMPTY_STATES,),
        contract=(
            MigrationStep(
                purpose="once: drop the column state",
                statements=("ALTER TABLE once DROP COLUMN IF EXISTS state",),
            ),
        ),
    ),
    Migration(
        version=3,
        expand=_ADD_SUMS,
        fills=(_SUM_RECORDS, _SUM_KEYS, _SUM_HEADS),
        refuse=_REFUSE_ROWS_WITHOUT_SUMS,
        contract=_REQUIRE_SUMS,
    ),
)
"""In the order of their versions. What a release brought never changes; new ones are added at the end."""
