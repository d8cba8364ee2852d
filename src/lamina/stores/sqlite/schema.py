"""The tables, and how a file of an older release is brought up to date.

`conversation` has the head. `record` is clustered by conversation and place, so that the last fifty records
lie side by side however long a conversation is. `once` has the idempotency keys. Deleting a conversation
deletes its rows in the other tables. The `application_id` of a file says that it is lamina's, the
`user_version` says which version its tables have.

Each row has a checksum. To notice rows that are gone, too, the rows of `conversation` form a chain: in the
order of workspace and name each row names the next one.

    ("", "")  ->  ("team", "a")  ->  ("team", "c")  ->  end

The first row has no name. If a row names a next one that is not there, that one was lost. `chain` reads and
writes the chain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from lamina.errors import Damaged, StoreError
from lamina.stores.checksums import Checksums
from lamina.stores.port import Where
from lamina.stores.sqlite.connections import SqliteConnection

APPLICATION = 0x6C616D69
"""The letters "lami"."""

FIRST = Where("", "")
"""The first row of the chain. No conversation has this name, since names are not empty."""

WITH_SUMS = 3
"""The version that brought checksums."""

_BATCH = 500

Step = str | Callable[[SqliteConnection], None]


def next_fields(following: Where | None) -> tuple[bytes, ...]:
    """The fields that the checksum of a conversation covers besides its head: which one comes next."""
    if following is None:
        return ()
    return following.workspace.encode(), following.conversation.encode()


def _copy_with_sums(connection: SqliteConnection) -> None:
    """Copy every row into the new tables, with its checksum, and each conversation into the chain."""
    rows = connection.run("SELECT workspace, name, id FROM conversation ORDER BY workspace, name")
    ids = {Where(workspace, name): conversation_id for workspace, name, conversation_id in rows}
    following = dict(pairwise((FIRST, *ids)))
    # Its id is 0: SQLite counts the others from 1.
    _copy_conversation(connection, FIRST, following.get(FIRST), (0, 0, b""))
    for where, conversation_id in ids.items():
        sql = "SELECT id, count, state FROM conversation WHERE id = ?"
        [row] = connection.run(sql, (conversation_id,))
        _copy_conversation(connection, where, following.get(where), row)
        _copy_records(connection, where, conversation_id)
        _copy_keys(connection, where, conversation_id)


def _copy_conversation(
    connection: SqliteConnection, where: Where, following: Where | None, row: tuple[int, int, bytes]
) -> None:
    conversation_id, count, state = row
    next_workspace = None
    next_name = None
    if following is not None:
        next_workspace = following.workspace
        next_name = following.conversation
    checksums = Checksums(where)
    state_sum = checksums.state(state)
    values = (
        conversation_id,
        where.workspace,
        where.conversation,
        count,
        next_workspace,
        next_name,
        state_sum,
        checksums.head(count, state_sum, *next_fields(following)),
        state,
    )
    connection.run("INSERT INTO conversation_in_chain VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)


def _copy_records(connection: SqliteConnection, where: Where, conversation_id: int) -> None:
    """Copy records in batches, so that a long conversation need not fit into memory."""
    checksums = Checksums(where)
    sql = "SELECT seq, body FROM record WHERE conversation = ? AND seq > ? ORDER BY seq LIMIT ?"
    last = -1
    while True:
        batch = connection.run(sql, (conversation_id, last, _BATCH))
        if not batch:
            return
        rows = [(conversation_id, seq, body, checksums.record(seq, body)) for seq, body in batch]
        connection.many("INSERT INTO record_with_sum VALUES (?, ?, ?, ?)", rows)
        last_of_batch = batch[-1][0]
        if last_of_batch <= last:
            raise Damaged("the records of this older file are not in order", conversation=where.conversation)
        last = last_of_batch


def _copy_keys(connection: SqliteConnection, where: Where, conversation_id: int) -> None:
    checksums = Checksums(where)
    sql = "SELECT key, digest, count FROM once WHERE conversation = ?"
    rows = [
        (conversation_id, key, digest, count, checksums.once(key.encode(), digest, count))
        for key, digest, count in connection.run(sql, (conversation_id,))
    ]
    connection.many("INSERT INTO once_with_sum VALUES (?, ?, ?, ?, ?)", rows)


MIGRATIONS: tuple[tuple[Step, ...], ...] = (
    (
        """CREATE TABLE conversation (
            id INTEGER PRIMARY KEY,
            workspace TEXT NOT NULL,
            name TEXT NOT NULL,
            count INTEGER NOT NULL,
            state BLOB NOT NULL,
            UNIQUE (workspace, name)
        )""",
        """CREATE TABLE record (
            conversation INTEGER NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
            seq INTEGER NOT NULL,
            body BLOB NOT NULL,
            PRIMARY KEY (conversation, seq)
        ) WITHOUT ROWID""",
        """CREATE TABLE once (
            conversation INTEGER NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
            key TEXT NOT NULL,
            digest BLOB NOT NULL,
            count INTEGER NOT NULL,
            state BLOB,
            PRIMARY KEY (conversation, key)
        ) WITHOUT ROWID""",
    ),
    (  # a key has no state any more; the table is copied, since SQLite drops columns only from 3.35 on
        """CREATE TABLE once_without_state (
            conversation INTEGER NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
            key TEXT NOT NULL,
            digest BLOB NOT NULL,
            count INTEGER NOT NULL,
            PRIMARY KEY (conversation, key)
        ) WITHOUT ROWID""",
        "INSERT INTO once_without_state SELECT conversation, key, digest, count FROM once",
        "DROP TABLE once",
        "ALTER TABLE once_without_state RENAME TO once",
    ),
    (  # checksums; the state comes last, so that a list need not read past it to reach the sum of a row
        """CREATE TABLE conversation_in_chain (
            id INTEGER PRIMARY KEY,
            workspace TEXT NOT NULL,
            name TEXT NOT NULL,
            count INTEGER NOT NULL,
            next_workspace TEXT,
            next_name TEXT,
            state_sum INTEGER NOT NULL,
            sum INTEGER NOT NULL,
            state BLOB NOT NULL,
            UNIQUE (workspace, name)
        )""",
        """CREATE TABLE record_with_sum (
            conversation INTEGER NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
            seq INTEGER NOT NULL,
            body BLOB NOT NULL,
            sum INTEGER NOT NULL,
            PRIMARY KEY (conversation, seq)
        ) WITHOUT ROWID""",
        """CREATE TABLE once_with_sum (
            conversation INTEGER NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
            key TEXT NOT NULL,
            digest BLOB NOT NULL,
            count INTEGER NOT NULL,
            sum INTEGER NOT NULL,
            PRIMARY KEY (conversation, key)
        ) WITHOUT ROWID""",
        _copy_with_sums,
        "DROP TABLE record",
        "DROP TABLE once",
        "DROP TABLE conversation",
        "ALTER TABLE conversation_in_chain RENAME TO conversation",
        "ALTER TABLE record_with_sum RENAME TO record",
        "ALTER TABLE once_with_sum RENAME TO once",
    ),
)
"""The steps to each version from the one before it. Released steps never change; new ones are added."""

NEWEST = len(MIGRATIONS)


def bring_up(connection: SqliteConnection, migrations: Sequence[Sequence[Step]] = MIGRATIONS) -> None:
    """Bring the tables up to date in one transaction. Raises for a file that is newer, or not lamina's."""
    if version_of(connection, len(migrations)) == len(migrations):
        return
    connection.run("PRAGMA foreign_keys=0")  # else dropping a table deletes the rows that refer to it
    try:
        _migrate(connection, migrations)
    finally:
        connection.run("PRAGMA foreign_keys=1")


def _migrate(connection: SqliteConnection, migrations: Sequence[Sequence[Step]]) -> None:
    connection.run("BEGIN IMMEDIATE")
    try:
        version = version_of(connection, len(migrations))  # another process may have been first
        for steps in migrations[version:]:
            for step in steps:
                _take_step(connection, step)
        if version < len(migrations):
            connection.run(f"PRAGMA application_id={APPLICATION}")
            connection.run(f"PRAGMA user_version={len(migrations)}")
        connection.run("COMMIT")
    finally:
        if connection.inside():
            connection.run("ROLLBACK")


def _take_step(connection: SqliteConnection, step: Step) -> None:
    if isinstance(step, str):
        connection.run(step)
        return
    try:
        step(connection)
    except (TypeError, AttributeError, OverflowError, UnicodeError) as error:
        problem = f"a row of this older file is not what was written, so it cannot be upgraded: {error}"
        raise Damaged(problem) from error


def version_of(connection: SqliteConnection, newest: int = NEWEST) -> int:
    """The version of the tables, 0 for an empty file. Raises for a file that is newer, or not lamina's.

    All is read in one transaction. Another process may be making the tables at this moment, and the version
    could else be that of before, and the tables those of after.
    """
    if connection.inside():
        return _read_version(connection, newest)
    connection.run("BEGIN")
    try:
        return _read_version(connection, newest)
    finally:
        if connection.inside():
            connection.run("ROLLBACK")


def _read_version(connection: SqliteConnection, newest: int) -> int:
    """The version of the tables; 0 for a file without any. Raises for a file that cannot be used."""
    [(owner,)] = connection.run("PRAGMA application_id")
    [(version,)] = connection.run("PRAGMA user_version")
    if owner != APPLICATION:
        is_new = not owner and not version and not _has_tables(connection)
        if not is_new:
            hint = "another program wrote it; give the path of a file that lamina wrote, or of a new one"
            raise StoreError("this SQLite file is not lamina's", hint=hint)
    if version > newest:
        hint = "a newer release wrote it: update lamina"
        raise StoreError(f"the file has version {version}, and this release reads {newest}", hint=hint)
    # Damage to the first page may change the number alone. An upgrade would then begin with newer tables.
    if version < WITH_SUMS and _has_sums(connection):
        raise Damaged(f"the file says that it has version {version}, and its tables are newer")
    if owner == APPLICATION and not version:
        raise Damaged("the file has lost the version of its tables")
    return int(version)


def _has_tables(connection: SqliteConnection) -> bool:
    return bool(connection.run("SELECT 1 FROM sqlite_master LIMIT 1"))


def _has_sums(connection: SqliteConnection) -> bool:
    return any(column[1] == "sum" for column in connection.run("PRAGMA table_info(record)"))
