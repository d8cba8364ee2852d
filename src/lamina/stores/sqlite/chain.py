"""The rows of `conversation`, which form a chain: each names the next one in order.

`schema` has the picture. The chain shows rows that were lost: the row before a conversation has to say that
the next one comes later. Everything here runs in a transaction that the caller has begun.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from lamina.errors import Damaged
from lamina.stores.checksums import Checksums
from lamina.stores.port import StoredHead, Where
from lamina.stores.sqlite.connections import SqliteConnection

COLUMNS = "id, workspace, name, count, next_workspace, next_name, state_sum, sum"
"""The columns of a `ConversationRow`, in its order."""


class ConversationRow(msgspec.Struct, frozen=True):
    """The row of a conversation as it was read. In a damaged file it can hold anything."""

    id: Any
    workspace: Any
    name: Any
    count: Any
    next_workspace: Any
    next_name: Any
    state_sum: Any
    sum: Any

    @property
    def where(self) -> Where:
        return Where(self.workspace, self.name)

    @property
    def following(self) -> Where | None:
        """The next conversation in order; None at the end of the chain."""
        if self.next_workspace is None:
            return None
        return Where(self.next_workspace, self.next_name)

    def is_intact(self) -> bool:
        """Whether the row is as it was written."""
        if not self._has_right_types():
            return False
        checksum = Checksums(self.where).head(self.count, self.state_sum, *_next_fields(self.following))
        return bool(checksum == self.sum)

    def _has_right_types(self) -> bool:
        """Whether names are text and numbers are not negative. In a damaged table they can be anything."""
        texts = [self.workspace, self.name]
        if self.next_workspace is not None or self.next_name is not None:
            texts += [self.next_workspace, self.next_name]
        if not all(isinstance(text, str) for text in texts):
            return False
        numbers = [self.count, self.state_sum]
        return all(isinstance(number, int) and number >= 0 for number in numbers)


def _next_fields(following: Where | None) -> tuple[bytes, ...]:
    """The fields that the checksum of a conversation covers besides its head: which one comes next."""
    if following is None:
        return ()
    return following.workspace.encode(), following.conversation.encode()


def find_row(connection: SqliteConnection, where: Where) -> ConversationRow | None:
    """The row of a conversation, not checked; None if there is none."""
    sql = f"SELECT {COLUMNS} FROM conversation WHERE workspace = ? AND name = ?"  # noqa: S608
    for values in connection.run(sql, (where.workspace, where.conversation)):
        return ConversationRow(*values)
    return None


def check_absent(connection: SqliteConnection, where: Where) -> None:
    """Raise Damaged if the chain names a conversation at this place: then its row was lost."""
    following = _row_before(connection, where).following
    if following is not None and following <= where:
        raise Damaged(
            "the index of the file is damaged: a conversation that was stored there cannot be found",
            conversation=following.conversation,
        )


def insert_row(connection: SqliteConnection, where: Where, head: StoredHead, checksums: Checksums) -> int:
    """Insert a new conversation after the one that comes before it in order, and return its id."""
    before = _row_before(connection, where)
    following = before.following
    state_sum = checksums.state(head.state)
    checksum = checksums.head(head.count, state_sum, *_next_fields(following))
    sql = (
        "INSERT INTO conversation (workspace, name, count, next_workspace, next_name, state_sum, sum, state) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    )
    connection.run(
        sql,
        (
            where.workspace,
            where.conversation,
            head.count,
            *_columns_of(following),
            state_sum,
            checksum,
            head.state,
        ),
    )
    [(row_id,)] = connection.run("SELECT last_insert_rowid()")
    _set_following(connection, before, where)
    return int(row_id)


def update_row(
    connection: SqliteConnection,
    row: ConversationRow,
    head: StoredHead,
    checksums: Checksums,
    *,
    same_state: bool,
) -> None:
    """Write a new head. `same_state`: the state has not changed, and is not written again."""
    more = _next_fields(row.following)
    if same_state:
        checksum = checksums.head(head.count, row.state_sum, *more)
        sql = "UPDATE conversation SET count = ?, sum = ? WHERE id = ?"
        connection.run(sql, (head.count, checksum, row.id))
        return
    state_sum = checksums.state(head.state)
    checksum = checksums.head(head.count, state_sum, *more)
    sql = "UPDATE conversation SET count = ?, state_sum = ?, sum = ?, state = ? WHERE id = ?"
    connection.run(sql, (head.count, state_sum, checksum, head.state, row.id))


def delete_row(connection: SqliteConnection, row: ConversationRow, where: Where) -> None:
    """Take a conversation out of the chain and its table, also if its row is damaged."""
    before = _row_before(connection, where)
    following = row.following if row.is_intact() else _following_in_table(connection, where)
    _set_following(connection, before, following)
    connection.run("DELETE FROM conversation WHERE id = ?", (row.id,))


def check_run(
    connection: SqliteConnection, after: Where, rows: Iterable[ConversationRow], *, complete: bool
) -> None:
    """Raise Damaged unless these are the conversations that follow a name, without a gap.

    `complete`: these are all that follow it in its workspace.
    """
    before = find_row(connection, after)  # there need not be a conversation of this name
    if before is None:
        before = _row_before(connection, after)
        if before.following is not None and before.following <= after:
            raise _gap_after(before)  # a row between the two cannot be found
    else:
        check_row(before)
    for row in rows:
        check_row(row)
        if row.where != before.following:
            raise _gap_after(before)
        before = row
    following = before.following
    if complete and following is not None and following.workspace == after.workspace:
        raise _gap_after(before)


def check_row(row: ConversationRow) -> None:
    """Raise Damaged if a row is not what was written."""
    if row.is_intact():
        return
    name = ""
    if isinstance(row.name, str):
        name = row.name
    raise Damaged("its entry in the index of the file is not what was written", conversation=name)


def _row_before(connection: SqliteConnection, where: Where) -> ConversationRow:
    """The last row before this place, checked. There is always one: the first one has no name."""
    sql = (
        f"SELECT {COLUMNS} FROM conversation WHERE (workspace, name) < (?, ?) "  # noqa: S608
        "ORDER BY workspace DESC, name DESC LIMIT 1"
    )
    for values in connection.run(sql, (where.workspace, where.conversation)):
        row = ConversationRow(*values)
        check_row(row)
        return row
    raise Damaged("the index of the file is damaged: its first entry is gone")


def _following_in_table(connection: SqliteConnection, where: Where) -> Where | None:
    """The conversation that really comes next, if the row that should name it is damaged."""
    sql = (
        "SELECT workspace, name FROM conversation WHERE (workspace, name) > (?, ?) "
        "ORDER BY workspace, name LIMIT 1"
    )
    for workspace, name in connection.run(sql, (where.workspace, where.conversation)):
        return Where(workspace, name)
    return None


def _set_following(connection: SqliteConnection, row: ConversationRow, following: Where | None) -> None:
    """Make another conversation the next one of an intact row."""
    checksum = Checksums(row.where).head(row.count, row.state_sum, *_next_fields(following))
    sql = "UPDATE conversation SET next_workspace = ?, next_name = ?, sum = ? WHERE id = ?"
    connection.run(sql, (*_columns_of(following), checksum, row.id))


def _columns_of(where: Where | None) -> tuple[str | None, str | None]:
    """A place as two columns; both are NULL for the end of the chain."""
    if where is None:
        return None, None
    return where.workspace, where.conversation


def _gap_after(row: ConversationRow) -> Damaged:
    """The error for a conversation that the chain names and the index does not find."""
    name = ""
    if row.following is not None:
        name = row.following.conversation
    return Damaged("the index of the file is damaged: it is not found where it should be", conversation=name)
