"""The operations of the port on the tables, each in a transaction that the caller has begun.

They know no threads, files or commits. If a write raises, the caller undoes it. Everything that is read is
checked against its checksums, and a conversation that is not there must have no records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace as replace_fields

from lamina.errors import Damaged, StoreError
from lamina.stores.checked import NewGroup, RecordSelection, Replacement
from lamina.stores.checks import (
    check_digest,
    check_key,
    check_no_plain,
    is_sealed_name,
)
from lamina.stores.checksums import (
    HEADLESS,
    UNCOUNTED,
    WRONG_COUNT,
    Checksums,
    HeadRow,
    check_records,
    find_head_problem,
    intact_records,
    is_head_intact,
)
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
from lamina.stores.sqlite.connections import SqliteConnection
from lamina.stores.sqlite.schema import has_tables

_IS_SEALED = "SELECT EXISTS (SELECT 1 FROM conversation WHERE workspace = ? AND name = ?)"
_HAS_UNCOUNTED = (
    "EXISTS (SELECT 1 FROM record WHERE record.workspace = conversation.workspace "
    "AND record.conversation = conversation.name AND record.seq >= conversation.count)"
)
_FIND = (
    f"SELECT count, state, state_sum, sum, {_HAS_UNCOUNTED} FROM conversation "  # noqa: S608
    "WHERE workspace = ? AND name = ?"
)
_LIST = (
    f"SELECT name, count, state_sum, sum, {_HAS_UNCOUNTED} FROM conversation "  # noqa: S608
    "WHERE workspace = ? AND name > ? ORDER BY name LIMIT ?"
)
# `recorded` goes from one conversation's records to the next one's, one step through the index for each.
_FIND_HEADLESS = """
    WITH RECURSIVE recorded (name, nth) AS (
        SELECT (SELECT conversation FROM record WHERE workspace = ?1 AND conversation > ?2
            ORDER BY conversation LIMIT 1), 1
        UNION ALL
        SELECT (SELECT conversation FROM record WHERE workspace = ?1 AND conversation > recorded.name
            ORDER BY conversation LIMIT 1), nth + 1
        FROM recorded WHERE name IS NOT NULL AND nth < ?3
    )
    SELECT name FROM recorded WHERE name IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM conversation WHERE conversation.workspace = ?1 AND conversation.name = recorded.name
    ) LIMIT 1"""
_DELETE = (
    "DELETE FROM record WHERE workspace = ? AND conversation = ?",
    "DELETE FROM once WHERE workspace = ? AND conversation = ?",
    "DELETE FROM conversation WHERE workspace = ? AND name = ?",
)
# SQLite writes only those pages of a row whose bytes change, so a state that stays costs nothing.
_UPDATE_HEAD = (
    "UPDATE conversation SET count = ?, state_sum = ?, sum = ?, state = ? WHERE workspace = ? AND name = ?"
)
_REPLACE = "UPDATE record SET body = ?, sum = ? WHERE workspace = ? AND conversation = ? AND seq = ?"
_HAS_RECORDS = "SELECT 1 FROM record WHERE workspace = ? AND conversation = ? LIMIT 1"
_FIND_ONCE = "SELECT digest, count, sum FROM once WHERE workspace = ? AND conversation = ? AND key = ?"
_RECORDS = "SELECT seq, body, sum FROM record WHERE workspace = ? AND conversation = ?"

_CHUNK = 500
"""Places or names in one statement: older builds of SQLite accept 999 values."""


def append_group(connection: SqliteConnection, group: NewGroup) -> StoredHead:
    where = group.where
    once = group.once
    checksums = Checksums(where)
    previous = _load_head(connection, where)
    if previous is None:
        if where == HEADER:
            check_no_plain(plain=_has_plain(connection))
        previous = StoredHead()
        head = group.head_after(previous)
        _insert_head(connection, where, head, checksums)
    else:
        # A group that was added before is answered as it was then, whatever its writer expects now.
        if once is not None:
            repeated = _find_repeated(connection, where, previous, once, checksums)
            if repeated is not None:
                return repeated
        head = group.head_after(previous)
        _update_head(connection, where, head, checksums)
    names = (where.workspace, where.conversation)
    rows = [
        (*names, seq, body, checksums.record(seq, body))
        for seq, body in enumerate(group.records, previous.count)
    ]
    connection.many("INSERT INTO record VALUES (?, ?, ?, ?, ?)", rows)
    if once is not None:
        checksum = checksums.once(once.key.encode(), once.digest, head.count)
        values = (*names, once.key, once.digest, head.count, checksum)
        connection.run("INSERT INTO once VALUES (?, ?, ?, ?, ?, ?)", values)
    return head


def replace_records(connection: SqliteConnection, replacement: Replacement) -> StoredHead:
    where = replacement.where
    previous = _load_head(connection, where)
    if previous is None:
        replacement.raise_missing()
    head = replacement.head_after(previous)
    checksums = Checksums(where)
    values = (
        (body, checksums.record(seq, body), where.workspace, where.conversation, seq)
        for seq, body in replacement.bodies.items()
    )
    connection.many(_REPLACE, values)
    if replacement.state is not None:
        _update_head(connection, where, head, checksums)
    return head


def delete_conversation(connection: SqliteConnection, where: Where) -> bool:
    """Delete a conversation, also a damaged one, and what is beside it. False if there was none."""
    _check_key(connection, where.workspace)
    exists = bool(connection.run(_FIND, _names_of(where))) or _has_records(connection, where)
    if exists:
        for place in (where, *places_beside(where)):
            for statement in _DELETE:
                connection.run(statement, _names_of(place))
    return exists


def measure_conversations(connection: SqliteConnection, *, workspace: str) -> dict[str, int]:
    """The bytes of records and state of each conversation. SQLite knows a length without reading them."""
    _check_key(connection, workspace)
    rows = connection.run(
        "SELECT name, length(state) + coalesce((SELECT sum(length(body)) FROM record"
        " WHERE record.workspace = conversation.workspace AND record.conversation = conversation.name), 0)"
        " FROM conversation WHERE workspace = ?",
        (workspace,),
    )
    return dict(rows)


def read_states(connection: SqliteConnection, *, workspace: str) -> dict[str, bytes]:
    """The state of each conversation. Neither its checksum nor its records are looked at."""
    _check_key(connection, workspace)
    return dict(connection.run("SELECT name, state FROM conversation WHERE workspace = ?", (workspace,)))


def read_bodies(
    connection: SqliteConnection, *, workspace: str, names: Sequence[str]
) -> dict[str, list[bytes]]:
    """The records of these conversations. Neither their checksums nor their heads are looked at."""
    _check_key(connection, workspace)
    bodies: dict[str, list[bytes]] = {}
    for start in range(0, len(names), _CHUNK):
        chunk = names[start : start + _CHUNK]
        sql = (
            "SELECT conversation, body FROM record "  # noqa: S608 - nothing comes from outside
            f"WHERE workspace = ? AND conversation IN ({_list_marks(chunk)}) ORDER BY conversation, seq"
        )
        for name, body in connection.run(sql, (workspace, *chunk)):
            bodies.setdefault(name, []).append(body)
    return bodies


def read_page(connection: SqliteConnection, where: Where, selection: RecordSelection) -> RecordPage:
    row = _find_row(connection, where)
    if row is None:
        return RecordPage()
    head = _check_row(connection, where, replace_fields(row, has_uncounted=False))
    places = selection.places(head.count)
    try:
        records = check_records(where, places, _select_records(connection, where, places))
    except Damaged as damage:
        raise _damaged(connection, where, damage.problem) from None
    if row.has_uncounted and selection.at is None:  # single places are how intact records are saved
        raise _damaged(connection, where, UNCOUNTED)
    return RecordPage(records=records, head=head)


def list_conversations(
    connection: SqliteConnection, workspace: str, *, after: str, limit: int
) -> Sequence[ListedConversation]:
    _check_key(connection, workspace)
    for (name,) in connection.run(_FIND_HEADLESS, (workspace, after, limit)):
        raise Damaged(HEADLESS, conversation=str(name))
    conversations: list[ListedConversation] = []
    for name, count, state_sum, checksum, has_uncounted in connection.run(_LIST, (workspace, after, limit)):
        if not is_head_intact(Checksums(Where(workspace, name)), count, state_sum, checksum):
            raise Damaged(WRONG_COUNT, conversation=name)
        if has_uncounted:
            raise Damaged(UNCOUNTED, conversation=name)
        conversations.append(ListedConversation(conversation=name, count=count))
    return conversations


def check_readable(connection: SqliteConnection) -> None:
    """Raise StoreError for a file that is not lamina's, or of another version, before anything is read."""
    if not has_tables(connection):
        raise StoreError("the file holds no conversations", hint="check the path")


def rescue_records(connection: SqliteConnection, where: Where) -> Sequence[Record]:
    """The records that can still be read, also if the head is damaged."""
    _check_key(connection, where.workspace)
    return _select_intact_records(connection, where)


def _names_of(where: Where) -> tuple[str, str]:
    return where.workspace, where.conversation


def _load_head(connection: SqliteConnection, where: Where) -> StoredHead | None:
    """The head of a conversation, checked; None if there is none."""
    row = _find_row(connection, where)
    if row is None:
        return None
    return _check_row(connection, where, row)


def _find_row(connection: SqliteConnection, where: Where) -> HeadRow | None:
    """The row of a conversation as it is; None if there is none. The key is checked first."""
    _check_key(connection, where.workspace)
    for values in connection.run(_FIND, _names_of(where)):
        return HeadRow(*values)
    if _has_records(connection, where):
        raise _damaged(connection, where, HEADLESS)
    return None


def _check_row(connection: SqliteConnection, where: Where, row: HeadRow) -> StoredHead:
    problem = find_head_problem(where, row)
    if problem:
        raise _damaged(connection, where, problem)
    return StoredHead(count=row.count, state=row.state)


def _insert_head(connection: SqliteConnection, where: Where, head: StoredHead, checksums: Checksums) -> None:
    state_sum = checksums.state(head.state)
    checksum = checksums.head(head.count, state_sum)
    values = (*_names_of(where), head.count, state_sum, checksum, head.state)
    connection.run("INSERT INTO conversation VALUES (?, ?, ?, ?, ?, ?)", values)


def _update_head(connection: SqliteConnection, where: Where, head: StoredHead, checksums: Checksums) -> None:
    state_sum = checksums.state(head.state)
    checksum = checksums.head(head.count, state_sum)
    values = (head.count, state_sum, checksum, head.state, *_names_of(where))
    connection.run(_UPDATE_HEAD, values)


def _find_repeated(
    connection: SqliteConnection, where: Where, head: StoredHead, once: Once, checksums: Checksums
) -> StoredHead | None:
    """The answer to an idempotency key that was used before; None for a new key."""
    for digest, count, checksum in connection.run(_FIND_ONCE, (*_names_of(where), once.key)):
        has_right_types = isinstance(digest, bytes) and isinstance(count, int) and count >= 0
        if not has_right_types or checksums.once(once.key.encode(), digest, count) != checksum:
            problem = f"its idempotency key {once.key!r} is not what was written"
            raise Damaged(problem, conversation=where.conversation)
        check_digest(where, once, digest)
        return StoredHead(count=count, state=head.state)
    return None


def _check_key(connection: SqliteConnection, workspace: str) -> None:
    """Raise KeyNeeded for a plain name in a sealed store. Each call looks: another process may seal it."""
    if is_sealed_name(workspace):
        return
    [(sealed,)] = connection.run(_IS_SEALED, _names_of(HEADER))
    check_key(workspace, sealed=bool(sealed))


def _has_plain(connection: SqliteConnection) -> bool:
    sql = "SELECT 1 FROM conversation WHERE workspace < ? OR workspace >= ? LIMIT 1"
    return bool(connection.run(sql, (RESERVED, RESERVED_END)))


def _has_records(connection: SqliteConnection, where: Where) -> bool:
    return bool(connection.run(_HAS_RECORDS, _names_of(where)))


def _damaged(connection: SqliteConnection, where: Where, problem: str) -> Damaged:
    """The error, with the places of the records that are intact."""
    intact = [record.seq for record in _select_intact_records(connection, where)]
    return Damaged(problem, conversation=where.conversation, whole=intact)


def _select_records(connection: SqliteConnection, where: Where, places: Sequence[int]) -> list[Any]:
    """The rows at these places, in order."""
    names = _names_of(where)
    if isinstance(places, range):
        if not places:
            return []
        sql = f"{_RECORDS} AND seq BETWEEN ? AND ? ORDER BY seq"
        return connection.run(sql, (*names, places[0], places[-1]))
    rows: list[Any] = []
    for start in range(0, len(places), _CHUNK):
        chunk = places[start : start + _CHUNK]
        rows += connection.run(f"{_RECORDS} AND seq IN ({_list_marks(chunk)}) ORDER BY seq", (*names, *chunk))
    return rows


def _select_intact_records(connection: SqliteConnection, where: Where) -> list[Record]:
    return intact_records(where, connection.run(f"{_RECORDS} ORDER BY seq", _names_of(where)))


def _list_marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))
