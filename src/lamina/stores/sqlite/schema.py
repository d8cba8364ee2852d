"""The tables, and how a file of an older release becomes one of today.

`conversation` has the head; `record` is clustered by conversation and place, so that the last fifty lie
side by side however long a conversation is; `once` has the idempotency keys. Deleting a conversation takes
the rest with it. A file says by its `application_id` whose it is and by its `user_version` how old.
"""

from __future__ import annotations

from collections.abc import Sequence

from lamina.errors import StoreError
from lamina.stores.sqlite.links import Link

APPLICATION = 0x6C616D69
"""The letters "lami"."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
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
    (  # a key keeps no state any more; by hand, since SQLite drops columns only from 3.35 on
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
)
"""What made each version from the one before it. Never changed once released, only added to."""


def bring_up(link: Link, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Makes the tables of today, in one transaction; refuses a file that is newer, or not lamina's."""
    link.run("BEGIN IMMEDIATE")
    try:
        version = _version(link, len(migrations))
        for statement in (each for step in migrations[version:] for each in step):
            link.run(statement)
        if version < len(migrations):
            link.run(f"PRAGMA application_id={APPLICATION}")
            link.run(f"PRAGMA user_version={len(migrations)}")
        link.run("COMMIT")
    finally:
        if link.inside():
            link.run("ROLLBACK")


def _version(link: Link, newest: int) -> int:
    [(owner,)] = link.run("PRAGMA application_id")
    [(version,)] = link.run("PRAGMA user_version")
    if owner != APPLICATION and (owner or version or link.run("SELECT 1 FROM sqlite_master LIMIT 1")):
        raise StoreError("this SQLite file is not lamina's", hint="give the path of a new file")
    if version > newest:
        hint = "a newer release wrote it: update lamina"
        raise StoreError(f"the file has version {version}, and this release reads {newest}", hint=hint)
    return int(version)
