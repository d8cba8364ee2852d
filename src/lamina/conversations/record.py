"""What was sent and what came back, request by request: the one truth, which every door writes.

The record of a conversation is a sequence of records in a store:

    =…bytes…                                  a piece of a request or of an answer, as it went over the wire
    ~…bytes…                                  such a piece after something was erased from it: what is left
    {"v":1,"sent":{"id":"…","sent":{…}, …}}   a request left: when, to whom, and of which pieces its body is
    {"v":1,"answered":{"id":"…", …}}          its answer came: status, usage, times, and its body

A body is cut into pieces (`lamina.conversations.bodies`), and each piece is stored once in a conversation. A
request that grows at its end adds the new pieces and says that it has all others of the request before it. So
the exact bytes that left can be built again, and the text is stored once, whatever the number of requests.

A request whose answer is not in the record was in flight when the process ended, or still is. This module
does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from lamina.conversations.bodies import Body, LastBody, split_body
from lamina.core.epochs import HISTORY_CHANGED, SYSTEM_CHANGED, TOOLS_CHANGED
from lamina.core.values import Cut, Ledger
from lamina.dialects.usage import Usage
from lamina.errors import BadInput

VERSION = 1

MOST_WAITING = 16 << 20
"""Bytes of bodies of one conversation that wait for a store that does not answer."""

DIGEST_BYTES = 150
"""What the digest of a stored piece takes in memory, with its place. Measured, rounded up."""

PIECE = b"="
"""Begins the record of a piece. No JSON value does."""

ERASED = b"~"
"""Begins the record of a piece that something was erased from: what is left of it follows. No writer takes
such a piece for its own, so a client that sends the text once more has it stored once more."""


CHANGES_OF_THE_CALLER = frozenset({TOOLS_CHANGED, SYSTEM_CHANGED, HISTORY_CHANGED})
"""Reasons of a cut that the caller gives: it sends other tools, another system text or another history."""


class CutNote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cut that was made for a request: its number in the conversation, why, and the tokens around it."""

    number: int
    reason: str
    before: int = 0
    after: int = 0
    lowered: int = 0

    @classmethod
    def of(cls, cut: Cut) -> CutNote:
        """Note a cut of the ledger."""
        return cls(
            number=cut.number, reason=cut.reason, before=cut.before, after=cut.after, lowered=cut.lowered
        )


def is_compaction(cut: Cut | CutNote) -> bool:
    """Whether lamina made this cut, and not the caller.

    The ledger has a cut wherever bytes that were sent may differ. If a caller changes its own system text,
    the cache is lost with or without lamina, and nothing was shortened: to people that is a miss.
    """
    return cut.lowered > 0 or cut.reason not in CHANGES_OF_THE_CALLER


def count_compactions(ledger: Ledger) -> int:
    """How many cuts of a ledger lamina made."""
    return sum(is_compaction(cut) for cut in ledger.cuts)


class SentRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request that left.

    `at` is in seconds since 1970. `door` says which part of lamina sent it. `tokens` is lamina's own count, 0
    if it did not count. `window` and `prefer` are those of its budget, `epoch` the number of cuts until now,
    and `cut` the one that was made for this request. `size` and `digest` are those of the body.

    `sent` is the body, None if the store keeps no bodies. `came` is the body as the client wrote it, None if
    that is the same. `ledger` is the record with the ledger that it was built with, None before the first
    change. `follows` is the id of the request that this one repeats: after a refusal (`why` says which) or
    after a recall.
    """

    id: str
    at: float
    door: str = ""
    dialect: str = ""
    model: str = ""
    upstream: str = ""
    tokens: int = 0
    window: int = 0
    prefer: str = ""
    epoch: int = 0
    cut: CutNote | None = None
    size: int = 0
    digest: str = ""
    sent: Body | None = None
    came: Body | None = None
    ledger: int | None = None
    follows: str = ""
    why: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def is_cut(self) -> bool:
        """Whether lamina shortened something or left it out for this request."""
        return self.cut is not None and is_compaction(self.cut)


class Answered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came back for the request with this `id`.

    `first` and `last` are the seconds from the request to the first and to the last byte. `status` is 0 if
    there was no answer at all; `error` then says why. `headers` are those that matter: the provider's id of
    the request, limits, when to try again; never a key. `encoding` is how the body is packed. `account` has
    what the account needs to tell what the request would have cost without lamina. `recalled`: the answer
    was for lamina, which sent the next request with what the model asked for. `retries` is how often the
    same bytes were sent again because the provider asked to. `provider_cause` is the provider's own word for
    why its cache missed, "hit" if it found nothing, "" if it said nothing (`lamina.dialects.cache_reports`);
    `provider_missed` are the tokens that it says were missed.
    """

    id: str
    at: float
    status: int = 0
    first: float = 0.0
    last: float = 0.0
    headers: Mapping[str, str] = {}
    content_type: str = ""
    encoding: str = ""
    usage: Usage | None = None
    stop: tuple[str, ...] = ()
    answer_id: str = ""
    body: Body | None = None
    size: int = 0
    error: str = ""
    recalled: bool = False
    retries: int = 0
    provider_cause: str = ""
    provider_missed: int = 0
    account: Mapping[str, Any] = {}


class _Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    v: int = VERSION
    sent: SentRequest | None = None
    answered: Answered | None = None


class _PendingSent(msgspec.Struct, frozen=True, kw_only=True):
    request: SentRequest
    body: bytes | None
    came: bytes | None
    ledger: Ledger | None


class _PendingAnswer(msgspec.Struct, frozen=True, kw_only=True):
    answer: Answered
    body: bytes | None


class RecordWriter:
    """Turns what happened in one conversation into records.

    Pieces are named by their place in the store, so records are made when they are saved: `encode` with the
    number of records that the store has now, then `saved`. If another process has written meanwhile, `learn`
    what it wrote, and encode again. Nothing is lost: what was not saved waits. `count` is that number, and
    `is_listed` says that the conversation can be found by its family.
    """

    def __init__(self) -> None:
        self.count = 0
        self.is_listed = False
        self._waiting_size = 0
        self._waiting: list[_PendingSent | _PendingAnswer | bytes] = []
        self._pieces: dict[bytes, int] = {}
        self._sent = LastBody()
        self._came = LastBody()
        self._ledger_size: tuple[int, ...] = ()
        self._ledger_place: int | None = None
        self._unsaved: _Unsaved | None = None

    def __len__(self) -> int:
        """How many events wait to be saved."""
        return len(self._waiting)

    def add_sent(
        self,
        request: SentRequest,
        *,
        body: bytes | None = None,
        came: bytes | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        """A request left with this body. `came` is how the client wrote it, None if that is the same."""
        if self._waiting_size > MOST_WAITING:  # the store is gone: what happened is noted, without the texts
            body = came = None
        self._waiting_size += len(body or b"") + len(came or b"")
        self._waiting.append(_PendingSent(request=request, body=body, came=came, ledger=ledger))

    def add_answer(self, answer: Answered, *, body: bytes | None = None) -> None:
        """An answer came, or the request failed."""
        if self._waiting_size > MOST_WAITING:
            body = None
        self._waiting_size += len(body or b"")
        self._waiting.append(_PendingAnswer(answer=answer, body=body))

    def add_record(self, record: bytes) -> None:
        """Another record of this conversation: a segment that was lowered."""
        self._waiting.append(record)

    @property
    def size(self) -> int:
        """Bytes that are held to compare the next request with: those of the last one, and all digests."""
        held = self._sent.size + len(self._pieces) * DIGEST_BYTES
        if self._came.pieces is not self._sent.pieces:
            held += self._came.size
        return held

    def encode(self, more: Iterable[bytes] = ()) -> list[bytes]:
        """The records of everything that waits, and then `more`, for a store that has `count` records now.

        `more` is not held back if it cannot be saved: the caller makes it again.
        """
        unsaved = _Unsaved(self, self.count)
        for event in self._waiting:
            unsaved.add(event)
        unsaved.records.extend(more)
        self._unsaved = unsaved
        return unsaved.records

    def saved(self) -> None:
        """What was encoded last is in the store."""
        unsaved = self._unsaved
        assert unsaved is not None  # noqa: S101 - `encode` comes first
        self._unsaved = None
        del self._waiting[: unsaved.events]
        self._waiting_size = sum(map(_count_bytes, self._waiting))
        self.count = unsaved.first + len(unsaved.records)
        self._pieces.update(unsaved.pieces)
        self._sent = unsaved.sent
        self._came = unsaved.came
        self._ledger_size = unsaved.ledger_size
        self._ledger_place = unsaved.ledger_place

    def learn(self, records: Iterable[bytes]) -> None:
        """Learn the pieces of the next records, which somebody else has saved."""
        for body in records:
            if body.startswith(PIECE):
                self._pieces.setdefault(_digest(body[1:]), self.count)
            self.count += 1

    def skip_to(self, count: int) -> None:
        """The store has so many records by now, which were not read: their texts may be stored once more.

        If it has fewer than it had, somebody deleted the conversation: what this writer knows is gone.
        """
        if count < self.count:
            self.begin_anew()
        self.count = count

    def begin_anew(self) -> None:
        """The conversation was deleted from the store. What waits is the beginning of a new record."""
        self.count = 0
        self.is_listed = False
        self._pieces = {}
        self._ledger_size = ()
        self._ledger_place = None
        self.forget_bodies()

    def forget_bodies(self) -> None:
        """Forget the bytes of the last request: they take memory. The next one is compared piece by piece."""
        self._sent = LastBody()
        self._came = LastBody()


class _Unsaved:
    """The records that a writer makes of what waits, and what it will know once they are saved."""

    def __init__(self, writer: RecordWriter, count: int) -> None:
        self.first = count
        self.records: list[bytes] = []
        self.events = 0
        self.pieces: dict[bytes, int] = {}
        self._known = writer._pieces  # noqa: SLF001 - its own other half
        self.sent = writer._sent  # noqa: SLF001
        self.came = writer._came  # noqa: SLF001
        self.ledger_size = writer._ledger_size  # noqa: SLF001
        self.ledger_place = writer._ledger_place  # noqa: SLF001

    def add(self, event: _PendingSent | _PendingAnswer | bytes) -> None:
        self.events += 1
        match event:
            case bytes():
                self.records.append(event)
            case _PendingSent():
                self._add_sent(event)
            case _PendingAnswer(answer=answer, body=body):
                if body is not None:
                    place = self._place(body)
                    answer = msgspec.structs.replace(answer, body=Body(runs=((place, 1),)), size=len(body))
                self._add_event(_Event(answered=answer))

    def _add_sent(self, event: _PendingSent) -> None:
        request = event.request
        ledger = event.ledger
        if ledger is not None and _size_of(ledger) != self.ledger_size:
            self.ledger_size = _size_of(ledger)
            self.ledger_place = self._place(msgspec.json.encode(ledger.dump()))
        sent = came = None
        if event.body is not None:
            sent, sent_body = split_body(event.body, self.sent, self._place)
            came_body = sent_body
            if event.came is not None:
                came, came_body = split_body(event.came, self.came, self._place)
            own_place = self.first + len(self.records)
            self.sent = sent_body._replace(record=own_place)
            self.came = came_body._replace(record=own_place)
        request = msgspec.structs.replace(request, sent=sent, came=came, ledger=self.ledger_place)
        self._add_event(_Event(sent=request))

    def _add_event(self, event: _Event) -> None:
        self.records.append(msgspec.json.encode(event))

    def _place(self, piece: bytes) -> int:
        """Where a piece is stored, or will be."""
        digest = _digest(piece)
        place = self._known.get(digest)
        if place is None:
            place = self.pieces.get(digest)
        if place is None:
            place = self.first + len(self.records)
            self.pieces[digest] = place
            self.records.append(PIECE + piece)
        return place


def _count_bytes(event: _PendingSent | _PendingAnswer | bytes) -> int:
    match event:
        case _PendingSent(body=body, came=came):
            return len(body or b"") + len(came or b"")
        case _PendingAnswer(body=body):
            return len(body or b"")
    return 0


def _digest(piece: bytes) -> bytes:
    return blake2b(piece, digest_size=16).digest()


def digest_body(body: bytes) -> str:
    """The digest of a body, by which a record that keeps no bodies can still be checked."""
    return blake2b(body, digest_size=16).hexdigest()


def _size_of(ledger: Ledger) -> tuple[int, ...]:
    """Tell two ledgers of a conversation apart, as far as requests depend on them: none loses a cut."""
    return (len(ledger.cuts), len(ledger.lines), len(ledger.folds), len(ledger.repairs))


class RecordedCall(msgspec.Struct, kw_only=True, eq=False):
    """A request as it stands in the record, with its answer; None while there is none.

    `sent_pieces` and `came_pieces` are the numbers of the pieces of its bodies.
    """

    request: SentRequest
    answer: Answered | None = None
    sent_pieces: tuple[int, ...] | None = None
    came_pieces: tuple[int, ...] | None = None


class ConversationRecord:
    """The record of one conversation, read from its store: every request in order, and what came back."""

    def __init__(self) -> None:
        self.calls: list[RecordedCall] = []
        self.segments: list[bytes] = []
        self.count = 0
        self._pieces: dict[int, bytes] = {}
        self._erased: set[int] = set()
        self._by_id: dict[str, RecordedCall] = {}
        self._by_record: dict[int, RecordedCall] = {}

    def read(self, records: Iterable[bytes]) -> None:
        """Read more records, which come after those that were read. Raises BadInput for a foreign one."""
        for body in records:
            self._read_one(body)
            self.count += 1

    def sent_body(self, call: RecordedCall) -> bytes | None:
        """The bytes that left; None if the store keeps no bodies."""
        if call.sent_pieces is None:
            return None
        return self._join(call.sent_pieces)

    def came_body(self, call: RecordedCall) -> bytes | None:
        """The bytes that the client wrote; None if the store keeps no bodies."""
        if call.came_pieces is None:
            return None
        return self._join(call.came_pieces)

    def answer_body(self, call: RecordedCall) -> bytes | None:
        """The bytes that came back, packed as `answer.encoding` says; None if they were not kept."""
        if call.answer is None or call.answer.body is None:
            return None
        return self._join(call.answer.body.resolve(()))

    def is_erased(self, call: RecordedCall) -> bool:
        """Whether something was erased from a body of this request or of its answer since it was recorded."""
        places: set[int] = {*(call.sent_pieces or ()), *(call.came_pieces or ())}
        if call.answer is not None and call.answer.body is not None:
            places.update(call.answer.body.resolve(()))
        return not places.isdisjoint(self._erased)

    def piece(self, place: int) -> bytes | None:
        """The piece that this record holds; None if it is a record of another kind."""
        return self._pieces.get(place)

    def ledger(self, call: RecordedCall) -> Ledger:
        """The ledger that a request was built with, as far as its bytes depend on it.

        Of a ledger that was erased only its absence is known: it is empty then.
        """
        if call.request.ledger is None or not self._pieces.get(call.request.ledger):
            return Ledger()
        return load_stored_ledger(self._pieces[call.request.ledger])

    def _join(self, places: Iterable[int]) -> bytes:
        try:
            return b"".join(self._pieces[place] for place in places)
        except KeyError as error:
            hint = "the record is damaged: lamina conversations rescue writes what is whole"
            raise BadInput(f"piece {error} of a body is missing", place="record", hint=hint) from None

    def _read_one(self, body: bytes) -> None:
        if body.startswith(PIECE):
            self._pieces[self.count] = body[1:]
            return
        if body.startswith(ERASED):
            self._pieces[self.count] = body[1:]
            self._erased.add(self.count)
            return
        event = _decode_event(body, self.count)
        if event.sent is not None:
            self._read_sent(event.sent)
        elif event.answered is not None:
            call = self._by_id.get(event.answered.id)
            if call is not None:
                call.answer = event.answered
        else:
            self.segments.append(body)

    def _read_sent(self, request: SentRequest) -> None:
        call = RecordedCall(request=request)
        if request.sent is not None:
            call.sent_pieces = self._resolve(request.sent, "sent_pieces")
            call.came_pieces = call.sent_pieces
            if request.came is not None:
                call.came_pieces = self._resolve(request.came, "came_pieces")
        self.calls.append(call)
        self._by_id[request.id] = call
        self._by_record[self.count] = call

    def _resolve(self, body: Body, kind: str) -> tuple[int, ...]:
        base: tuple[int, ...] = ()
        if body.base >= 0:
            base = getattr(self._by_record[body.base], kind) or ()
        return body.resolve(base)


def _decode_event(body: bytes, place: int) -> _Event:
    try:
        event = msgspec.json.decode(body, type=_Event)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        hint = "a newer release wrote it, or it is no record of a conversation"
        raise BadInput(str(error), place=f"record {place}", hint=hint) from None
    if event.v != VERSION:
        hint = f"this release reads version {VERSION}; a newer one wrote it"
        raise BadInput(f"version {event.v!r}", place=f"record {place}", hint=hint)
    return event


def load_stored_ledger(source: bytes) -> Ledger:
    """A ledger as it stands in a record. Raises BadInput if it is damaged."""
    try:
        return Ledger.load(msgspec.json.decode(source))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        hint = "the record is damaged: restore it from a backup"
        raise BadInput(f"its ledger cannot be read: {error}", place="record", hint=hint) from None
