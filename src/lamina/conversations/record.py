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
reads records, and `lamina.conversations.record_writer` makes them. Neither does any I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from lamina.conversations.bodies import Body
from lamina.core.epochs import HISTORY_CHANGED, SYSTEM_CHANGED, TOOLS_CHANGED
from lamina.core.values import Cut, Ledger
from lamina.dialects.usage import Usage
from lamina.errors import BadInput, advise_on_version
from lamina.fitting.server_reports import UNBOUND

VERSION = 1

PIECE = b"="
"""Begins the record of a piece. No JSON value does."""

ERASED = b"~"
"""Begins the record of a piece that something was erased from: what is left of it follows. No writer takes
such a piece for its own, so a client that sends the text once more has it stored once more."""


CHANGES_OF_THE_CALLER = frozenset({TOOLS_CHANGED, SYSTEM_CHANGED, HISTORY_CHANGED, UNBOUND})
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
    that is the same. `ledger` is the record with the ledger that it left with, None before the first change:
    it says what was sent how, and why. Where no bodies are kept, it has no text of a digest. `follows` is the
    id of the request that this one repeats: after a refusal (`why` says which) or after a recall.
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
    def lacks_reasons(self) -> bool:
        """Whether something is lowered in it, and the record does not say what: an old release wrote it."""
        return self.epoch > 0 and self.ledger is None

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
    was for lamina, which sent the next request with what the model asked for. `provider_cause` is the
    provider's own word for why its cache missed, "hit" if it found nothing, "" if it said nothing
    (`lamina.dialects.usage`); `provider_missed` are the tokens that it says were missed.
    """

    id: str = ""
    at: float = 0.0
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
    provider_cause: str = ""
    provider_missed: int = 0
    account: Mapping[str, Any] = {}


class RecordEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record that is no piece: a request left, or its answer came."""

    v: int = VERSION
    sent: SentRequest | None = None
    answered: Answered | None = None


def digest_body(body: bytes) -> str:
    """The digest of a body, by which a record that keeps no bodies can still be checked."""
    return blake2b(body, digest_size=16).hexdigest()


class RecordedCall(msgspec.Struct, kw_only=True, eq=False):
    """A request as it stands in the record, with its answer; None while there is none.

    `sent_pieces` and `came_pieces` are the numbers of the pieces of its bodies.
    """

    request: SentRequest
    answer: Answered | None = None
    sent_pieces: tuple[int, ...] | None = None
    came_pieces: tuple[int, ...] | None = None

    @property
    def answer_pieces(self) -> tuple[int, ...] | None:
        """The numbers of the pieces of the answer; None if its bytes were not kept."""
        if self.answer is None or self.answer.body is None:
            return None
        return self.answer.body.resolve(())


_DAMAGED = "the record is damaged: lamina store export writes --damaged what is whole"


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
        return self.join(call.sent_pieces)

    def came_body(self, call: RecordedCall) -> bytes | None:
        """The bytes that the client wrote; None if the store keeps no bodies."""
        return self.join(call.came_pieces)

    def answer_body(self, call: RecordedCall) -> bytes | None:
        """The bytes that came back, packed as `answer.encoding` says; None if they were not kept."""
        return self.join(call.answer_pieces)

    def is_erased(self, call: RecordedCall) -> bool:
        """Whether something was erased from a body of this request or of its answer since it was recorded."""
        for pieces in (call.sent_pieces, call.came_pieces, call.answer_pieces):
            if pieces is not None and not self._erased.isdisjoint(pieces):
                return True
        return False

    def piece(self, place: int) -> bytes | None:
        """The piece that this record holds; None if it is a record of another kind."""
        return self._pieces.get(place)

    def ledger(self, call: RecordedCall) -> Ledger:
        """The ledger that a request was built with, as far as its bytes depend on it.

        Of a ledger that was erased only its absence is known: it is empty then.
        """
        if call.request.ledger is None:
            return Ledger()
        source = self._pieces.get(call.request.ledger)
        if not source:
            return Ledger()
        return load_stored_ledger(source)

    def join(self, places: Iterable[int] | None) -> bytes | None:
        """The bytes of a body with these pieces."""
        if places is None:
            return None
        try:
            return b"".join(self._pieces[place] for place in places)
        except KeyError as error:
            raise BadInput(f"piece {error} of a body is missing", place="record", hint=_DAMAGED) from None

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
        call = self._by_id.get(request.id)
        if call is None:
            call = RecordedCall(request=request)
            self.calls.append(call)
            self._by_id[request.id] = call
        call.request = request  # it may have been noted from the log, by a gateway that started meanwhile
        if request.sent is not None:
            call.sent_pieces = self._resolve(request.sent, "sent_pieces")
            call.came_pieces = call.sent_pieces
            if request.came is not None:
                call.came_pieces = self._resolve(request.came, "came_pieces")
        self._by_record[self.count] = call

    def _resolve(self, body: Body, kind: str) -> tuple[int, ...]:
        if body.base < 0:
            return body.resolve(())
        earlier = self._by_record.get(body.base)
        if earlier is None:
            raise BadInput(f"request {body.base} is missing", place=f"record {self.count}", hint=_DAMAGED)
        return body.resolve(getattr(earlier, kind) or ())


def _decode_event(body: bytes, place: int) -> RecordEvent:
    try:
        event = msgspec.json.decode(body, type=RecordEvent)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        hint = "a newer release wrote it, or it is no record of a conversation"
        raise BadInput(str(error), place=f"record {place}", hint=hint) from None
    if event.v != VERSION:
        hint = advise_on_version(event.v, VERSION)
        raise BadInput(f"version {event.v!r}", place=f"record {place}", hint=hint)
    return event


def load_stored_ledger(source: bytes) -> Ledger:
    """A ledger as it stands in a record. Raises BadInput if it is damaged."""
    try:
        return Ledger.load(msgspec.json.decode(source))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        hint = "the record is damaged: restore it from a backup"
        raise BadInput(f"its ledger cannot be read: {error}", place="record", hint=hint) from None
