"""The log of a conversation that a door has recorded: what there is to recall, to search, and to export.

With `policy.keep = "all"` the record has every request as the client wrote it, so the log is parsed from
those bodies. With "lowered" it has the segments that were left out, one record each. With "nothing" there is
no text at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from lamina.conversations.answer_bodies import read_answer
from lamina.conversations.record import ConversationRecord, RecordedCall
from lamina.conversations.store import ConversationState, find_conversation, read_record
from lamina.core.hashing import parts_digest, stem_of
from lamina.core.recall import identify_segments
from lamina.core.values import Digest, Fold, Ledger, Ref, Segment
from lamina.dialects import DIALECTS, recognise
from lamina.dialects.port import Dialect
from lamina.errors import BadInput, LaminaError
from lamina.formats.codec import decode
from lamina.stores.port import Store

KEPT_BY = {
    "all": "this store keeps every request and every answer",
    "lowered": 'this store keeps only what was left out; policy.keep = "all" keeps requests and answers',
    "nothing": 'this store keeps no texts; policy.keep = "all" keeps requests and answers',
}
"""What a store can show, by the `keep` of the door that wrote it, and which setting would keep more."""


class RecordedLog(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the texts of a conversation.

    `log` has every segment that is stored, in the order in which it came first, and `ledger` names them as
    this log does. `talk` is the last request as the client wrote it, with its answer; it is empty if the
    store keeps no requests.
    """

    state: ConversationState
    record: ConversationRecord
    ledger: Ledger = Ledger()
    log: tuple[Segment, ...] = ()
    talk: tuple[Segment, ...] = ()


async def read_recorded_log(store: Store, workspace: str, name: str) -> RecordedLog | None:
    """The log of a recorded conversation; None if no door has recorded one of this name."""
    stored = await find_conversation(store, workspace, name)
    if stored is None:
        return None
    record = await read_record(store, workspace, name)
    return make_recorded_log(stored.state, record)


def make_recorded_log(state: ConversationState, record: ConversationRecord) -> RecordedLog:
    """Parse what a record has of the texts of its conversation."""
    stored_segments = decode_segments(record.segments)
    bodies = list(_read_client_bodies(state, record))
    talk: tuple[Segment, ...] = ()
    if bodies:
        talk = (*bodies[0], *_read_last_answer(state, record))
    seen: set[tuple[str, Digest]] = set()
    log: list[Segment] = []
    for segments in (*reversed(bodies[1:]), talk, stored_segments):
        for segment in segments:
            identity = (segment.key, parts_digest(segment.role, segment.parts))
            if identity not in seen:
                seen.add(identity)
                log.append(segment)
    ledger = _rename_folds(state.ledger, log)
    return RecordedLog(state=state, record=record, ledger=ledger, log=tuple(log), talk=talk)


def _rename_folds(ledger: Ledger, log: Sequence[Segment]) -> Ledger:
    """The ledger with the names that segments have in this log.

    A name in a ledger also says what comes before a segment. In this log other segments may come before it.
    """
    refs_by_stem: dict[str, list[Ref]] = {}
    for each in identify_segments(log):
        refs_by_stem.setdefault(stem_of(each.ref), []).append(each.ref)
    folds: list[Fold] = []
    for fold in ledger.folds:
        covers: dict[Ref, None] = {}
        for ref in fold.covers:
            covers |= dict.fromkeys(refs_by_stem.get(stem_of(ref), ())[:1])
        folds.append(msgspec.structs.replace(fold, covers=tuple(covers)))
    return msgspec.structs.replace(ledger, folds=tuple(folds))


def describe_kept(state: ConversationState, record: ConversationRecord) -> str:
    """What of a conversation the store can show, in a sentence."""
    sentence = KEPT_BY.get(state.keep or _infer_keep(record), KEPT_BY["nothing"])
    if any(record.is_erased(call) for call in record.calls):
        sentence += "; something of it was erased since"
    return sentence


def _infer_keep(record: ConversationRecord) -> str:
    """What a record keeps whose state does not say so: that of a process which was killed."""
    if any(call.sent_pieces is not None for call in record.calls):
        return "all"
    if record.segments:
        return "lowered"
    return "nothing"


def decode_segments(bodies: Iterable[bytes]) -> list[Segment]:
    """The segments among some records."""
    segments: list[Segment] = []
    for body in bodies:
        try:
            segments += decode([body])
        except BadInput:
            continue  # a record of another kind
    return segments


def _read_client_bodies(
    state: ConversationState, record: ConversationRecord
) -> Iterator[tuple[Segment, ...]]:
    """The logs of requests as the client wrote them, the last first, without those that a later one contains.

    A client that goes on sends everything again, so most often that is the last request alone.
    """
    covered: set[int] = set()
    for call in reversed(record.calls):
        pieces = call.came_pieces
        if pieces is None or covered.issuperset(pieces):
            continue
        segments = _parse_body(state, record, call)
        if segments is not None:
            covered.update(pieces)
            yield segments


def _parse_body(
    state: ConversationState, record: ConversationRecord, call: RecordedCall
) -> tuple[Segment, ...] | None:
    body = record.came_body(call)
    if not body:
        return None
    try:
        request = msgspec.json.decode(body)
        return find_dialect(call.request.dialect or state.dialect, request).wire.parse(request).log
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, LaminaError):
        return None  # a body that no dialect reads, or of which the erased part held it together


def find_dialect(name: str, request: object) -> Dialect:
    """The dialect of a recorded request: the one that the record names, or else by its shape."""
    dialect = DIALECTS.get(name)
    if dialect is not None:
        return dialect
    if not isinstance(request, dict):
        raise BadInput("it is no request", place="record", hint="a request is an object")
    return recognise(request)


def _read_last_answer(state: ConversationState, record: ConversationRecord) -> tuple[Segment, ...]:
    """The answer to the last request, which no later request repeats; nothing if it was not kept."""
    for call in reversed(record.calls):
        if call.answer is not None and not call.answer.recalled:
            return read_answer_segments(state, record, call)
    return ()


def read_answer_segments(
    state: ConversationState, record: ConversationRecord, call: RecordedCall
) -> tuple[Segment, ...]:
    """An answer as segments; nothing if it was not kept, or was no answer of the model."""
    body = record.answer_body(call)
    dialect = DIALECTS.get(call.request.dialect or state.dialect)
    if not body or call.answer is None or dialect is None:
        return ()
    try:
        return read_answer(body, call.answer, dialect.name).segments
    except (LaminaError, RecursionError):
        return ()
