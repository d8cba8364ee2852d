"""What the store does to its tables: plain functions, each inside a transaction that the caller opens.

They know nothing of threads, files or commits. A write that raises leaves the undoing to its caller.

Everything that is read is checked against its sums, and what is not there is looked for in the chain of
conversations (`schema` has its picture): the one before it has to say that the next one comes later. Tables
of an older release have neither; they can be read as they are, and are brought up before the first write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from lamina.errors import Damaged, StoreError
from lamina.stores.checksums import Found, Sums, is_whole, records_of
from lamina.stores.memory import (
    check_digest,
    check_head,
    check_key,
    check_there,
    check_unmixed,
    is_sealed_name,
    places,
)
from lamina.stores.port import (
    HEADER,
    RESERVED,
    RESERVED_END,
    Listed,
    Once,
    RecordPage,
    StoredHead,
    Where,
    search_place,
)
from lamina.stores.sqlite.links import CONSTRAINT, Link, SqliteFailure
from lamina.stores.sqlite.schema import NEWEST, WITH_SUMS, next_fields, version_of

_CHUNK = 500
"""Places asked for in one statement; older builds of SQLite take 999 values."""

_COLUMNS = "id, workspace, name, count, next_workspace, next_name, state_sum, sum"
_SEALED = (
    "EXISTS (SELECT 1 FROM conversation "  # noqa: S608 - all of it stands here
    f"WHERE workspace = '{HEADER.workspace}' AND name = '{HEADER.conversation}')"
)
_BEHIND = (
    "EXISTS (SELECT 1 FROM record "
    "WHERE record.conversation = conversation.id AND record.seq >= conversation.count)"
)
"""Whether there are records that a head does not count: then it is of an earlier time, or one is not ours."""

_FIND = (
    f"SELECT {_COLUMNS}, state, {_BEHIND}, {_SEALED} "  # noqa: S608 - all of it stands here
    "FROM conversation WHERE workspace = ? AND name = ?"
)
_MORE = "there are more records than its head says"


class ConversationRow(msgspec.Struct, frozen=True):
    """The row of a conversation, as it was read: a damaged one can hold anything."""

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
        return None if self.next_workspace is None else Where(self.next_workspace, self.next_name)

    def is_whole(self) -> bool:
        texts = [self.workspace, self.name]
        if self.next_workspace is not None or self.next_name is not None:
            texts += [self.next_workspace, self.next_name]
        if not all(isinstance(text, str) for text in texts):
            return False
        for number in (self.count, self.state_sum):
            if not isinstance(number, int) or number < 0:
                return False
        more = next_fields(self.following)
        return bool(Sums(self.where).head(self.count, self.state_sum, *more) == self.sum)


class ConversationState(msgspec.Struct, frozen=True):
    """A conversation: its row, its head, and whether there are records behind what the head counts."""

    row: ConversationRow
    head: StoredHead
    behind: bool


def append(
    link: Link,
    where: Where,
    records: Sequence[bytes],
    *,
    expect: int | None,
    was: bytes | None,
    once: Once | None,
    state: bytes | None,
) -> StoredHead:
    kept = _found(link, where)
    if kept is None and where == HEADER:
        check_unmixed(plain=_has_plain(link))
    if kept is not None:
        _check_newest(link, where, kept)
    sums = Sums(where)
    if kept is not None and once is not None:
        earlier = _answered(link, where, kept, once, sums)
        if earlier is not None:
            return earlier
    head = StoredHead() if kept is None else kept.head
    check_head(where, head, expect=expect, was=was)
    new = StoredHead(count=head.count + len(records), state=head.state if state is None else state)
    if kept is None:
        number = _insert(link, where, new, sums)
    else:
        number = kept.row.id
        _update(link, kept.row, new, sums, same_state=state is None)
    rows = [(number, seq, body, sums.record(seq, body)) for seq, body in enumerate(records, head.count)]
    _insert_records(link, where, rows)
    if once is not None:
        sql = "INSERT INTO once (conversation, key, digest, count, sum) VALUES (?, ?, ?, ?, ?)"
        sum_ = sums.once(once.key.encode(), once.digest, new.count)
        link.run(sql, (number, once.key, once.digest, new.count, sum_))
    return new


def _insert_records(link: Link, where: Where, rows: Sequence[tuple[int, int, bytes, int]]) -> None:
    try:
        link.many("INSERT INTO record (conversation, seq, body, sum) VALUES (?, ?, ?, ?)", rows)
    except SqliteFailure as error:
        if error.code != CONSTRAINT:
            raise
        raise Damaged(_MORE, conversation=where.conversation) from error


def replace(
    link: Link,
    where: Where,
    bodies: Mapping[int, bytes],
    *,
    expect: int,
    was: bytes | None,
    state: bytes | None,
) -> StoredHead:
    kept = _found(link, where)
    check_there(where, None if kept is None else kept.head, expect=expect, was=was)
    if kept is None:
        return StoredHead()
    _check_newest(link, where, kept)
    sums = Sums(where)
    rows = ((body, sums.record(seq, body), kept.row.id, seq) for seq, body in bodies.items())
    link.many("UPDATE record SET body = ?, sum = ? WHERE conversation = ? AND seq = ?", rows)
    if state is None:
        return kept.head
    new = StoredHead(count=kept.head.count, state=state)
    _update(link, kept.row, new, sums, same_state=False)
    return new


def delete(link: Link, where: Where) -> bool:
    """Takes a conversation and its search index out of the chain and every table; a damaged one, too."""
    _check_key(link, where.workspace)
    if not _delete_one(link, where):
        return False
    index = search_place(where)
    if index is not None:
        _delete_one(link, index)
    return True


def _delete_one(link: Link, where: Where) -> bool:
    row = _row(link, where)
    if row is None:
        _check_absent(link, where)
        return False
    before = _whole(_last_before(link, where))
    following = row.following if row.is_whole() else _next_in_table(link, where)
    _link_to(link, before, following)
    link.run("DELETE FROM conversation WHERE id = ?", (row.id,))
    return True


def read(
    link: Link, where: Where, *, after: int, last: int | None, at: Sequence[int] | None, limit: int | None
) -> RecordPage:
    if not _has_sums(link):
        return _read_older(link, where, after=after, last=last, at=at, limit=limit)
    kept = _found(link, where)
    if kept is None:
        return RecordPage()
    meant = places(kept.head.count, after=after, last=last, at=at, limit=limit)
    found = _records(link, kept.row.id, meant, "seq, body, sum", to_the_end=_ends(meant, kept.head))
    try:
        records = records_of(where, meant, found, Sums(where))
    except Damaged as damage:
        raise _explained(link, where, kept.row, damage.problem) from None
    if at is None:  # who asks for single places saves what is whole
        _check_newest(link, where, kept)
    return RecordPage(records=records, head=kept.head)


def listed(link: Link, workspace: str, *, after: str, limit: int) -> Sequence[Listed]:
    has_sums = _has_sums(link)
    _check_key(link, workspace)
    if not has_sums:
        return _list_older(link, workspace, after=after, limit=limit)
    sql = (
        f"SELECT {_COLUMNS}, {_BEHIND} FROM conversation "  # noqa: S608 - all of it stands here
        "WHERE workspace = ? AND name > ? ORDER BY name LIMIT ?"
    )
    found = link.run(sql, (workspace, after, limit))
    rows = [ConversationRow(*values) for *values, _ in found]
    if limit:
        _check_run(link, Where(workspace, after), rows, ends=len(rows) < limit)
    for row, (*_, behind) in zip(rows, found, strict=True):
        if behind:
            raise Damaged(_MORE, conversation=row.name)
    return [Listed(conversation=row.name, count=row.count) for row in rows]


def check_readable(link: Link) -> None:
    """Refuses a file that is not lamina's, or newer, before anything is read from it."""
    if not version_of(link):
        raise StoreError("the file holds no conversations", hint="check the path")


def whole_records(link: Link, where: Where) -> Sequence[tuple[int, bytes]]:
    """What can still be read of a conversation whose head may be damaged: place and body of each record."""
    has_sums = _has_sums(link)
    _check_key(link, where.workspace)
    if not has_sums:
        sql = (
            "SELECT seq, body FROM record WHERE conversation = "
            "(SELECT id FROM conversation WHERE workspace = ? AND name = ?) ORDER BY seq"
        )
        return link.run(sql, (where.workspace, where.conversation))
    row = _row(link, where)
    if row is None:
        _check_absent(link, where)
        return []
    found = link.run("SELECT seq, body, sum FROM record WHERE conversation = ? ORDER BY seq", (row.id,))
    sums = Sums(where)
    return [(seq, body) for seq, body, sum_ in found if is_whole(sums, (seq, body, sum_))]


# Seals.


def _check_key(link: Link, workspace: str) -> None:
    """Refuses a plain name in a sealed store; whether it is sealed is asked each time: it can change."""
    if is_sealed_name(workspace):
        return
    [(sealed,)] = link.run(f"SELECT {_SEALED}")
    check_key(workspace, sealed=bool(sealed))


def _has_plain(link: Link) -> bool:
    sql = "SELECT 1 FROM conversation WHERE name != '' AND (workspace < ? OR workspace >= ?) LIMIT 1"
    return bool(link.run(sql, (RESERVED, RESERVED_END)))


# Heads.


def _row(link: Link, where: Where) -> ConversationRow | None:
    sql = f"SELECT {_COLUMNS} FROM conversation WHERE workspace = ? AND name = ?"  # noqa: S608
    for values in link.run(sql, (where.workspace, where.conversation)):
        return ConversationRow(*values)
    return None


def _found(link: Link, where: Where) -> ConversationState | None:
    """A conversation, checked; None if the chain says that there is none. KeyNeeded before all else."""
    for *values, state, behind, sealed in link.run(_FIND, (where.workspace, where.conversation)):
        check_key(where.workspace, sealed=bool(sealed))
        row = ConversationRow(*values)
        if not row.is_whole() or row.where != where:
            raise _explained(link, where, row, "its number of records is not what was written")
        if not isinstance(state, bytes) or Sums(where).state(state) != row.state_sum:
            raise _explained(link, where, row, "its state is not what was written")
        return ConversationState(row, StoredHead(count=row.count, state=state), bool(behind))
    _check_key(link, where.workspace)
    _check_absent(link, where)
    return None


def _check_newest(link: Link, where: Where, kept: ConversationState) -> None:
    if kept.behind:
        raise _explained(link, where, kept.row, _MORE)


def _answered(link: Link, where: Where, kept: ConversationState, once: Once, sums: Sums) -> StoredHead | None:
    """What an idempotency key is answered with that came before."""
    sql = "SELECT digest, count, sum FROM once WHERE conversation = ? AND key = ?"
    for digest, count, sum_ in link.run(sql, (kept.row.id, once.key)):
        typed = isinstance(digest, bytes) and isinstance(count, int) and count >= 0
        if not typed or sums.once(once.key.encode(), digest, count) != sum_:
            problem = f"its idempotency key {once.key!r} is not what was written"
            raise Damaged(problem, conversation=where.conversation)
        check_digest(where, once, digest)
        return StoredHead(count=count, state=kept.head.state)
    return None


def _insert(link: Link, where: Where, head: StoredHead, sums: Sums) -> int:
    """A new conversation, behind the one that comes before it in order; its number."""
    before = _whole(_last_before(link, where))
    following = before.following
    state_sum = sums.state(head.state)
    sum_ = sums.head(head.count, state_sum, *next_fields(following))
    names = (where.workspace, where.conversation, head.count, *_names_of(following))
    sql = (
        "INSERT INTO conversation (workspace, name, count, next_workspace, next_name, state_sum, sum, state) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    )
    link.run(sql, (*names, state_sum, sum_, head.state))
    [(number,)] = link.run("SELECT last_insert_rowid()")
    _link_to(link, before, where)
    return int(number)


def _update(link: Link, row: ConversationRow, head: StoredHead, sums: Sums, *, same_state: bool) -> None:
    more = next_fields(row.following)
    if same_state:
        sum_ = sums.head(head.count, row.state_sum, *more)
        link.run("UPDATE conversation SET count = ?, sum = ? WHERE id = ?", (head.count, sum_, row.id))
        return
    state_sum = sums.state(head.state)
    values = (head.count, state_sum, sums.head(head.count, state_sum, *more), head.state, row.id)
    link.run("UPDATE conversation SET count = ?, state_sum = ?, sum = ?, state = ? WHERE id = ?", values)


# The chain.


def _check_absent(link: Link, where: Where) -> None:
    """Raises if the chain has a link where this conversation would stand: then its row was lost."""
    before = _whole(_last_before(link, where))
    following = before.following
    if following is not None and following <= where:
        problem = "the index of the file is damaged: a conversation that was kept there cannot be found"
        raise Damaged(problem, conversation=following.conversation)


def _last_before(link: Link, where: Where) -> ConversationRow | None:
    sql = (
        f"SELECT {_COLUMNS} FROM conversation WHERE (workspace, name) < (?, ?) "  # noqa: S608
        "ORDER BY workspace DESC, name DESC LIMIT 1"
    )
    for values in link.run(sql, (where.workspace, where.conversation)):
        return ConversationRow(*values)
    return None


def _next_in_table(link: Link, where: Where) -> Where | None:
    """The one that really comes next, where the row that should say so is damaged."""
    sql = (
        "SELECT workspace, name FROM conversation WHERE (workspace, name) > (?, ?) "
        "ORDER BY workspace, name LIMIT 1"
    )
    for workspace, name in link.run(sql, (where.workspace, where.conversation)):
        return Where(workspace, name)
    return None


def _whole(row: ConversationRow | None) -> ConversationRow:
    """A link of the chain, if it is what was written."""
    if row is None:
        raise Damaged("the index of the file is damaged: its first entry is gone")
    if not row.is_whole():
        name = row.name if isinstance(row.name, str) else ""
        raise Damaged("its entry in the index of the file is not what was written", conversation=name)
    return row


def _link_to(link: Link, row: ConversationRow, following: Where | None) -> None:
    """Makes another conversation the next one of a row that is whole."""
    sum_ = Sums(row.where).head(row.count, row.state_sum, *next_fields(following))
    sql = "UPDATE conversation SET next_workspace = ?, next_name = ?, sum = ? WHERE id = ?"
    link.run(sql, (*_names_of(following), sum_, row.id))


def _names_of(where: Where | None) -> tuple[str | None, str | None]:
    return (None, None) if where is None else (where.workspace, where.conversation)


def _check_run(link: Link, after: Where, rows: Iterable[ConversationRow], *, ends: bool) -> None:
    """Whether these are the conversations that follow a name, without a gap; `ends`: up to the last one."""
    start = _row(link, after)  # the name itself need not be one
    before = _whole(start if start is not None else _last_before(link, after))
    for row in rows:
        if _whole(row).where != before.following:
            raise _gap(before)
        before = row
    following = before.following
    if ends and following is not None and following.workspace == after.workspace:
        raise _gap(before)


def _gap(before: ConversationRow) -> Damaged:
    following = before.following
    name = "" if following is None else following.conversation
    return Damaged("the index of the file is damaged: it is not found where it should be", conversation=name)


# Records.


def _ends(meant: Sequence[int], head: StoredHead) -> bool:
    """Whether the last record is among these."""
    return bool(meant) and meant[-1] + 1 == head.count


def _records(
    link: Link, number: int, meant: Sequence[int], columns: str, *, to_the_end: bool = False
) -> list[Any]:
    """The rows of these places. `to_the_end`: with what stands behind the last one, where nothing should."""
    if isinstance(meant, range):
        return _run_of(link, number, meant, columns, to_the_end=to_the_end)
    rows: list[Any] = []
    for start in range(0, len(meant), _CHUNK):
        some = meant[start : start + _CHUNK]
        marks = ", ".join("?" * len(some))
        sql = f"SELECT {columns} FROM record WHERE conversation = ? AND seq IN ({marks}) ORDER BY seq"  # noqa: S608
        rows += link.run(sql, (number, *some))
    return rows


def _run_of(link: Link, number: int, meant: range, columns: str, *, to_the_end: bool) -> list[Any]:
    if not meant:
        return []
    if to_the_end:
        sql = f"SELECT {columns} FROM record WHERE conversation = ? AND seq >= ? ORDER BY seq LIMIT ?"  # noqa: S608
        return link.run(sql, (number, meant[0], len(meant) + 1))
    sql = f"SELECT {columns} FROM record WHERE conversation = ? AND seq BETWEEN ? AND ? ORDER BY seq"  # noqa: S608
    return link.run(sql, (number, meant[0], meant[-1]))


def _explained(link: Link, where: Where, row: ConversationRow, problem: str) -> Damaged:
    """The error, with the records that are whole."""
    found = link.run("SELECT seq, body, sum FROM record WHERE conversation = ? ORDER BY seq", (row.id,))
    sums = Sums(where)
    whole = [seq for seq, body, sum_ in found if is_whole(sums, (seq, body, sum_))]
    return Damaged(problem, conversation=where.conversation, whole=whole)


# Tables of an older release.


def _has_sums(link: Link) -> bool:
    """Whether these tables have sums. Once they do, they do for ever, so this is asked once a connection."""
    if link.version < NEWEST:
        link.version = version_of(link)
    return link.version >= WITH_SUMS


def _read_older(
    link: Link, where: Where, *, after: int, last: int | None, at: Sequence[int] | None, limit: int | None
) -> RecordPage:
    _check_key(link, where.workspace)
    sql = "SELECT id, count, state FROM conversation WHERE workspace = ? AND name = ?"
    for number, count, state in link.run(sql, (where.workspace, where.conversation)):
        if not isinstance(count, int) or not isinstance(state, bytes):
            raise Damaged("its head is not what was written", conversation=where.conversation)
        meant = places(count, after=after, last=last, at=at, limit=limit)
        found: list[Found] = _records(link, number, meant, "seq, body, NULL")
        return RecordPage(
            records=records_of(where, meant, found, None), head=StoredHead(count=count, state=state)
        )
    return RecordPage()


def _list_older(link: Link, workspace: str, *, after: str, limit: int) -> Sequence[Listed]:
    sql = "SELECT name, count FROM conversation WHERE workspace = ? AND name > ? ORDER BY name LIMIT ?"
    return [
        Listed(conversation=name, count=count) for name, count in link.run(sql, (workspace, after, limit))
    ]
