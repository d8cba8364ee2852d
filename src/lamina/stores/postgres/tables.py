"""What the store does to its tables: one function for each call of the port.

A change takes the conversation's row first, so that writers of one conversation follow each other. Whoever
waited for the row looks for the idempotency key only then, in a statement of its own: one statement for
both would see the keys of before it waited. Statements go one by one: psycopg's pipeline leaves generators
behind when a call is cancelled, which fail when they are collected. Nothing here knows of lost connections,
except that it says from when on a change may have been made; what was begun and not committed is undone by
who lent the connection.

Everything that is read is checked against its sums, but for tables of an older release, which have none. A
head that is gone is missed as long as there are records of its conversation; more is the server's own matter,
which has checksums for its pages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, LiteralString

import msgspec

from lamina.errors import Damaged, StoreError
from lamina.stores.checksums import Sums, is_whole, records_of
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
from lamina.stores.postgres.links import ConnectionCall, Link

Row = tuple[Any, ...]
Values = dict[str, Any]

_MOST = 2**62
"""More than there will be records, and the server still counts so far."""


class Taken(msgspec.Struct, frozen=True):
    """The row of a conversation, locked until the end of the transaction, as it was read.

    `behind`: there are records that it does not count. Then it is of an earlier time, or one is not ours.
    """

    count: int
    state: bytes
    state_sum: int
    sum: int
    behind: bool = False


async def append(
    call: ConnectionCall,
    where: Where,
    records: Sequence[bytes],
    *,
    expect: int | None,
    was: bytes | None,
    once: Once | None,
    state: bytes | None,
) -> StoredHead:
    names, sums = _names(where, once), Sums(where)
    row = await _taken(call.link, where, names)
    if row is None:
        row = await _made(call.link, where, names, sums)
    head = await _checked(call.link, where, row)
    if once is not None:
        earlier = await _answered(call.link, where, head, once, names)
        if earlier is not None:
            return earlier
    check_head(where, head, expect=expect, was=was)
    new = StoredHead(count=head.count + len(records), state=head.state if state is None else state)
    state_sum = row.state_sum if state is None else sums.state(state)
    written = names | {
        "base": head.count,
        "records": list(records),
        "sums": [sums.record(seq, body) for seq, body in enumerate(records, head.count)],
        "count": new.count,
        "state": state,
        "state_sum": state_sum,
        "sum": sums.head(new.count, state_sum),
        "digest": None if once is None else once.digest,
        "once_sum": None if once is None else sums.once(names["key"], once.digest, new.count),
    }
    await _commit(call, (_APPEND, written))
    return new


_TAKE: LiteralString = """
    WITH taken AS (
        SELECT count, state, state_sum, sum FROM conversation
        WHERE workspace = %(workspace)s AND name = %(conversation)s
        FOR UPDATE
    )
    SELECT EXISTS (SELECT FROM conversation WHERE workspace = %(reserved)s AND name = %(header)s),
        EXISTS (
            SELECT FROM record
            WHERE workspace = %(workspace)s AND conversation = %(conversation)s AND seq >= taken.count
        ), taken.*
    FROM (SELECT 1) AS one LEFT JOIN taken ON true"""
_MAKE = """
    INSERT INTO conversation (workspace, name, count, state, state_sum, sum)
    VALUES (%(workspace)s, %(conversation)s, 0, ''::bytea, %(state_sum)s, %(sum)s)
    ON CONFLICT (workspace, name) DO UPDATE SET count = conversation.count
    RETURNING count, state, state_sum, sum"""
_SEALED = "SELECT EXISTS (SELECT FROM conversation WHERE workspace = %(reserved)s AND name = %(header)s)"
_PLAIN = """
    SELECT EXISTS (
        SELECT FROM conversation WHERE workspace < %(reserved)s OR workspace >= %(reserved_end)s
    )"""
_ORPHANS = """
    SELECT EXISTS (
        SELECT FROM record WHERE workspace = %(workspace)s AND conversation = %(conversation)s
    )"""
_SEALING = "SELECT pg_advisory_xact_lock(hashtextextended('lamina seal ' || current_schema(), 0))"
_UNSEALED = "SELECT pg_advisory_xact_lock_shared(hashtextextended('lamina seal ' || current_schema(), 0))"
_KEY = """
    SELECT digest, count, sum FROM once
    WHERE workspace = %(workspace)s AND conversation = %(conversation)s AND key = %(key)s::bytea"""
_APPEND = """
    WITH written AS (
        INSERT INTO record (workspace, conversation, seq, body, sum)
        SELECT %(workspace)s, %(conversation)s, %(base)s::bigint + place - 1, body, sum
        FROM unnest(%(records)s::bytea[], %(sums)s::bigint[]) WITH ORDINALITY AS given (body, sum, place)
    ), remembered AS (
        INSERT INTO once (workspace, conversation, key, digest, count, sum)
        SELECT %(workspace)s, %(conversation)s, %(key)s::bytea, %(digest)s::bytea, %(count)s::bigint,
            %(once_sum)s::bigint
        WHERE %(key)s::bytea IS NOT NULL
    )
    UPDATE conversation
    SET count = %(count)s::bigint, state = coalesce(%(state)s::bytea, state),
        state_sum = %(state_sum)s::bigint, sum = %(sum)s::bigint
    WHERE workspace = %(workspace)s AND name = %(conversation)s"""


def _names(where: Where, once: Once | None = None) -> Values:
    key = None if once is None else hashlib.sha256(once.key.encode()).digest()
    return {
        "workspace": str(where.workspace),
        "conversation": where.conversation,
        "key": key,
        "reserved": RESERVED,
        "reserved_end": RESERVED_END,
        "header": HEADER.conversation,
    }


async def _taken(link: Link, where: Where, names: Values) -> Taken | None:
    """Begins, and holds the conversation until the end, if there is one."""
    await link.execute("BEGIN")
    found = await _one(link, _TAKE, names) or (False, False, None, b"", 0, 0)
    sealed, behind, count, state, state_sum, sum_ = found
    check_key(where.workspace, sealed=sealed)
    return None if count is None else Taken(count, state, state_sum, sum_, behind)


async def _made(link: Link, where: Where, names: Values, sums: Sums) -> Taken:
    """One that was not there a moment ago; another may have made it since, and has to finish first.

    No plain conversation begins while the store is being sealed: each waits for the other, and looks then.
    """
    if where == HEADER:
        await link.execute(_SEALING)
        [plain] = await _one(link, _PLAIN, names) or [False]
        check_unmixed(plain=plain)
    elif not is_sealed_name(where.workspace):
        await link.execute(_UNSEALED)
        [sealed] = await _one(link, _SEALED, names) or [False]
        check_key(where.workspace, sealed=sealed)
    state_sum = sums.state(b"")
    row = await _one(link, _MAKE, names | {"state_sum": state_sum, "sum": sums.head(0, state_sum)})
    taken = Taken(*row) if row else Taken(0, b"", state_sum, sums.head(0, state_sum))
    if not taken.count:
        [orphans] = await _one(link, _ORPHANS, names) or [False]
        if orphans:
            raise await _damaged(link, where, _HEADLESS)
    return taken


_HEADLESS = "its head is gone, and its records are there"


async def _one(link: Link, query: LiteralString, values: Values) -> Row | None:
    return await (await link.cursor(binary=True).execute(query, values)).fetchone()


async def _checked(link: Link, where: Where, row: Taken) -> StoredHead:
    """The head that a row holds, if it is what was written."""
    problem = _problem_of(where, row)
    if problem:
        raise await _damaged(link, where, problem)
    return StoredHead(count=row.count, state=row.state)


def _problem_of(where: Where, row: Taken) -> str:
    sums = Sums(where)
    if row.count < 0 or row.state_sum < 0 or sums.head(row.count, row.state_sum) != row.sum:
        return "its number of records is not what was written"
    if sums.state(row.state) != row.state_sum:
        return "its state is not what was written"
    if row.behind:
        return _MORE
    return ""


_MORE = "there are more records than its head says"


async def _damaged(link: Link, where: Where, problem: str) -> Damaged:
    """The error, with the records that are whole."""
    whole = [seq for seq, _ in await _whole_records(link, where)]
    return Damaged(problem, conversation=where.conversation, whole=whole)


async def _whole_records(link: Link, where: Where) -> list[tuple[int, bytes]]:
    cursor = link.cursor(binary=True)
    await cursor.execute(_ALL, _names(where))
    sums = Sums(where)
    return [(seq, body) for seq, body, sum_ in await cursor.fetchall() if is_whole(sums, (seq, body, sum_))]


_ALL = """
    SELECT seq, body, sum FROM record
    WHERE workspace = %(workspace)s AND conversation = %(conversation)s ORDER BY seq"""


async def whole_records(call: ConnectionCall, where: Where) -> list[tuple[int, bytes]]:
    """What can still be read of a conversation whose head may be damaged: place and body of each record."""
    [sealed] = await _one(call.link, _SEALED, _names(where)) or [False]
    check_key(where.workspace, sealed=sealed)
    return await _whole_records(call.link, where)


async def _answered(
    link: Link, where: Where, head: StoredHead, once: Once, names: Values
) -> StoredHead | None:
    """What an idempotency key is answered with that came before."""
    row = await _one(link, _KEY, names)
    if row is None:
        return None
    digest, count, sum_ = row
    if count < 0 or Sums(where).once(names["key"], digest, count) != sum_:
        problem = f"its idempotency key {once.key!r} is not what was written"
        raise Damaged(problem, conversation=where.conversation)
    check_digest(where, once, digest)
    return StoredHead(count=count, state=head.state)


async def _commit(call: ConnectionCall, *steps: tuple[LiteralString, Values]) -> None:
    for step, values in steps:
        await call.link.execute(step, values)
    call.committing = True
    done = await call.link.execute("COMMIT")
    call.committing = False
    if done.statusmessage != "COMMIT":
        raise StoreError(f"the server answered {done.statusmessage!r} to a commit")


async def replace(
    call: ConnectionCall,
    where: Where,
    bodies: Mapping[int, bytes],
    *,
    expect: int,
    was: bytes | None,
    state: bytes | None,
) -> StoredHead:
    names, sums = _names(where), Sums(where)
    row = await _taken(call.link, where, names)
    head = None if row is None else await _checked(call.link, where, row)
    check_there(where, head, expect=expect, was=was)
    kept = head or StoredHead()
    given = {
        "places": list(bodies),
        "bodies": list(bodies.values()),
        "sums": [sums.record(seq, body) for seq, body in bodies.items()],
    }
    steps = [(_REPLACE, names | given)]
    if state is not None:
        state_sum = sums.state(state)
        sum_ = sums.head(kept.count, state_sum)
        steps.append((_RESTATE, names | {"state": state, "state_sum": state_sum, "sum": sum_}))
    await _commit(call, *steps)
    return StoredHead(count=kept.count, state=kept.state if state is None else state)


_REPLACE: LiteralString = """
    UPDATE record SET body = given.body, sum = given.sum
    FROM unnest(%(places)s::bigint[], %(bodies)s::bytea[], %(sums)s::bigint[]) AS given (seq, body, sum)
    WHERE workspace = %(workspace)s AND conversation = %(conversation)s AND record.seq = given.seq"""
_RESTATE: LiteralString = """
    UPDATE conversation SET state = %(state)s, state_sum = %(state_sum)s, sum = %(sum)s
    WHERE workspace = %(workspace)s AND name = %(conversation)s"""


async def delete(call: ConnectionCall, where: Where) -> bool:
    """Removes a conversation, with its search index; a damaged one, too."""
    names = _names(where)
    row = await _taken(call.link, where, names)
    if row is None:
        [orphans] = await _one(call.link, _ORPHANS, names) or [False]
        if not orphans:
            return False
    steps = [(step, names) for step in _DELETE]
    index = search_place(where)
    if index is not None:
        steps += [(step, _names(index)) for step in _DELETE]
    await _commit(call, *steps)
    return True


_DELETE: tuple[LiteralString, ...] = (
    "DELETE FROM record WHERE workspace = %(workspace)s AND conversation = %(conversation)s",
    "DELETE FROM once WHERE workspace = %(workspace)s AND conversation = %(conversation)s",
    "DELETE FROM conversation WHERE workspace = %(workspace)s AND name = %(conversation)s",
)


async def read(
    call: ConnectionCall,
    where: Where,
    *,
    after: int,
    last: int | None,
    at: Sequence[int] | None,
    limit: int | None,
    with_sums: bool,
) -> RecordPage:
    """One statement, so one snapshot: what kind of store this is, the head, and the records."""
    query, asked = (_AT, [seq for seq in at if seq < _MOST]) if at is not None else _run_of(after, last)
    most = _MOST if limit is None else min(limit, _MOST)
    if not with_sums:
        query = query.replace("state_sum, sum", _NO_SUMS).replace("body, sum", _NO_SUM)
    cursor = call.link.cursor(binary=True)
    await cursor.execute(query, _names(where) | {"asked": asked, "limit": most})
    # The union is in no order by right; -2 is the store, -1 the head, and from 0 on there are records.
    (_, sealed, orphans, behind, _), *rows = sorted(await cursor.fetchall(), key=lambda row: row[0])
    check_key(where.workspace, sealed=bool(sealed))
    if not rows or rows[0][0] != -1:
        if orphans or rows:
            raise await _damaged(call.link, where, _HEADLESS)
        return RecordPage()
    (_, count, state, state_sum, sum_), *found = rows
    head = StoredHead(count=count, state=state)
    if with_sums:
        await _checked(call.link, where, Taken(count, state, state_sum, sum_))
    meant = places(count, after=after, last=last, at=at, limit=limit)
    try:
        records = records_of(
            where,
            meant,
            [(seq, body, own) for seq, _, body, own, _ in found],
            Sums(where) if with_sums else None,
        )
    except Damaged as damage:
        if not with_sums:
            raise
        raise await _damaged(call.link, where, damage.problem) from None
    if behind and at is None and with_sums:  # who asks for single places saves what is whole
        raise await _damaged(call.link, where, _MORE)
    return RecordPage(records=records, head=head)


def _run_of(after: int, last: int | None) -> tuple[LiteralString, Any]:
    return (_AFTER, min(after, _MOST)) if last is None else (_LAST, min(last, _MOST))


_NO_SUMS = "NULL::bigint, NULL::bigint"
_NO_SUM = "body, NULL::bigint"
_FOUND: LiteralString = """
    WITH head AS (
        SELECT count, state, state_sum, sum FROM conversation
        WHERE workspace = %(workspace)s AND name = %(conversation)s
    )
    SELECT -2::bigint,
        (EXISTS (SELECT FROM conversation WHERE workspace = %(reserved)s AND name = %(header)s))::int::bigint,
        CASE WHEN NOT EXISTS (SELECT FROM head) AND EXISTS (
            SELECT FROM record WHERE workspace = %(workspace)s AND conversation = %(conversation)s
        ) THEN 'orphans'::bytea END,
        (EXISTS (
            SELECT FROM record WHERE workspace = %(workspace)s AND conversation = %(conversation)s
            AND seq >= (SELECT count FROM head)
        ))::int::bigint, NULL::bigint
    UNION ALL SELECT -1, count, state, state_sum, sum FROM head
    UNION ALL (
        SELECT seq, 0, body, sum, NULL FROM record
        WHERE workspace = %(workspace)s AND conversation = %(conversation)s AND """
_END: LiteralString = " ORDER BY seq LIMIT %(limit)s::bigint)"
_AFTER = _FOUND + "seq >= %(asked)s::bigint" + _END
_LAST = _FOUND + "seq >= (SELECT count FROM head) - %(asked)s::bigint" + _END  # noqa: S608 - all of it stands here
_AT = _FOUND + "seq = ANY(%(asked)s::bigint[])" + _END


async def listed(
    call: ConnectionCall, workspace: str, *, after: str, limit: int, with_sums: bool
) -> Sequence[Listed]:
    beyond = after.partition("\0")[0]  # no name holds a NUL, so none stands between the two
    query = _LIST if with_sums else _LIST.replace("state_sum, sum", _NO_SUMS)
    names = {
        "workspace": str(workspace),
        "after": beyond,
        "limit": min(limit, _MOST),
        "reserved": RESERVED,
        "header": HEADER.conversation,
    }
    cursor = call.link.cursor(binary=True)
    await cursor.execute(query, names)
    (sealed, headless, *_), *rows = await cursor.fetchall()
    check_key(workspace, sealed=sealed)
    if headless is not None:
        raise Damaged(_HEADLESS, conversation=headless)
    if with_sums:
        _check_list(workspace, rows)
    return [
        Listed(conversation=name, count=count) for _, name, count, *_ in sorted(rows, key=lambda row: row[1])
    ]


def _check_list(workspace: str, rows: Sequence[Row]) -> None:
    for behind, name, count, state_sum, sum_ in rows:
        sums = Sums(Where(workspace, name))
        if count < 0 or state_sum < 0 or sums.head(count, state_sum) != sum_:
            raise Damaged("its number of records is not what was written", conversation=name)
        if behind:
            raise Damaged(_MORE, conversation=name)


# `recorded` goes from one conversation's records to the next one's, a step through the index for each.
_LIST: LiteralString = """
    WITH RECURSIVE recorded (name, nth) AS (
        (SELECT conversation, 1 FROM record
            WHERE workspace = %(workspace)s AND conversation > %(after)s ORDER BY conversation LIMIT 1)
        UNION ALL
        SELECT (SELECT conversation FROM record
            WHERE workspace = %(workspace)s AND conversation > recorded.name ORDER BY conversation LIMIT 1),
            nth + 1
        FROM recorded WHERE name IS NOT NULL AND nth < %(limit)s::bigint
    )
    SELECT EXISTS (SELECT FROM conversation WHERE workspace = %(reserved)s AND name = %(header)s),
        (SELECT name FROM recorded WHERE name IS NOT NULL AND NOT EXISTS (
            SELECT FROM conversation
            WHERE conversation.workspace = %(workspace)s AND conversation.name = recorded.name
        ) LIMIT 1), NULL::bigint, NULL::bigint, NULL::bigint
    UNION ALL (
        SELECT EXISTS (
            SELECT FROM record WHERE record.workspace = conversation.workspace
            AND record.conversation = conversation.name AND record.seq >= conversation.count
        ), name, count, state_sum, sum FROM conversation
        WHERE workspace = %(workspace)s AND name > %(after)s
        ORDER BY name LIMIT %(limit)s::bigint
    )"""
