"""`lamina store verify` and `export --damaged`: find what was damaged, and write what is whole."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from lamina.cli.output import emit, progress, tell, write_result
from lamina.cli.stored import no_such_conversation
from lamina.conversations.exporting import write_lines
from lamina.conversations.listing import list_names, require_name
from lamina.conversations.record import ERASED, ConversationRecord, digest_body
from lamina.conversations.store import ConversationState, conversation_place, read_record, recorded_workspace
from lamina.dialects.usage import count_noun
from lamina.errors import BadInput, Damaged
from lamina.formats.codec import decode, encode
from lamina.sessions import Session
from lamina.stores.port import Record, Rescuable, Store, Where


async def verify_conversations(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Read every record of these conversations, or of all. A damaged record raises an error."""
    if arguments.names:
        name = arguments.names[0]
        await require_name(store, workspace, name)
        names = [name]
    else:
        names = await list_names(store, workspace)
    with progress("reading every record"):
        counts = {name: await _verify_conversation(store, workspace, name) for name in names}
    risk = _risk_of(store)
    if arguments.json:
        emit({"verified": counts, "risk": risk})
        return 0
    records = count_noun(sum(counts.values()), "record")
    tell(f"as it was written: {records} in {count_noun(len(counts), 'conversation')}")
    if risk:
        tell(f"but take care: {risk}")
    return 0


async def _verify_conversation(store: Store, workspace: str, name: str) -> int:
    """Read every record; raise what is wrong with the first that is not as it was written."""
    recorded_in = recorded_workspace(workspace)
    log_place = Where(workspace, name)
    count = 0
    for where in (log_place, conversation_place(recorded_in, name)):
        count += (await store.read(where)).head.count
    if (await store.read(log_place, last=0)).head.count:
        async with Session.open(store, name, workspace=workspace):
            pass  # it decodes every record of the log
    _check_bodies(await read_record(store, recorded_in, name), name)
    return count


def _check_bodies(record: ConversationRecord, name: str) -> None:
    """Raise Damaged if a body that is built from its pieces is not the one that left."""
    for call in record.calls:
        body = record.sent_body(call)
        if body is None or record.is_erased(call):
            continue
        if call.request.digest not in ("", digest_body(body)):  # a record may have none
            problem = f"the body of request {call.request.id} is not the one that left"
            raise Damaged(problem, conversation=name, hint="export what is there, or restore a backup")


def _risk_of(store: Store) -> str:
    """What the SQLite behind a store could do to it; empty if nothing, or if it has none."""
    from lamina.stores.sqlite import SqliteStore  # noqa: PLC0415
    from lamina.stores.sqlite.wal_reset import risk  # noqa: PLC0415

    inner = getattr(store, "store", store)
    if not isinstance(inner, SqliteStore):
        return ""
    return risk()


async def rescue_conversation(store: Store, workspace: str, arguments: argparse.Namespace) -> int:
    """Write what can still be read of a damaged conversation: segments of a log, requests of a record."""
    if not isinstance(store, Rescuable):
        hint = "restore it from a backup, or read single records with read(at=...)"
        raise BadInput("this kind of store cannot read around damaged records", place="rescue", hint=hint)
    name = arguments.names[0]
    await require_name(store, workspace, name)
    log_records = await store.rescue(Where(workspace, name))
    recorded = await store.rescue(conversation_place(recorded_workspace(workspace), name))
    if not log_records and not recorded:
        raise no_such_conversation(name)
    what = "messages"
    lines = [line for line in map(_segment_line, log_records) if line]
    if not lines:
        what = "lines"
        lines = [f"{line.decode()}\n" for line in _rescue_record(recorded)]
    write_result("".join(lines))
    tell(f"{len(log_records) + len(recorded)} records are whole, {len(lines)} {what} written")
    for records in (log_records, recorded):
        _tell_lost(records)
    return 0


def _tell_lost(records: Sequence[Record]) -> None:
    """Say which numbers are missing between the records that could be read."""
    places = {record.seq for record in records}
    lost = set(range(max(places, default=0))) - places
    if lost:
        tell(f"not whole, or gone: {', '.join(map(str, sorted(lost)))}")


def _rescue_record(records: Sequence[Record]) -> list[bytes]:
    """The lines of a record, without requests that cannot be built again. What is lost counts as erased."""
    by_place = {record.seq: record.body for record in records}
    record = ConversationRecord()
    for place in range(max(by_place) + 1):
        body = by_place.get(place, ERASED)
        try:
            record.read([body])
        except (BadInput, KeyError):  # a request that is based on one that is lost
            record.read([ERASED])
    return list(write_lines(ConversationState(requests=len(record.calls)), record))


def _segment_line(record: Record) -> str:
    """A record as a line that `import` reads; empty for records between segments, which mark a place."""
    try:
        [segment] = decode([record.body])
    except BadInput:
        return ""
    return f"{encode(segment).decode()}\n"
