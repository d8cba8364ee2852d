"""The writes of the port: append, replace and delete, each in one transaction.

Each statement is a round trip to the server. If the caller says how long the conversation is and which state
it has, one statement appends to it. Otherwise a write locks the conversation's row first, so that writers of
one conversation follow each other. It looks for the idempotency key only when it has the lock, in a statement
of its own: one statement for both would see the keys of before it waited. Statements go one by one: psycopg's
pipeline leaves generators behind when a call is cancelled, and these fail when they are collected.

Nothing here handles lost connections. A write only says from when on its change may have been made
(`call.committing`). If a write raises, whoever lent the connection undoes the transaction.
"""

from __future__ import annotations

from typing import LiteralString

from psycopg import pq

from lamina.errors import Damaged, StoreError
from lamina.stores.checked import NewGroup, Replacement
from lamina.stores.checks import check_digest, check_no_plain
from lamina.stores.checksums import HEADLESS, Checksums
from lamina.stores.port import HEADER, Once, StoredHead, Where, places_beside
from lamina.stores.postgres.connections import ConnectionCall, PostgresConnection, select_flag, select_row
from lamina.stores.postgres.heads import (
    HAS_PLAIN,
    Values,
    check_head_row,
    damaged,
    lock_head,
    names_of,
)


async def append_group(call: ConnectionCall, group: NewGroup) -> StoredHead:
    """Append a group in one transaction.

    A key that was used before is looked up first: a repetition succeeds whatever is expected.
    """
    where = group.where
    once = group.once
    names = names_of(where, once)
    if once is None and group.was and group.expect is not None:
        head = await _append_to_known(call, group, StoredHead(count=group.expect, state=group.was), names)
        if head is not None:
            return head
    while True:
        row, has_records = await lock_head(call.connection, where, names)
        if row is None:
            if has_records:
                raise await damaged(call.connection, where, HEADLESS)
            head = group.head_after(StoredHead())
            if where == HEADER:
                check_no_plain(plain=await select_flag(call.connection, HAS_PLAIN, names))
            if await _write(call, _MAKE, group, StoredHead(), names):
                break
            continue  # another writer has made it meanwhile
        previous = await check_head_row(call.connection, where, row)
        if once is not None:
            repeated = await _find_repeated(call.connection, where, previous, once, names)
            if repeated is not None:
                return repeated
        head = group.head_after(previous)
        await _write(call, _MOVE, group, previous, names)
        break
    await _commit(call)
    return head


async def _append_to_known(
    call: ConnectionCall, group: NewGroup, previous: StoredHead, names: Values
) -> StoredHead | None:
    """Append to a conversation whose head the caller knows. None if it is another one, or is damaged.

    The statement is a transaction of its own, except behind a pooler, where one has begun.
    """
    is_alone = call.connection.pgconn.transaction_status == pq.TransactionStatus.IDLE
    call.committing = is_alone
    is_written = await _write(call, _MOVE_KNOWN, group, previous, names)
    call.committing = False
    if not is_written:
        return None
    if not is_alone:
        await _commit(call)
    return group.head_after(previous)


async def _write(
    call: ConnectionCall, change: LiteralString, group: NewGroup, previous: StoredHead, names: Values
) -> bool:
    """Write a group after the head before it. `change` makes or moves the head; False if it does not."""
    checksums = Checksums(group.where)
    head = group.head_after(previous)
    previous_sum = checksums.state(previous.state)
    state_sum = checksums.state(head.state)
    values: Values = {
        "base": previous.count,
        "was": group.was,
        "was_sum": previous_sum,
        "head_sum": checksums.head(previous.count, previous_sum),
        "records": list(group.records),
        "sums": [checksums.record(seq, body) for seq, body in enumerate(group.records, previous.count)],
        "count": head.count,
        "state": group.state,
        "state_sum": state_sum,
        "sum": checksums.head(head.count, state_sum),
        "digest": None,
        "once_sum": None,
    }
    if group.once is not None:
        values["digest"] = group.once.digest
        values["once_sum"] = checksums.once(names["key"], group.once.digest, head.count)
    return await select_row(call.connection, change, names | values) is not None


_WRITE: LiteralString = """
    RETURNING true), written AS (
        INSERT INTO record (workspace, conversation, seq, body, sum)
        SELECT %(workspace)s, %(conversation)s, %(base)s::bigint + place - 1, body, sum
        FROM head,
            unnest(%(records)s::bytea[], %(sums)s::bigint[]) WITH ORDINALITY AS given (body, sum, place)
    ), remembered AS (
        INSERT INTO once (workspace, conversation, key, digest, count, sum)
        SELECT %(workspace)s, %(conversation)s, %(key)s::bytea, %(digest)s::bytea, %(count)s::bigint,
            %(once_sum)s::bigint
        FROM head WHERE %(key)s::bytea IS NOT NULL
    )
    SELECT true FROM head"""
_SET_HEAD: LiteralString = """
    WITH head AS (
        UPDATE conversation
        SET count = %(count)s::bigint, state = coalesce(%(state)s::bytea, state),
            state_sum = %(state_sum)s::bigint, sum = %(sum)s::bigint
        WHERE workspace = %(workspace)s AND name = %(conversation)s"""
_MOVE = _SET_HEAD + _WRITE
# An update that had to wait for another writer looks at the row once more, so this is never an older row.
_IS_KNOWN: LiteralString = """
        AND count = %(base)s::bigint AND state = %(was)s::bytea
        AND state_sum = %(was_sum)s::bigint AND conversation.sum = %(head_sum)s::bigint
        AND NOT EXISTS (SELECT FROM conversation WHERE workspace = %(reserved)s AND name = %(header)s)
        AND NOT EXISTS (
            SELECT FROM record
            WHERE workspace = %(workspace)s AND conversation = %(conversation)s AND seq >= %(base)s::bigint
        )"""
_MOVE_KNOWN = _SET_HEAD + _IS_KNOWN + _WRITE
_NEW_HEAD: LiteralString = """
    WITH head AS (
        INSERT INTO conversation (workspace, name, count, state, state_sum, sum)
        VALUES (%(workspace)s, %(conversation)s, %(count)s::bigint, coalesce(%(state)s::bytea, ''::bytea),
            %(state_sum)s::bigint, %(sum)s::bigint)
        ON CONFLICT (workspace, name) DO NOTHING"""
_MAKE = _NEW_HEAD + _WRITE


async def _find_repeated(
    connection: PostgresConnection, where: Where, head: StoredHead, once: Once, names: Values
) -> StoredHead | None:
    """The answer to an idempotency key that was used before; None for a new key."""
    row = await select_row(connection, _FIND_KEY, names)
    if row is None:
        return None
    digest, count, checksum = row
    if count < 0 or Checksums(where).once(names["key"], digest, count) != checksum:
        problem = f"its idempotency key {once.key!r} is not what was written"
        raise Damaged(problem, conversation=where.conversation)
    check_digest(where, once, digest)
    return StoredHead(count=count, state=head.state)


_FIND_KEY = """
    SELECT digest, count, sum FROM once
    WHERE workspace = %(workspace)s AND conversation = %(conversation)s AND key = %(key)s::bytea"""


async def replace_records(call: ConnectionCall, replacement: Replacement) -> StoredHead:
    """Replace bodies, and the state if there is a new one, in one transaction."""
    where = replacement.where
    bodies = replacement.bodies
    state = replacement.state
    names = names_of(where)
    checksums = Checksums(where)
    row, _ = await lock_head(call.connection, where, names)
    if row is None:
        replacement.raise_missing()
    head = replacement.head_after(await check_head_row(call.connection, where, row))
    values = {
        "places": list(bodies),
        "bodies": list(bodies.values()),
        "sums": [checksums.record(seq, body) for seq, body in bodies.items()],
    }
    steps = [(_REPLACE, names | values)]
    if state is not None:
        state_sum = checksums.state(state)
        checksum = checksums.head(head.count, state_sum)
        steps.append((_SET_STATE, names | {"state": state, "state_sum": state_sum, "sum": checksum}))
    await _commit(call, *steps)
    return head


_REPLACE: LiteralString = """
    UPDATE record SET body = given.body, sum = given.sum
    FROM unnest(%(places)s::bigint[], %(bodies)s::bytea[], %(sums)s::bigint[]) AS given (seq, body, sum)
    WHERE workspace = %(workspace)s AND conversation = %(conversation)s AND record.seq = given.seq"""
_SET_STATE: LiteralString = """
    UPDATE conversation SET state = %(state)s, state_sum = %(state_sum)s, sum = %(sum)s
    WHERE workspace = %(workspace)s AND name = %(conversation)s"""


async def delete_conversation(call: ConnectionCall, where: Where) -> bool:
    """Delete a conversation, also a damaged one or one without a head, and what is beside it."""
    names = names_of(where)
    row, has_records = await lock_head(call.connection, where, names)
    if row is None and not has_records:
        return False
    steps = [(step, names) for step in _DELETE]
    for place in places_beside(where):
        steps += [(step, names_of(place)) for step in _DELETE]
    await _commit(call, *steps)
    return True


_DELETE: tuple[LiteralString, ...] = (
    "DELETE FROM record WHERE workspace = %(workspace)s AND conversation = %(conversation)s",
    "DELETE FROM once WHERE workspace = %(workspace)s AND conversation = %(conversation)s",
    "DELETE FROM conversation WHERE workspace = %(workspace)s AND name = %(conversation)s",
)


async def _commit(call: ConnectionCall, *steps: tuple[LiteralString, Values]) -> None:
    """Run the last statements of a transaction, and commit it."""
    for step, values in steps:
        await call.connection.execute(step, values)
    call.committing = True
    cursor = await call.connection.execute("COMMIT")
    call.committing = False
    if cursor.statusmessage != "COMMIT":
        raise StoreError(f"the server answered {cursor.statusmessage!r} to a commit")
