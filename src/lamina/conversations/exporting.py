"""A recorded conversation as JSON lines, and back: what a person reads, `jq` filters and `cost` reads.

    {"v":1,"conversation":{…}}                                   its state, first
    {"v":1,"sent":{…},"request":{…},"answered":{…},"response":{…}}    a request as it left, and its answer
    {"v":1,"lowered":{…}}                                        a segment that was left out
    {"v":1,"session":{…}}   {"v":1,"session_state":{…}}          the log of the session of the same name

`request`, `came` (the request as the client wrote it, if that was another) and `response` are the very bytes
that were recorded. A stream is a string, and what is not UTF-8 is `{"lamina.base64": "…"}`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from lamina.conversations.addresses import enlist
from lamina.conversations.record import Answered, ConversationRecord, SentRequest
from lamina.conversations.record_writer import RecordWriter
from lamina.conversations.store import (
    ConversationState,
    answer_place,
    conversation_place,
    find_conversation,
    read_record,
    recorded_workspace,
)
from lamina.core.values import Ledger
from lamina.errors import BadInput
from lamina.stores.port import Store, Where

VERSION = 1
BASE64 = "lamina.base64"
_BASE64_START = b'{"%s"' % BASE64.encode()

_TEXT = msgspec.json.Decoder(str)
_ENCODED = msgspec.json.Decoder(dict[str, str])


class ExportedLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of an export: a `conversation`, a `sent` request, or a record of one of the other kinds."""

    v: int
    conversation: ConversationState | None = None
    ts: float = 0.0
    sent: SentRequest | None = None
    request: msgspec.Raw = msgspec.Raw()
    came: msgspec.Raw = msgspec.Raw()
    ledger: dict[str, Any] | None = None
    answered: Answered | None = None
    response: msgspec.Raw = msgspec.Raw()
    erased: bool = False
    lowered: msgspec.Raw = msgspec.Raw()
    session: msgspec.Raw = msgspec.Raw()
    session_state: msgspec.Raw = msgspec.Raw()


async def export_conversation(store: Store, workspace: str, name: str) -> list[bytes]:
    """The lines of a conversation that a door has recorded; none if there is no such record."""
    recorded_in = recorded_workspace(workspace)
    stored = await find_conversation(store, recorded_in, name)
    if stored is None:
        return []
    record = await read_record(store, recorded_in, name)
    lines = list(write_lines(stored.state, record))
    page = await store.read(Where(workspace, name))
    lines += [_encode(session=msgspec.Raw(item.body)) for item in page.records]
    if page.head.state:
        lines.append(_encode(session_state=msgspec.Raw(page.head.state)))
    return lines


def write_lines(state: ConversationState, record: ConversationRecord) -> Iterator[bytes]:
    yield _encode(conversation=msgspec.structs.replace(state, listed={}))  # a store lists it anew
    for call in record.calls:
        # Numbers of pieces mean nothing in another store, so the bodies stand here themselves.
        sent = msgspec.structs.replace(call.request, sent=None, came=None, ledger=None)
        fields: dict[str, Any] = {"ts": sent.at, "sent": sent}
        bodies = {"request": record.sent_body(call)}
        if call.came_pieces != call.sent_pieces:
            bodies["came"] = record.came_body(call)
        if call.request.ledger is not None:
            fields["ledger"] = record.ledger(call).dump()
        if call.answer is not None:
            fields["answered"] = msgspec.structs.replace(call.answer, body=None)
            bodies["response"] = record.answer_body(call)
        fields |= {field: _wrap(body) for field, body in bodies.items() if body is not None}
        fields["erased"] = record.is_erased(call)
        yield _encode(**fields)
    for segment in record.segments:
        yield _encode(lowered=msgspec.Raw(segment))


def is_export(text: bytes) -> bool:
    """Whether a file begins as an export of a recorded conversation does."""
    first_line, _, _ = text.lstrip(b" \t\r\n").partition(b"\n")
    try:
        return _decode(first_line).conversation is not None
    except BadInput:
        return False


async def import_conversation(store: Store, workspace: str, name: str, lines: Iterable[bytes]) -> int:
    """Make a conversation of exported lines, and return its number of requests. A name in use is refused."""
    recorded_in = recorded_workspace(workspace)
    where = conversation_place(recorded_in, name)
    log_place = Where(workspace, name)
    for place in (where, log_place):
        head = (await store.read(place, last=0)).head
        if head.count or head.state:
            raise BadInput(f"there is a conversation {name!r}", place="import", hint="choose another name")
    read = _ReadExport()
    for line in lines:
        read.add(_decode(line))
    state = read.state
    listed: dict[str, str] = {}
    await enlist(store, recorded_in, name, state, listed)
    state = msgspec.structs.replace(state, listed=listed)
    for answer_id in state.answers:
        await store.append(answer_place(recorded_in, answer_id), [name.encode()])
    if read.session_records:
        await store.append(log_place, read.session_records, expect=0, state=read.session_state)
    await store.append(where, read.writer.encode(), expect=0, state=msgspec.json.encode(state))
    return read.requests


class _ReadExport:
    """What the lines of an export say."""

    def __init__(self) -> None:
        self.state = ConversationState()
        self.writer = RecordWriter()
        self.requests = 0
        self.session_records: list[bytes] = []
        self.session_state: bytes | None = None

    def add(self, line: ExportedLine) -> None:
        if line.conversation is not None:
            self.state = line.conversation
        if line.sent is not None:
            self.requests += 1
            _add_call(self.writer, line)
        if bytes(line.lowered):
            self.writer.add_record(bytes(line.lowered))
        if bytes(line.session):
            self.session_records.append(bytes(line.session))
        if bytes(line.session_state):
            self.session_state = bytes(line.session_state)


def _add_call(writer: RecordWriter, line: ExportedLine) -> None:
    assert line.sent is not None  # noqa: S101 - the caller has looked
    ledger = None
    if line.ledger is not None:
        ledger = Ledger.load(line.ledger)
    writer.add_sent(line.sent, body=_unwrap(line.request), came=_unwrap(line.came), ledger=ledger)
    if line.answered is not None:
        writer.add_answer(line.answered, body=_unwrap(line.response))


def _encode(**fields: Any) -> bytes:
    return msgspec.json.encode(ExportedLine(v=VERSION, **fields))


def _decode(line: bytes) -> ExportedLine:
    try:
        decoded = msgspec.json.decode(line, type=ExportedLine)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(str(error), place="import", hint="give what `export --format json` wrote") from None
    if decoded.v != VERSION:
        raise BadInput(f"version {decoded.v}", place="import", hint=f"this release reads version {VERSION}")
    return decoded


def _wrap(body: bytes) -> msgspec.Raw:
    """A body as a JSON value on one line: itself if it is one, else a string."""
    is_one_line = b"\n" not in body and b"\r" not in body
    if is_one_line and _is_object(body) and not body.startswith(_BASE64_START):
        return msgspec.Raw(body)
    try:
        return msgspec.Raw(msgspec.json.encode(body.decode()))
    except UnicodeDecodeError:
        return msgspec.Raw(msgspec.json.encode({BASE64: b64encode(body).decode()}))


def _unwrap(value: msgspec.Raw) -> bytes | None:
    text = bytes(value)
    if not text:
        return None
    if text.startswith(b'"'):
        return _TEXT.decode(text).encode()
    if text.startswith(_BASE64_START):
        try:
            return b64decode(_ENCODED.decode(text)[BASE64])
        except ValueError as error:
            hint = "give what `export --format json` wrote"
            raise BadInput(f"{BASE64}: {error}", place="import", hint=hint) from None
    return text


def _is_object(body: bytes) -> bool:
    if not body.startswith(b"{"):
        return False
    try:
        msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True
