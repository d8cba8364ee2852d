"""The operations of the port on the tables, each in a transaction that the caller has begun.

They know no threads, files or commits. If a write raises, the caller undoes it. Everything that is read is
checked against its checksums, and a conversation that is not there is looked for in the chain (`chain`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from lamina.errors import Damaged, StoreError
from lamina.stores.checked import NewGroup, RecordSelection, Replacement
from lamina.stores.checks import (
    check_digest,
    check_key,
    check_no_plain,
    is_sealed_name,
)
from lamina.stores.checksums import Checksums, check_records, intact_records
from lamina.stores.port import (
    HEADER,
    RESERVED,
    RESERVED_END,
    ListedConversation,
    Once,
    Record,
    RecordPage,
    StoredHead,
    Where,
    places_beside,
)
from lamina.stores.sqlite.chain import (
    COLUMNS,
    ConversationRow,
    check_absent,
    check_run,
    delete_row,
    find_row,
    insert_row,
    update_row,
)
from lamina.stores.sqlite.connections import CONSTRAINT, SqliteConnection, SqliteFailure
from lamina.stores.sqlite.schema import has_tables

_IS_SEALED = (
    "EXISTS (SELECT 1 FROM conversation "  # noqa: S608 - nothing in it comes from outside
    f"WHERE workspace = '{HEADER.workspace}' AND name = '{HEADER.conversation}')"
)
_HAS_UNCOUNTED = (
    "EXISTS (SELECT 1 FROM record "
    "WHERE record.conversation = conversation.id AND record.seq >= conversation.count)"
)
"""Whether there are records that the head does not count: then it is an old head, or one is not ours."""

_FIND = (
    f"SELECT {COLUMNS}, state, {_HAS_UNCOUNTED}, {_IS_SEALED} "  # noqa: S608 - nothing comes from outside
    "FROM conversation WHERE workspace = ? AND name = ?"
)
_UNCOUNTED = "there are more records than its head says"

_CHUNK = 500
"""Places or names in one statement: older builds of SQLite accept 999 values, and that of apsw 32,766."""


class StoredConversationState(msgspec.Struct, frozen=True):
    """A conversation: its row, its head, and whether there are records that its head does not count."""

    row: ConversationRow
    head: StoredHead
    has_uncounted: bool


def append_group(connection: SqliteConnection, group: NewGroup) -> StoredHead:
    where = group.where
    once = group.once
    conversation = _load_conversation(connection, where)
    checksums = Checksums(where)
    previous = StoredHead()
    if conversation is not None:
        _check_all_counted(connection, where, conversation)
        previous = conversation.head
        # A group that was added before is answered as it was then, whatever its writer expects now.
        if once is not None:
            repeated = _find_repeated(connection, where, conversation, once, checksums)
            if repeated is not None:
                return repeated
    elif where == HEADER:
        check_no_plain(plain=_has_plain(connection))
    head = group.head_after(previous)
    if conversation is None:
        conversation_id = insert_row(connection, where, head, checksums)
    else:
        conversation_id = conversation.row.id
        update_row(connection, conversation.row, head, checksums, same_state=group.state is None)
    rows = [
        (conversation_id, seq, body, checksums.record(seq, body))
        for seq, body in enumerate(group.records, previous.count)
    ]
    _insert_records(connection, where, rows)
    if once is not None:
        _insert_once(connection, conversation_id, once, head.count, checksums)
    return head


def replace_records(connection: SqliteConnection, replacement: Replacement) -> StoredHead:
    where = replacement.where
    conversation = _load_conversation(connection, where)
    if conversation is None:
        replacement.raise_missing()
    head = replacement.head_after(conversation.head)
    _check_all_counted(connection, where, conversation)
    row = conversation.row
    checksums = Checksums(where)
    values = ((body, checksums.record(seq, body), row.id, seq) for seq, body in replacement.bodies.items())
    connection.many("UPDATE record SET body = ?, sum = ? WHERE conversation = ? AND seq = ?", values)
    if replacement.state is not None:
        update_row(connection, row, head, checksums, same_state=False)
    return head


def delete_conversation(connection: SqliteConnection, where: Where) -> bool:
    """Delete a conversation, also a damaged one, and what is beside it. False if there was none."""
    _check_key(connection, where.workspace)
    if not _delete_one(connection, where):
        return False
    for place in places_beside(where):
        _delete_one(connection, place)
    return True


def measure_conversations(connection: SqliteConnection, *, workspace: str) -> dict[str, int]:
    """The bytes of records and state of each conversation. SQLite knows a length without reading them."""
    _check_key(connection, workspace)
    rows = connection.run(
        "SELECT name, length(state) + coalesce(sum(length(body)), 0) FROM conversation"
        " LEFT JOIN record ON record.conversation = conversation.id WHERE workspace = ? AND name <> ''"
        " GROUP BY conversation.id",
        (workspace,),
    )
    return dict(rows)


def read_states(connection: SqliteConnection, *, workspace: str) -> dict[str, bytes]:
    """The state of each conversation. Neither its checksum nor its records are looked at."""
    _check_key(connection, workspace)
    rows = connection.run(
        "SELECT name, state FROM conversation WHERE workspace = ? AND name <> ''", (workspace,)
    )
    return dict(rows)


def read_bodies(
    connection: SqliteConnection, *, workspace: str, names: Sequence[str]
) -> dict[str, list[bytes]]:
    """The records of these conversations. Neither their checksums nor their heads are looked at."""
    _check_key(connection, workspace)
    bodies: dict[str, list[bytes]] = {}
    for start in range(0, len(names), _CHUNK):
        chunk = names[start : start + _CHUNK]
        marks = ", ".join("?" * len(chunk))
        sql = (
            "SELECT name, body FROM conversation JOIN record ON record.conversation = conversation.id "  # noqa: S608 - nothing comes from outside
            f"WHERE workspace = ? AND name IN ({marks}) ORDER BY workspace, name, seq"
        )
        for name, body in connection.run(sql, (workspace, *chunk)):
            bodies.setdefault(name, []).append(body)
    return bodies


def read_page(connection: SqliteConnection, where: Where, selection: RecordSelection) -> RecordPage:
    conversation = _load_conversation(connection, where)
    if conversation is None:
        return RecordPage()
    count = conversation.head.count
    places = selection.places(count)
    reads_last = bool(places) and places[-1] + 1 == count
    rows = select_records(connection, conversation.row.id, places, and_after=reads_last)
    try:
        records = check_records(where, places, rows)
    except Damaged as damage:
        raise _damaged(connection, where, conversation.row, damage.problem) from None
    if selection.at is None:  # a read of single places is how intact records are saved, so it is not refused
        _check_all_counted(connection, where, conversation)
    return RecordPage(records=records, head=conversation.head)


def list_conversations(
    connection: SqliteConnection, workspace: str, *, after: str, limit: int
) -> Sequence[ListedConversation]:
    _check_key(connection, workspace)
    sql = (
        f"SELECT {COLUMNS}, {_HAS_UNCOUNTED} FROM conversation "  # noqa: S608 - nothing comes from outside
        "WHERE workspace = ? AND name > ? ORDER BY name LIMIT ?"
    )
    results = connection.run(sql, (workspace, after, limit))
    rows = [ConversationRow(*values) for *values, _ in results]
    if limit:
        check_run(connection, Where(workspace, after), rows, complete=len(rows) < limit)
    for row, (*_, has_uncounted) in zip(rows, results, strict=True):
        if has_uncounted:
            raise Damaged(_UNCOUNTED, conversation=row.name)
    return [ListedConversation(conversation=row.name, count=row.count) for row in rows]


def check_readable(connection: SqliteConnection) -> None:
    """Raise StoreError for a file that is not lamina's, or of another version, before anything is read."""
    if not has_tables(connection):
        raise StoreError("the file holds no conversations", hint="check the path")


def rescue_records(connection: SqliteConnection, where: Where) -> Sequence[Record]:
    """The records that can still be read, also if the head is damaged."""
    _check_key(connection, where.workspace)
    row = find_row(connection, where)
    if row is None:
        check_absent(connection, where)
        return []
    return select_intact_records(connection, where, row.id)


def _load_conversation(connection: SqliteConnection, where: Where) -> StoredConversationState | None:
    """A conversation, checked; None if the chain says that there is none. The key is checked first."""
    results = connection.run(_FIND, (where.workspace, where.conversation))
    if not results:
        _check_key(connection, where.workspace)
        check_absent(connection, where)
        return None
    *values, state, has_uncounted, sealed = results[0]
    check_key(where.workspace, sealed=bool(sealed))
    row = ConversationRow(*values)
    if not row.is_intact() or row.where != where:
        raise _damaged(connection, where, row, "its number of records is not what was written")
    if not isinstance(state, bytes) or Checksums(where).state(state) != row.state_sum:
        raise _damaged(connection, where, row, "its state is not what was written")
    head = StoredHead(count=row.count, state=state)
    return StoredConversationState(row, head, bool(has_uncounted))


def _check_all_counted(
    connection: SqliteConnection, where: Where, conversation: StoredConversationState
) -> None:
    if conversation.has_uncounted:
        raise _damaged(connection, where, conversation.row, _UNCOUNTED)


def _find_repeated(
    connection: SqliteConnection,
    where: Where,
    conversation: StoredConversationState,
    once: Once,
    checksums: Checksums,
) -> StoredHead | None:
    """The answer to an idempotency key that was used before; None for a new key."""
    sql = "SELECT digest, count, sum FROM once WHERE conversation = ? AND key = ?"
    for digest, count, checksum in connection.run(sql, (conversation.row.id, once.key)):
        has_right_types = isinstance(digest, bytes) and isinstance(count, int) and count >= 0
        if not has_right_types or checksums.once(once.key.encode(), digest, count) != checksum:
            problem = f"its idempotency key {once.key!r} is not what was written"
            raise Damaged(problem, conversation=where.conversation)
        check_digest(where, once, digest)
        return StoredHead(count=count, state=conversation.head.state)
    return None


def _insert_records(
    connection: SqliteConnection, where: Where, rows: Sequence[tuple[int, int, bytes, int]]
) -> None:
    try:
        connection.many("INSERT INTO record (conversation, seq, body, sum) VALUES (?, ?, ?, ?)", rows)
    except SqliteFailure as error:
        if error.code != CONSTRAINT:
            raise
        raise Damaged(_UNCOUNTED, conversation=where.conversation) from error


def _insert_once(
    connection: SqliteConnection, conversation_id: int, once: Once, count: int, checksums: Checksums
) -> None:
    checksum = checksums.once(once.key.encode(), once.digest, count)
    sql = "INSERT INTO once (conversation, key, digest, count, sum) VALUES (?, ?, ?, ?, ?)"
    connection.run(sql, (conversation_id, once.key, once.digest, count, checksum))


def _delete_one(connection: SqliteConnection, where: Where) -> bool:
    row = find_row(connection, where)
    if row is None:
        check_absent(connection, where)
        return False
    delete_row(connection, row, where)
    return True


def _check_key(connection: SqliteConnection, workspace: str) -> None:
    """Raise KeyNeeded for a plain name in a sealed store. Each call looks: another process may seal it."""
    if is_sealed_name(workspace):
        return
    [(sealed,)] = connection.run(f"SELECT {_IS_SEALED}")
    check_key(workspace, sealed=bool(sealed))


def _has_plain(connection: SqliteConnection) -> bool:
    sql = "SELECT 1 FROM conversation WHERE name != '' AND (workspace < ? OR workspace >= ?) LIMIT 1"
    return bool(connection.run(sql, (RESERVED, RESERVED_END)))


def _damaged(connection: SqliteConnection, where: Where, row: ConversationRow, problem: str) -> Damaged:
    """The error, with the places of the records that are intact."""
    intact = [record.seq for record in select_intact_records(connection, where, row.id)]
    return Damaged(problem, conversation=where.conversation, whole=intact)


def select_records(
    connection: SqliteConnection,
    conversation_id: int,
    places: Sequence[int],
    *,
    and_after: bool = False,
) -> list[Any]:
    """The rows at these places, in order.

    `and_after`: also a row after the last place of a range, where there should be none.
    """
    if isinstance(places, range):
        return _select_range(connection, conversation_id, places, and_after=and_after)
    rows: list[Any] = []
    for start in range(0, len(places), _CHUNK):
        chunk = places[start : start + _CHUNK]
        marks = ", ".join("?" * len(chunk))
        sql = f"SELECT seq, body, sum FROM record WHERE conversation = ? AND seq IN ({marks}) ORDER BY seq"  # noqa: S608
        rows += connection.run(sql, (conversation_id, *chunk))
    return rows


def _select_range(
    connection: SqliteConnection, conversation_id: int, places: range, *, and_after: bool
) -> list[Any]:
    if not places:
        return []
    if and_after:
        sql = "SELECT seq, body, sum FROM record WHERE conversation = ? AND seq >= ? ORDER BY seq LIMIT ?"
        return connection.run(sql, (conversation_id, places[0], len(places) + 1))
    sql = "SELECT seq, body, sum FROM record WHERE conversation = ? AND seq BETWEEN ? AND ? ORDER BY seq"
    return connection.run(sql, (conversation_id, places[0], places[-1]))


def select_intact_records(connection: SqliteConnection, where: Where, conversation_id: Any) -> list[Record]:
    """The records that are what was written."""
    sql = "SELECT seq, body, sum FROM record WHERE conversation = ? ORDER BY seq"
    return intact_records(where, connection.run(sql, (conversation_id,)))
