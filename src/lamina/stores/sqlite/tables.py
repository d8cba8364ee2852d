"""What the store does to its tables: plain functions, each inside a transaction that the caller opens.

They know nothing of threads, files or commits. A write that raises leaves the undoing to its caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lamina.stores.memory import check_digest, check_head, check_there, places
from lamina.stores.port import Head, Listed, Once, Page, Record, Where
from lamina.stores.sqlite.links import Link

_CHUNK = 500
"""Places asked for in one statement; older builds of SQLite take 999 values."""


def append(
    link: Link, where: Where, records: Sequence[bytes], *, expect: int | None, was: bytes | None,
    once: Once | None, state: bytes | None,
) -> Head:  # fmt: skip
    row, head = _found(link, where)
    if once is not None and row is not None and (first := _first_time(link, where, row, head, once)):
        return first
    check_head(where, head, expect=expect, was=was)
    new = Head(count=head.count + len(records), state=head.state if state is None else state)
    row = _saved(link, where, row, new, known=state is None)
    rows = ((row, seq, body) for seq, body in enumerate(records, head.count))
    link.many("INSERT INTO record (conversation, seq, body) VALUES (?, ?, ?)", rows)
    if once is not None:
        sql = "INSERT INTO once (conversation, key, digest, count) VALUES (?, ?, ?, ?)"
        link.run(sql, (row, once.key, once.digest, new.count))
    return new


def _found(link: Link, where: Where) -> tuple[int | None, Head]:
    sql = "SELECT id, count, state FROM conversation WHERE workspace = ? AND name = ?"
    for row, count, state in link.run(sql, (where.workspace, where.conversation)):
        return row, Head(count=count, state=state)
    return None, Head()


def _first_time(link: Link, where: Where, row: int, head: Head, once: Once) -> Head | None:
    sql = "SELECT digest, count FROM once WHERE conversation = ? AND key = ?"
    for digest, count in link.run(sql, (row, once.key)):
        check_digest(where, once, digest)
        return Head(count=count, state=head.state)
    return None


def _saved(link: Link, where: Where, row: int | None, head: Head, *, known: bool) -> int:
    """Writes the head, and gives the row it stands in. `known`: the state is the one already there."""
    if row is None:
        sql = "INSERT INTO conversation (workspace, name, count, state) VALUES (?, ?, ?, ?)"
        link.run(sql, (where.workspace, where.conversation, head.count, head.state))
        [(made,)] = link.run("SELECT last_insert_rowid()")
        return int(made)
    if known:
        link.run("UPDATE conversation SET count = ? WHERE id = ?", (head.count, row))
    else:
        link.run("UPDATE conversation SET count = ?, state = ? WHERE id = ?", (head.count, head.state, row))
    return row


def replace(
    link: Link, where: Where, bodies: Mapping[int, bytes], *, expect: int, was: bytes | None,
    state: bytes | None,
) -> Head:  # fmt: skip
    row, head = _found(link, where)
    check_there(where, None if row is None else head, expect=expect, was=was)
    rows = ((body, row, seq) for seq, body in bodies.items())
    link.many("UPDATE record SET body = ? WHERE conversation = ? AND seq = ?", rows)
    if state is None:
        return head
    link.run("UPDATE conversation SET state = ? WHERE id = ?", (state, row))
    return Head(count=head.count, state=state)


def delete(link: Link, where: Where) -> bool:
    row, _ = _found(link, where)
    if row is not None:
        link.run("DELETE FROM conversation WHERE id = ?", (row,))
    return row is not None


def read(
    link: Link, where: Where, *, after: int, last: int | None, at: Sequence[int] | None, limit: int | None
) -> Page:
    row, head = _found(link, where)
    if row is None:
        return Page()
    meant = places(head.count, after=after, last=last, at=at, limit=limit)
    rows = _run_of(link, row, meant) if isinstance(meant, range) else _scattered(link, row, meant)
    return Page(records=tuple(Record(seq=seq, body=body) for seq, body in rows), head=head)


def _run_of(link: Link, row: int, meant: range) -> Sequence[tuple[int, bytes]]:
    if not meant:
        return []
    sql = "SELECT seq, body FROM record WHERE conversation = ? AND seq BETWEEN ? AND ? ORDER BY seq"
    return link.run(sql, (row, meant[0], meant[-1]))


def _scattered(link: Link, row: int, meant: Sequence[int]) -> Sequence[tuple[int, bytes]]:
    rows: list[tuple[int, bytes]] = []
    for start in range(0, len(meant), _CHUNK):
        some = meant[start : start + _CHUNK]
        marks = ", ".join("?" * len(some))
        sql = f"SELECT seq, body FROM record WHERE conversation = ? AND seq IN ({marks}) ORDER BY seq"  # noqa: S608
        rows += link.run(sql, (row, *some))
    return rows


def listed(link: Link, workspace: str, *, after: str, limit: int) -> Sequence[Listed]:
    sql = "SELECT name, count FROM conversation WHERE workspace = ? AND name > ? ORDER BY name LIMIT ?"
    rows = link.run(sql, (workspace, after, limit))
    return [Listed(conversation=name, count=count) for name, count in rows]
