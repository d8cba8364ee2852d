"""The tables and their version.

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

from lamina.errors import Damaged, StoreError, advise_on_version
from lamina.stores.checksums import Checksums
from lamina.stores.port import Where
from lamina.stores.sqlite.connections import SqliteConnection

APPLICATION = 0x6C616D69
"""The letters "lami"."""

VERSION = 3

TABLES = (
    # The state comes last, so that a list need not read past it to reach the sum of a row.
    """CREATE TABLE conversation (
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
    """CREATE TABLE record (
        conversation INTEGER NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        body BLOB NOT NULL,
        sum INTEGER NOT NULL,
        PRIMARY KEY (conversation, seq)
    ) WITHOUT ROWID""",
    """CREATE TABLE once (
        conversation INTEGER NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
        key TEXT NOT NULL,
        digest BLOB NOT NULL,
        count INTEGER NOT NULL,
        sum INTEGER NOT NULL,
        PRIMARY KEY (conversation, key)
    ) WITHOUT ROWID""",
)


def make_tables(connection: SqliteConnection) -> None:
    """Make the tables in one transaction, unless another process has made them."""
    connection.run("BEGIN IMMEDIATE")
    try:
        if not has_tables(connection):
            for statement in TABLES:
                connection.run(statement)
            _insert_first_row(connection)
            connection.run(f"PRAGMA application_id={APPLICATION}")
            connection.run(f"PRAGMA user_version={VERSION}")
        connection.run("COMMIT")
    finally:
        if connection.inside():
            connection.run("ROLLBACK")


def _insert_first_row(connection: SqliteConnection) -> None:
    """Begin the chain. No conversation has an empty name, and SQLite counts other ids from 1."""
    checksums = Checksums(Where("", ""))
    state_sum = checksums.state(b"")
    connection.run(
        "INSERT INTO conversation VALUES (0, '', '', 0, NULL, NULL, ?, ?, x'')",
        (state_sum, checksums.head(0, state_sum)),
    )


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
