"""Reads sealed pages and seals groups: everything that needs keys and no store.

What a read proves: every record that it returns was sealed for this store, workspace, conversation and place;
neighbours follow each other; and the number of records is right. A read up to the end also proves that
nothing was cut off, put in or exchanged from its first record on. A read from 0 to the end proves the same of
the whole conversation. A read of single places (`at`), or one that stops before the end, proves no more than
the first sentence.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.errors import StoreError, Tampered, WrongKey
from lamina.stores.port import Record, RecordPage
from lamina.stores.sealed.cards import OpenCard
from lamina.stores.sealed.cipher import NotSealedHere, same
from lamina.stores.sealed.documents import SHREDDED
from lamina.stores.sealed.records import (
    MOST_RECORDS,
    Generation,
    OpenRecord,
    SealedState,
    find_break,
    generation_of,
    open_record,
    open_state,
    seal_record,
    seal_state,
)

NO_CARD = "records without the card of their key: not sealed, or the card is gone"


class SeenEnd(msgspec.Struct, frozen=True):
    """The end of a conversation as this process saw it last: later it cannot be before that."""

    card: bytes
    count: int
    link: bytes


class VerifiedPage(msgspec.Struct, frozen=True, kw_only=True):
    """A verified page. `open_card` is None if there is no such conversation.

    `sealed_state` is the state as the store within has it. Sealing the same state again gives other bytes.
    """

    open_card: OpenCard | None
    state: SealedState
    sealed_state: bytes = b""
    records: tuple[OpenRecord, ...] = ()
    exists: bool = True

    @property
    def card_in_use(self) -> OpenCard | None:
        """The card, if the conversation exists. One that is being made or deleted has a card, too."""
        if not self.exists:
            return None
        return self.open_card


class SealedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group as the store within gets it, and the state that it sets."""

    records: list[bytes]
    sealed_state: bytes
    state: SealedState


def read_page(
    open_card: OpenCard | None, page: RecordPage, places: Sequence[int], seen: SeenEnd | None
) -> VerifiedPage:
    """Verify a page that should hold the records at these places.

    The inner store is not trusted. It may hide, repeat, reorder or replace what it was given, and each of
    that is found here.
    """
    # Its data keys are destroyed, so nothing that is left of it can be verified.
    if open_card is not None and open_card.is_deleting:
        return _empty_page(open_card)
    if page.head.is_empty:
        return _read_nothing(open_card, seen)
    if open_card is None:
        raise Tampered(NO_CARD)
    state = _read_state(open_card, page.head.state)
    if state.count != page.head.count:
        raise Tampered(f"{page.head.count} records, {state.count} were sealed: some were cut off or put in")
    _check_not_older(open_card, state, seen)
    if [record.seq for record in page.records] != list(places):
        raise Tampered("records are missing, or the store returned others")
    records = tuple(_read_record(open_card, record.seq, record.body) for record in page.records)
    _check_chain(open_card, state, places, records)
    return VerifiedPage(open_card=open_card, state=state, sealed_state=page.head.state, records=records)


def read_whole_records(open_card: OpenCard, records: Sequence[Record]) -> list[Record]:
    """The records that open with the key of this conversation, whatever became of those beside them."""
    whole: list[Record] = []
    for record in records:
        try:
            opened = _read_record(open_card, record.seq, record.body)
        except Tampered:
            continue
        whole.append(Record(seq=record.seq, body=opened.body))
    return whole


def _empty_page(open_card: OpenCard) -> VerifiedPage:
    """The page of a conversation that has a card and no records: it does not exist yet, or no more."""
    state = SealedState(count=0, link=open_card.place.genesis)
    return VerifiedPage(open_card=open_card, state=state, exists=False)


def _read_nothing(open_card: OpenCard | None, seen: SeenEnd | None) -> VerifiedPage:
    """The page of a conversation without records: new, or emptied by somebody who had no key.

    The card says whether it was begun. Without that a store could hide all records and nobody would see it.
    """
    if open_card is None:
        return VerifiedPage(open_card=None, state=SealedState(count=0, link=b""), exists=False)
    was_seen = seen is not None and same(seen.card, open_card.card.id)
    if open_card.card.begun or was_seen:
        raise Tampered("all its records are gone, and nobody deleted it")
    return _empty_page(open_card)


def _read_state(open_card: OpenCard, sealed_state: bytes) -> SealedState:
    """Open the state of a conversation. Raise WrongKey if its data keys were destroyed on purpose."""
    if open_card.card.gone == SHREDDED:
        hint = "what was written there is lost; delete it to use its name again"
        raise WrongKey("it was shredded: its key is destroyed", hint=hint)
    try:
        generation = _find_generation(open_card, generation_of(sealed_state, state=True), "the state")
        return open_state(generation, sealed_state)
    except NotSealedHere:
        raise Tampered("its state is not what was written") from None


def _read_record(open_card: OpenCard, seq: int, sealed_record: bytes) -> OpenRecord:
    """Open one record. A record that was moved from another place does not open."""
    try:
        generation = _find_generation(open_card, generation_of(sealed_record), f"record {seq}")
        return open_record(generation, seq, sealed_record)
    except NotSealedHere:
        raise Tampered(f"record {seq} is not what was written, or was not written there") from None


def _find_generation(open_card: OpenCard, number: int, what: str) -> Generation:
    """The data key of this number. The number comes from the store, so it may be any."""
    if number not in open_card.generations:
        raise Tampered(f"{what} names generation {number} of its key, which is not in use")
    return open_card.generations[number]


def _check_not_older(open_card: OpenCard, state: SealedState, seen: SeenEnd | None) -> None:
    """Raise Tampered if the conversation ends before the end that this process has seen.

    A store that was set back as a whole is consistent in itself. Only somebody who has seen its end can tell.
    """
    if seen is None or not same(seen.card, open_card.card.id):
        return
    if state.count > seen.count:
        return
    if state.count < seen.count or not same(state.link, seen.link):
        raise Tampered(
            f"{state.count} records, {seen.count} were there before: it was set back to an older copy"
        )


def _check_chain(
    open_card: OpenCard, state: SealedState, places: Sequence[int], records: Sequence[OpenRecord]
) -> None:
    """Raise Tampered if a record does not continue its neighbour.

    Of a run in the middle nobody knows which links must come before and after it: those that it names count.
    """
    for start, end in _runs(places):
        run = records[start:end]
        first = run[0].before
        if places[start] == 0:
            first = open_card.place.genesis
        last = run[-1].link
        if places[end - 1] + 1 == state.count:
            last = state.link
        broken = find_break(run, first=first, last=last)
        if broken is not None:
            raise Tampered(
                f"record {places[start + broken]} does not continue the one before it, or is not the last"
            )


def _runs(places: Sequence[int]) -> list[tuple[int, int]]:
    """The runs of neighbours, as start and end index: (4, 5, 9) has (0, 2) and (2, 3)."""
    runs: list[tuple[int, int]] = []
    start = 0
    for index in range(1, len(places) + 1):
        if index == len(places) or places[index] != places[index - 1] + 1:
            runs.append((start, index))
            start = index
    return runs


def seal_group(
    open_card: OpenCard, previous: SealedState, records: Sequence[bytes], body: bytes, *, bucket: int
) -> SealedGroup:
    """Seal records that follow `previous`, and the state after them, whose content is `body`."""
    newest = open_card.newest
    count = previous.count + len(records)
    if count - open_card.card.data[-1].since > MOST_RECORDS:
        raise StoreError(
            f"its data key has sealed {MOST_RECORDS:,} records", hint="give it a new one: rekey()"
        )
    sealed_records: list[bytes] = []
    link = previous.link
    for seq, record in enumerate(records, previous.count):
        sealed_record, link = seal_record(newest, seq, link, record, bucket=bucket)
        sealed_records.append(sealed_record)
    state = SealedState(count=count, link=link, body=body, generation=newest.number)
    sealed_state = seal_state(newest, state, bucket=bucket)
    return SealedGroup(records=sealed_records, sealed_state=sealed_state, state=state)
