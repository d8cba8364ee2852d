"""The reads of the port: each is one statement, so one snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString

from lamina.errors import Damaged
from lamina.stores.checked import RecordSelection
from lamina.stores.checks import check_key
from lamina.stores.checksums import (
    HEADLESS,
    UNCOUNTED,
    WRONG_COUNT,
    Checksums,
    HeadRow,
    StoredRow,
    check_records,
    is_head_intact,
)
from lamina.stores.port import HEADER, RESERVED, ListedConversation, Record, RecordPage, StoredHead, Where
from lamina.stores.postgres.connections import ConnectionCall, Row, select_flag
from lamina.stores.postgres.heads import (
    IS_SEALED,
    check_head_row,
    damaged,
    names_of,
    select_intact_records,
)

_MOST = 2**62
"""More than there will be records, and the server can still count so far."""

_HEAD_ROW = -1
"""Begins the row of the head. The row of the store begins with -2, the others with the place of a record."""


async def read_page(call: ConnectionCall, where: Where, selection: RecordSelection) -> RecordPage:
    """Read what kind of store this is, the head, and the records."""
    query, selected = _select(selection)
    most = _MOST
    if selection.limit is not None:
        most = min(selection.limit, _MOST)
    cursor = call.connection.cursor(binary=True)
    await cursor.execute(query, names_of(where) | {"selected": selected, "limit": most})
    # A union has no order of its own: the store, the head and the records come first to last by this key.
    rows = sorted(await cursor.fetchall(), key=lambda row: row[0])
    _, sealed, orphans, has_uncounted, _ = rows.pop(0)
    check_key(where.workspace, sealed=bool(sealed))
    if not rows or rows[0][0] != _HEAD_ROW:
        if orphans or rows:
            raise await damaged(call.connection, where, HEADLESS)
        return RecordPage()
    _, count, state, state_sum, checksum = rows.pop(0)
    head = StoredHead(count=count, state=state)
    await check_head_row(call.connection, where, HeadRow(count, state, state_sum, checksum))
    places = selection.places(count)
    record_rows = [(seq, body, record_sum) for seq, _, body, record_sum, _ in rows]
    records = await _check_records(call, where, places, record_rows)
    # A read of single places is how intact records are saved, so it is not refused.
    reads_all = selection.at is None
    if has_uncounted and reads_all:
        raise await damaged(call.connection, where, UNCOUNTED)
    return RecordPage(records=records, head=head)


def _select(selection: RecordSelection) -> tuple[LiteralString, Any]:
    if selection.at is not None:
        return _READ_AT, [seq for seq in selection.at if seq < _MOST]
    if selection.last is not None:
        return _READ_LAST, min(selection.last, _MOST)
    return _READ_AFTER, min(selection.after, _MOST)


async def _check_records(
    call: ConnectionCall, where: Where, places: Sequence[int], rows: Sequence[StoredRow]
) -> tuple[Record, ...]:
    try:
        return check_records(where, places, rows)
    except Damaged as damage:
        raise await damaged(call.connection, where, damage.problem) from None


_READ: LiteralString = """
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
_READ_AFTER = _READ + "seq >= %(selected)s::bigint" + _END
_READ_LAST = _READ + "seq >= (SELECT count FROM head) - %(selected)s::bigint" + _END  # noqa: S608 - no input in it
_READ_AT = _READ + "seq = ANY(%(selected)s::bigint[])" + _END


async def list_conversations(
    call: ConnectionCall, workspace: str, *, after: str, limit: int
) -> Sequence[ListedConversation]:
    values = {
        "workspace": str(workspace),
        "after": after.partition("\0")[0],  # no name holds a NUL, so no name is between the two
        "limit": limit,
        "reserved": RESERVED,
        "header": HEADER.conversation,
    }
    cursor = call.connection.cursor(binary=True)
    await cursor.execute(_LIST, values)
    (sealed, headless, *_), *rows = await cursor.fetchall()
    check_key(workspace, sealed=sealed)
    if headless is not None:
        raise Damaged(HEADLESS, conversation=headless)
    _check_listed(workspace, rows)
    rows.sort(key=lambda row: row[1])
    return [ListedConversation(conversation=name, count=count) for _, name, count, *_ in rows]


def _check_listed(workspace: str, rows: Sequence[Row]) -> None:
    for has_uncounted, name, count, state_sum, checksum in rows:
        checksums = Checksums(Where(workspace, name))
        if not is_head_intact(checksums, count, state_sum, checksum):
            raise Damaged(WRONG_COUNT, conversation=name)
        if has_uncounted:
            raise Damaged(UNCOUNTED, conversation=name)


# `recorded` goes from one conversation's records to the next one's, one step through the index for each.
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


async def read_states(call: ConnectionCall, workspace: str) -> dict[str, bytes]:
    """The state of each conversation. Neither its checksum nor its records are looked at."""
    cursor = call.connection.cursor(binary=True)
    values = {"workspace": str(workspace), "reserved": RESERVED, "header": HEADER.conversation}
    await cursor.execute(_STATES, values)
    (_, sealed), *rows = await cursor.fetchall()
    check_key(workspace, sealed=bool(sealed))
    return dict(rows)


_STATES = """
    SELECT NULL, CASE WHEN EXISTS (
        SELECT FROM conversation WHERE workspace = %(reserved)s AND name = %(header)s
    ) THEN 'sealed'::bytea END
    UNION ALL (SELECT name, state FROM conversation WHERE workspace = %(workspace)s)"""


async def read_bodies(call: ConnectionCall, workspace: str, names: list[str]) -> dict[str, list[bytes]]:
    """The records of these conversations. Neither their checksums nor their heads are looked at."""
    values = {"workspace": str(workspace), "reserved": RESERVED, "header": HEADER.conversation}
    check_key(workspace, sealed=await select_flag(call.connection, IS_SEALED, values))
    cursor = call.connection.cursor(binary=True)
    await cursor.execute(_BODIES, {"workspace": str(workspace), "names": names})
    bodies: dict[str, list[bytes]] = {}
    for name, body in await cursor.fetchall():
        bodies.setdefault(name, []).append(body)
    return bodies


_BODIES = """
    SELECT conversation, body FROM record
    WHERE workspace = %(workspace)s AND conversation = ANY(%(names)s::text[]) ORDER BY conversation, seq"""


async def rescue_records(call: ConnectionCall, where: Where) -> list[Record]:
    """The records that can still be read, also if the head is damaged."""
    check_key(where.workspace, sealed=await select_flag(call.connection, IS_SEALED, names_of(where)))
    return await select_intact_records(call.connection, where)
