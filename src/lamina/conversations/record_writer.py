"""Turns what happens in a conversation into the records that `lamina.conversations.record` describes.

Pieces are named by their place in the store. So records are made when they are saved, and made again if
another process has written meanwhile. This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from zlib import crc32

import msgspec

from lamina.conversations.bodies import Body, LastBody, split_body
from lamina.conversations.record import PIECE, Answered, RecordEvent, SentRequest
from lamina.core.values import Ledger

MOST_WAITING = 16 << 20
"""Bytes of bodies of one conversation that wait for a store that does not answer."""

DIGEST_BYTES = 150
"""What the digest of a stored piece takes in memory, with its place. Measured, rounded up."""


class _WaitingSent(msgspec.Struct, frozen=True, kw_only=True):
    request: SentRequest
    body: bytes | None
    came: bytes | None
    ledger: Ledger | None

    @property
    def size(self) -> int:
        return len(self.body or b"") + len(self.came or b"")


class _WaitingAnswer(msgspec.Struct, frozen=True, kw_only=True):
    answer: Answered
    body: bytes | None

    @property
    def size(self) -> int:
        return len(self.body or b"")


class _WaitingRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record that is written as it is. It counts nothing: segments that were lowered are never dropped."""

    record: bytes
    size: int = 0


_Waiting = _WaitingSent | _WaitingAnswer | _WaitingRecord


class _LastStored(msgspec.Struct, frozen=True, kw_only=True):
    """What the next request is compared with: the bodies and the ledger of the last one in the store."""

    sent: LastBody = LastBody()
    came: LastBody = LastBody()
    ledger_size: tuple[int, ...] = ()
    ledger_place: int | None = None


class RecordWriter:
    """Turns what happened in one conversation into records.

    Pieces are named by their place in the store, so records are made when they are saved: `encode` with the
    number of records that the store has now, then `saved`. If another process has written meanwhile, `learn`
    what it wrote, and encode again. Nothing is lost: what was not saved waits. `count` is that number, and
    `listed` says where the conversation can be found (`addresses.enlist`).
    """

    def __init__(self) -> None:
        self.count = 0
        self.listed: dict[str, str] = {}
        self._waiting_size = 0
        self._waiting: list[_Waiting] = []
        self._pieces: dict[bytes, int] = {}
        self._last = _LastStored()
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
        if self._is_full:
            body = came = None
        self._wait(_WaitingSent(request=request, body=body, came=came, ledger=ledger))

    def add_answer(self, answer: Answered, *, body: bytes | None = None) -> None:
        """An answer came, or the request failed."""
        if self._is_full:
            body = None
        self._wait(_WaitingAnswer(answer=answer, body=body))

    def add_record(self, record: bytes) -> None:
        """Another record of this conversation: a segment that was lowered."""
        self._wait(_WaitingRecord(record=record))

    def _wait(self, event: _Waiting) -> None:
        self._waiting_size += event.size
        self._waiting.append(event)

    @property
    def _is_full(self) -> bool:
        """Whether the store seems to be gone. Then what happens is noted without its texts."""
        return self._waiting_size > MOST_WAITING

    @property
    def size(self) -> int:
        """Bytes that are held to compare the next request with: those of the last one, and all digests."""
        size = self._last.sent.size + len(self._pieces) * DIGEST_BYTES
        if self._last.came.pieces is not self._last.sent.pieces:
            size += self._last.came.size
        return size

    def encode(self, more: Iterable[bytes] = ()) -> list[bytes]:
        """The records of everything that waits, and then `more`, for a store that has `count` records now.

        `more` is not held back if it cannot be saved: the caller makes it again.
        """
        unsaved = _Unsaved(self.count, self._pieces, self._last)
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
        self._waiting_size = sum(event.size for event in self._waiting)
        self.count = unsaved.first + len(unsaved.records)
        self._pieces.update(unsaved.new_pieces)
        self._last = unsaved.last

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
        self.listed.clear()
        self._pieces = {}
        self._last = _LastStored()

    def forget_bodies(self) -> None:
        """Forget the bytes of the last request: they take memory. The next one is compared piece by piece."""
        self._last = msgspec.structs.replace(self._last, sent=LastBody(), came=LastBody())


class _Unsaved:
    """The records that a writer makes of what waits, and what it will know once they are saved.

    They come after the `first` ones. `stored_pieces` says where the pieces of these are, and `last` is the
    last request among them.
    """

    def __init__(self, first: int, stored_pieces: Mapping[bytes, int], last: _LastStored) -> None:
        self.first = first
        self.records: list[bytes] = []
        self.events = 0
        self.new_pieces: dict[bytes, int] = {}
        self.last = last
        self._stored_pieces = stored_pieces

    def add(self, event: _Waiting) -> None:
        self.events += 1
        match event:
            case _WaitingRecord(record=record):
                self.records.append(record)
            case _WaitingSent():
                self._add_sent(event)
            case _WaitingAnswer(answer=answer, body=body):
                if body is not None:
                    place = self._place(body)
                    answer = msgspec.structs.replace(answer, body=Body(runs=((place, 1),)), size=len(body))
                self._add_event(RecordEvent(answered=answer))

    def _add_sent(self, event: _WaitingSent) -> None:
        last = self.last
        ledger = event.ledger
        if ledger is not None and _size_of(ledger) != last.ledger_size:
            place = self._place(msgspec.json.encode(ledger.dump()))
            last = msgspec.structs.replace(last, ledger_size=_size_of(ledger), ledger_place=place)
        sent = came = None
        if event.body is not None:
            sent, sent_body = split_body(event.body, last.sent, self._place)
            came_body = sent_body
            if event.came is not None:
                came, came_body = split_body(event.came, last.came, self._place)
            own_place = self.first + len(self.records)
            last = msgspec.structs.replace(
                last,
                sent=sent_body._replace(record=own_place),
                came=came_body._replace(record=own_place),
            )
        self.last = last
        request = msgspec.structs.replace(event.request, sent=sent, came=came, ledger=last.ledger_place)
        self._add_event(RecordEvent(sent=request))

    def _add_event(self, event: RecordEvent) -> None:
        self.records.append(msgspec.json.encode(event))

    def _place(self, piece: bytes) -> int:
        """Where a piece is stored, or will be."""
        digest = _digest(piece)
        if digest in self._stored_pieces:
            return self._stored_pieces[digest]
        if digest not in self.new_pieces:
            self.new_pieces[digest] = self.first + len(self.records)
            self.records.append(PIECE + piece)
        return self.new_pieces[digest]


def _digest(piece: bytes) -> bytes:
    return blake2b(piece, digest_size=16).digest()


def _size_of(ledger: Ledger) -> tuple[int, ...]:
    """Tell two ledgers of a conversation apart, as far as requests depend on them: none loses a cut.

    A prompt that is asked in other words may have another reminder in the place of the first one.
    """
    reminders = crc32("".join(reminder.key for reminder in ledger.reminders).encode())
    return (len(ledger.cuts), len(ledger.lines), len(ledger.folds), len(ledger.repairs), reminders)
