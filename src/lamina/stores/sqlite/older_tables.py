"""Reading tables of an older release, which have no checksums and no chain.

They are read as they are. `schema` brings them up to date before the first write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamina.errors import Damaged
from lamina.stores.checked import RecordSelection
from lamina.stores.checksums import StoredRow, check_records
from lamina.stores.port import ListedConversation, RecordPage, StoredHead, Where
from lamina.stores.sqlite.connections import SqliteConnection
from lamina.stores.sqlite.record_rows import select_records
from lamina.stores.sqlite.schema import NEWEST, WITH_SUMS, version_of


def has_checksums(connection: SqliteConnection) -> bool:
    """Whether the tables have checksums. Tables never lose them, so each connection looks only once."""
    if connection.version < NEWEST:
        connection.version = version_of(connection)
    return connection.version >= WITH_SUMS


def read_older_page(connection: SqliteConnection, where: Where, selection: RecordSelection) -> RecordPage:
    sql = "SELECT id, count, state FROM conversation WHERE workspace = ? AND name = ?"
    for conversation_id, count, state in connection.run(sql, (where.workspace, where.conversation)):
        if not isinstance(count, int) or not isinstance(state, bytes):
            raise Damaged("its head is not what was written", conversation=where.conversation)
        places = selection.places(count)
        rows: list[StoredRow] = select_records(connection, conversation_id, places, "seq, body, NULL")
        records = check_records(where, places, rows, None)
        return RecordPage(records=records, head=StoredHead(count=count, state=state))
    return RecordPage()


def list_older_conversations(
    connection: SqliteConnection, workspace: str, *, after: str, limit: int
) -> Sequence[ListedConversation]:
    sql = "SELECT name, count FROM conversation WHERE workspace = ? AND name > ? ORDER BY name LIMIT ?"
    rows = connection.run(sql, (workspace, after, limit))
    return [ListedConversation(conversation=name, count=count) for name, count in rows]


def select_older_records(connection: SqliteConnection, where: Where) -> list[Any]:
    """Place and body of every record."""
    sql = (
        "SELECT seq, body FROM record WHERE conversation = "
        "(SELECT id FROM conversation WHERE workspace = ? AND name = ?) ORDER BY seq"
    )
    return connection.run(sql, (where.workspace, where.conversation))
