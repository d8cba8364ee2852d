"""The tables and their version.

`conversation` has the head. `record` is clustered by conversation and place, so that the last fifty records
lie side by side however long a conversation is. `once` has the idempotency keys. The `application_id` of a
file says that it is lamina's, the `user_version` says which version its tables have.

Each row has a checksum, and each table has the names of the conversation: if the row in `conversation` is
lost, its records show that it was there.
"""

from __future__ import annotations

from lamina.errors import Damaged, StoreError, advise_on_version
from lamina.stores.sqlite.connections import SqliteConnection

APPLICATION = 0x6C616D69
"""The letters "lami"."""

VERSION = 4

TABLES = (
    # The state comes last, so that a list need not read past it to reach the sum of a row.
    """CREATE TABLE conversation (
        workspace TEXT NOT NULL,
        name TEXT NOT NULL,
        count INTEGER NOT NULL,
        state_sum INTEGER NOT NULL,
        sum INTEGER NOT NULL,
        state BLOB NOT NULL,
        PRIMARY KEY (workspace, name)
    )""",
    """CREATE TABLE record (
        workspace TEXT NOT NULL,
        conversation TEXT NOT NULL,
        seq INTEGER NOT NULL,
        body BLOB NOT NULL,
        sum INTEGER NOT NULL,
        PRIMARY KEY (workspace, conversation, seq)
    ) WITHOUT ROWID""",
    """CREATE TABLE once (
        workspace TEXT NOT NULL,
        conversation TEXT NOT NULL,
        key TEXT NOT NULL,
        digest BLOB NOT NULL,
        count INTEGER NOT NULL,
        sum INTEGER NOT NULL,
        PRIMARY KEY (workspace, conversation, key)
    ) WITHOUT ROWID""",
)


def make_tables(connection: SqliteConnection) -> None:
    """Make the tables in one transaction, unless another process has made them."""
    connection.run("BEGIN IMMEDIATE")
    try:
        if not has_tables(connection):
            for statement in TABLES:
                connection.run(statement)
            connection.run(f"PRAGMA application_id={APPLICATION}")
            connection.run(f"PRAGMA user_version={VERSION}")
        connection.run("COMMIT")
    finally:
        if connection.inside():
            connection.run("ROLLBACK")


def has_tables(connection: SqliteConnection) -> bool:
    """Whether the tables were made. Raises for a file of another version, or that is not lamina's.

    All is read in one transaction. Another process may be making the tables at this moment, and the version
    could else be that of before, and the tables those of after.
    """
    if connection.inside():
        return _has_tables(connection)
    connection.run("BEGIN")
    try:
        return _has_tables(connection)
    finally:
        if connection.inside():
            connection.run("ROLLBACK")


def _has_tables(connection: SqliteConnection) -> bool:
    [(owner,)] = connection.run("PRAGMA application_id")
    [(version,)] = connection.run("PRAGMA user_version")
    if owner != APPLICATION:
        is_new = not owner and not version and not connection.run("SELECT 1 FROM sqlite_master LIMIT 1")
        if is_new:
            return False
        hint = "another program wrote it; give the path of a file that lamina wrote, or of a new one"
        raise StoreError("this SQLite file is not lamina's", hint=hint)
    if not version:
        raise Damaged("the file has lost the version of its tables")
    if version != VERSION:
        raise StoreError(f"the file has version {version}", hint=advise_on_version(version, VERSION))
    return True
