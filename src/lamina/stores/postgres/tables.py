"""What the store does to its tables: one function for each call of the port.

A change takes the conversation's row first, so that writers of one conversation follow each other. Whoever
waited for the row looks for the idempotency key only then, in a statement of its own: one statement for
both would see the keys of before it waited. Statements go one by one: psycopg's pipeline leaves generators
behind when a call is cancelled, which fail when they are collected. Nothing here knows of lost connections,
except that it says from when on a change may have been made; what was begun and not committed is undone by
who lent the connection.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, LiteralString

from lamina.errors import StoreError
from lamina.stores.memory import check_digest, check_head, check_there
from lamina.stores.port import Head, Listed, Once, Page, Record, Where
from lamina.stores.postgres.links import Call, Link

Row = tuple[Any, ...]
Values = dict[str, Any]

_MOST = 2**62
"""More than there will be records, and the server still counts so far."""


async def append(
    call: Call, where: Where, records: Sequence[bytes], *, expect: int | None, was: bytes | None,
    once: Once | None, state: bytes | None,
) -> Head:  # fmt: skip
    names = _names(where, once)
    head = await _taken(call.link, names) or await _made(call.link, names)
    if once is not None and (key := await _one(call.link, _KEY, names)):
        return _first_time(where, once, head, key)
    check_head(where, head, expect=expect, was=was)
    new = Head(count=head.count + len(records), state=head.state if state is None else state)
    written = names | {"base": head.count, "records": list(records), "count": new.count, "state": state}
    digest = None if once is None else once.digest
    await _commit(call, (_APPEND, written | {"digest": digest}))
    return new


_TAKE = """
    SELECT count, state FROM conversation
    WHERE workspace = %(workspace)s AND name = %(conversation)s
    FOR UPDATE"""
_MAKE = """
    INSERT INTO conversation (workspace, name, count, state)
    VALUES (%(workspace)s, %(conversation)s, 0, ''::bytea)
    ON CONFLICT (workspace, name) DO UPDATE SET count = conversation.count
    RETURNING count, state"""
_KEY = """
    SELECT digest, count FROM once
    WHERE workspace = %(workspace)s AND conversation = %(conversation)s AND key = %(key)s::bytea"""
_APPEND = """
    WITH written AS (
        INSERT INTO record (workspace, conversation, seq, body)
        SELECT %(workspace)s, %(conversation)s, %(base)s::bigint + place - 1, body
        FROM unnest(%(records)s::bytea[]) WITH ORDINALITY AS given (body, place)
    ), remembered AS (
        INSERT INTO once (workspace, conversation, key, digest, count)
        SELECT %(workspace)s, %(conversation)s, %(key)s::bytea, %(digest)s::bytea, %(count)s::bigint
        WHERE %(key)s::bytea IS NOT NULL
    )
    UPDATE conversation
    SET count = %(count)s::bigint, state = coalesce(%(state)s::bytea, state)
    WHERE workspace = %(workspace)s AND name = %(conversation)s"""


def _names(where: Where, once: Once | None = None) -> Values:
    key = None if once is None else hashlib.sha256(once.key.encode()).digest()
    return {"workspace": where.workspace, "conversation": where.conversation, "key": key}


async def _taken(link: Link, names: Values) -> Head | None:
    """Begins, and holds the conversation until the end, if there is one."""
    await link.execute("BEGIN")
    return _head(await _one(link, _TAKE, names))


async def _made(link: Link, names: Values) -> Head:
    """One that was not there a moment ago; another may have made it since, and has to finish first."""
    return _head(await _one(link, _MAKE, names)) or Head()


async def _one(link: Link, query: LiteralString, values: Values) -> Row | None:
    return await (await link.cursor(binary=True).execute(query, values)).fetchone()


def _head(row: Row | None) -> Head | None:
    return Head(count=row[0], state=row[1]) if row else None


def _first_time(where: Where, once: Once, head: Head, key: Row) -> Head:
    digest, count = key
    check_digest(where, once, digest)
    return Head(count=count, state=head.state)


async def _commit(call: Call, *steps: tuple[LiteralString, Values]) -> None:
    for step, values in steps:
        await call.link.execute(step, values)
    call.committing = True
    done = await call.link.execute("COMMIT")
    call.committing = False
    if done.statusmessage != "COMMIT":
        raise StoreError(f"the server answered {done.statusmessage!r} to a commit")


async def replace(
    call: Call, where: Where, bodies: Mapping[int, bytes], *, expect: int, was: bytes | None,
    state: bytes | None,
) -> Head:  # fmt: skip
    names = _names(where)
    head = await _taken(call.link, names)
    check_there(where, head, expect=expect, was=was)
    steps = [(_REPLACE, names | {"places": list(bodies), "bodies": list(bodies.values())})]
    if state is not None:
        steps.append((_RESTATE, names | {"state": state}))
    await _commit(call, *steps)
    kept = head or Head()
    return Head(count=kept.count, state=kept.state if state is None else state)


_REPLACE = """
    UPDATE record SET body = given.body
    FROM unnest(%(places)s::bigint[], %(bodies)s::bytea[]) AS given (seq, body)
    WHERE workspace = %(workspace)s AND conversation = %(conversation)s AND record.seq = given.seq"""
_RESTATE = """
    UPDATE conversation SET state = %(state)s
    WHERE workspace = %(workspace)s AND name = %(conversation)s"""


async def delete(call: Call, where: Where) -> bool:
    names = _names(where)
    head = await _taken(call.link, names)
    if head is None:
        return False
    await _commit(call, *((step, names) for step in _DELETE))
    return True


_DELETE: tuple[LiteralString, ...] = (
    "DELETE FROM record WHERE workspace = %(workspace)s AND conversation = %(conversation)s",
    "DELETE FROM once WHERE workspace = %(workspace)s AND conversation = %(conversation)s",
    "DELETE FROM conversation WHERE workspace = %(workspace)s AND name = %(conversation)s",
)


async def read(
    call: Call, where: Where, *, after: int, last: int | None, at: Sequence[int] | None, limit: int | None
) -> Page:
    """One statement, so one snapshot: the head as the first row, and the records."""
    query, asked = (_AT, [seq for seq in at if seq < _MOST]) if at is not None else _run_of(after, last)
    most = _MOST if limit is None else min(limit, _MOST)
    cursor = call.link.cursor(binary=True)
    await cursor.execute(query, _names(where) | {"asked": asked, "limit": most})
    rows = sorted(await cursor.fetchall(), key=lambda row: row[0])  # the union is in no order by right
    if not rows:
        return Page()
    (_, count, state), *found = rows
    records = tuple(Record(seq=seq, body=body) for seq, _, body in found)
    return Page(records=records, head=Head(count=count, state=state))


def _run_of(after: int, last: int | None) -> tuple[LiteralString, Any]:
    return (_AFTER, min(after, _MOST)) if last is None else (_LAST, min(last, _MOST))


_HEAD: LiteralString = """
    WITH head AS (
        SELECT count, state FROM conversation
        WHERE workspace = %(workspace)s AND name = %(conversation)s
    )
    SELECT -1::bigint, count, state FROM head
    UNION ALL (
        SELECT seq, 0, body FROM record
        WHERE workspace = %(workspace)s AND conversation = %(conversation)s AND """
_END: LiteralString = " ORDER BY seq LIMIT %(limit)s::bigint)"
_AFTER = _HEAD + "seq >= %(asked)s::bigint" + _END
_LAST = _HEAD + "seq >= (SELECT count FROM head) - %(asked)s::bigint" + _END  # noqa: S608 - all of it stands here
_AT = _HEAD + "seq = ANY(%(asked)s::bigint[])" + _END


async def listed(call: Call, workspace: str, *, after: str, limit: int) -> Sequence[Listed]:
    beyond = after.partition("\0")[0]  # no name holds a NUL, so none stands between the two
    rows = await call.link.execute(_LIST, [workspace, beyond, min(limit, _MOST)])
    return [Listed(conversation=name, count=count) for name, count in await rows.fetchall()]


_LIST = (
    "SELECT name, count FROM conversation WHERE workspace = %s AND name > %s ORDER BY name LIMIT %s::bigint"
)
