"""The tables, and how a file of an older release becomes one of today.

`conversation` has the head; `record` is clustered by conversation and place, so that the last fifty lie
side by side however long a conversation is; `once` has the idempotency keys. Deleting a conversation takes
the rest with it. A file says by its `application_id` whose it is and by its `user_version` how old.

Each row has a checksum. So that a row which is gone is noticed, too, the rows of `conversation` are a chain:
in the order of workspace and name each says which one comes next, and a first one, which has no name, stands
before them all. A gap between two links is a row that was lost. `tables` reads and writes the chain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from lamina.errors import Damaged, StoreError
from lamina.stores.checksums import Sums
from lamina.stores.port import Where
from lamina.stores.sqlite.links import Link

APPLICATION = 0x6C616D69
"""The letters "lami"."""

FIRST = Where("", "")
"""The first link of the chain. No conversation has this name, since names are not empty."""

WITH_SUMS = 3
"""The version that brought checksums."""

_BATCH = 500

Step = str | Callable[[Link], None]


def next_fields(following: Where | None) -> tuple[bytes, ...]:
    """What the sum of a conversation is made of besides: which one comes next."""
    if following is None:
        return ()
    return following.workspace.encode(), following.conversation.encode()


def _copy_with_sums(link: Link) -> None:
    """Copies every row into the tables of today, with its sum, and each conversation into the chain."""
    found = link.run("SELECT workspace, name, id FROM conversation ORDER BY workspace, name")
    numbers = {Where(workspace, name): number for workspace, name, number in found}
    following = dict(pairwise((FIRST, *numbers)))
    _copy_conversation(link, FIRST, following.get(FIRST), (0, 0, b""))  # SQLite counts the others from 1
    for where, number in numbers.items():
        [row] = link.run("SELECT id, count, state FROM conversation WHERE id = ?", (number,))
        _copy_conversation(link, where, following.get(where), row)
        _copy_records(link, where, number)
        _copy_keys(link, where, number)


def _copy_conversation(link: Link, where: Where, after: Where | None, row: tuple[int, int, bytes]) -> None:
    number, count, state = row
    sums = Sums(where)
    state_sum = sums.state(state)
    values = (
        number,
        where.workspace,
        where.conversation,
        count,
        after.workspace if after else None,
        after.conversation if after else None,
        state_sum,
        sums.head(count, state_sum, *next_fields(after)),
        state,
    )
    link.run("INSERT INTO conversation_in_chain VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)


def _copy_records(link: Link, where: Where, number: int) -> None:
    """In batches, so that a long conversation need not fit into memory."""
    sums = Sums(where)
    sql = "SELECT seq, body FROM record WHERE conversation = ? AND seq > ? ORDER BY seq LIMIT ?"
    last = -1
    while found := link.run(sql, (number, last, _BATCH)):
        rows = [(number, seq, body, sums.record(seq, body)) for seq, body in found]
        link.many("INSERT INTO record_with_sum VALUES (?, ?, ?, ?)", rows)
        if found[-1][0] <= last:
            raise Damaged("the records of this older file are not in order", conversation=where.conversation)
        last = found[-1][0]


def _copy_keys(link: Link, where: Where, number: int) -> None:
    sums = Sums(where)
    found = link.run("SELECT key, digest, count FROM once WHERE conversation = ?", (number,))
    rows = [
        (number, key, digest, count, sums.once(key.encode(), digest, count)) for key, digest, count in found
    ]
    link.many("INSERT INTO once_with_sum VALUES (?, ?, ?, ?, ?)", rows)


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
    (  # sums; the state stands last, so that a list need not read past it to reach the sum of a row
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
"""What made each version from the one before it. Never changed once released, only added to."""

NEWEST = len(MIGRATIONS)


def bring_up(link: Link, migrations: Sequence[Sequence[Step]] = MIGRATIONS) -> None:
    """Makes the tables of today, in one transaction; refuses a file that is newer, or not lamina's."""
    if version_of(link, len(migrations)) == len(migrations):
        return
    link.run("PRAGMA foreign_keys=0")  # else a table that is dropped takes the rows that refer to it along
    try:
        _migrate(link, migrations)
    finally:
        link.run("PRAGMA foreign_keys=1")


def _migrate(link: Link, migrations: Sequence[Sequence[Step]]) -> None:
    link.run("BEGIN IMMEDIATE")
    try:
        version = version_of(link, len(migrations))  # another process may have been first
        for step in (each for steps in migrations[version:] for each in steps):
            _take(link, step)
        if version < len(migrations):
            link.run(f"PRAGMA application_id={APPLICATION}")
            link.run(f"PRAGMA user_version={len(migrations)}")
        link.run("COMMIT")
    finally:
        if link.inside():
            link.run("ROLLBACK")


def _take(link: Link, step: Step) -> None:
    if isinstance(step, str):
        link.run(step)
        return
    try:
        step(link)
    except (TypeError, AttributeError, OverflowError, UnicodeError) as error:
        problem = f"a row of this older file is not what was written, so it cannot be upgraded: {error}"
        raise Damaged(problem) from error


def version_of(link: Link, newest: int = NEWEST) -> int:
    """The version of the tables, 0 for a file without any; refuses a file that is newer, or not lamina's."""
    [(owner,)] = link.run("PRAGMA application_id")
    [(version,)] = link.run("PRAGMA user_version")
    if owner != APPLICATION and (owner or version or link.run("SELECT 1 FROM sqlite_master LIMIT 1")):
        raise StoreError("this SQLite file is not lamina's", hint="give the path of a new file")
    if version > newest:
        hint = "a newer release wrote it: update lamina"
        raise StoreError(f"the file has version {version}, and this release reads {newest}", hint=hint)
    if version < WITH_SUMS and _has_sums(link):
        raise Damaged(f"the file says that it has version {version}, and its tables are newer")
    if owner == APPLICATION and not version:
        raise Damaged("the file has lost the version of its tables")
    return int(version)


def _has_sums(link: Link) -> bool:
    return any(column[1] == "sum" for column in link.run("PRAGMA table_info(record)"))
