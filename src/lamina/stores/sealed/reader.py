"""Verified reads of a sealed store, and the memory of how far each conversation has come.

What a read proves: every record that it returns was sealed for this store, workspace, conversation and place;
neighbours follow each other; and the number of records is right. A read up to the end also proves that
nothing was cut off, put in or exchanged from its first record on. A read from 0 to the end proves the same of
the whole conversation. A read of single places (`at`), or one that stops before the end, proves no more than
the first sentence.

A conversation whose end this process has seen cannot end before that later: it was set back to an older copy.
`read_page` needs keys and no store; `VerifiedReader` asks the store, and has a fresh card read if one is old.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec
from anyio import to_thread

from lamina.errors import Damaged, StoreError, Tampered, WrongKey
from lamina.stores.checked import RecordSelection
from lamina.stores.paging import attempts
from lamina.stores.port import Record, RecordPage, Store, Where
from lamina.stores.sealed.cards import Cards, OpenCard, is_same_card
from lamina.stores.sealed.cipher import NotSealedHere, same
from lamina.stores.sealed.documents import SHREDDED
from lamina.stores.sealed.records import (
    Generation,
    OpenRecord,
    SealedState,
    find_break,
    generation_of,
    open_record,
    open_state,
)
from lamina.stores.sealed.vault import Vault

NO_CARD = "records without the card of their key: not sealed, or the card is gone"

LARGE = 262_144
"""Bytes above which sealing and opening go to a worker thread."""

RESCUE = "restore it from a backup, or keep what can be read: lamina conversations rescue NAME"

MOST_SEEN = 65_536
"""Conversations whose end is remembered."""

EVERYTHING = RecordSelection()
NOTHING = RecordSelection(last=0)
"""Selects the head alone."""

Result = TypeVar("Result")


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


class VerifiedReader:
    """Reads pages of the store within, and verifies each before it is returned."""

    def __init__(self, store: Store, vault: Vault, cards: Cards) -> None:
        self._store = store
        self._vault = vault
        self._cards = cards
        self._seen: dict[Where, SeenEnd] = {}

    async def read(self, where: Where, selection: RecordSelection) -> VerifiedPage:
        """A verified page.

        The card in the cache may be old. If it does not open the page, a fresh one is tried, until two
        attempts have failed with the same card.
        """
        seen = self._seen.get(where)
        open_card = await self._cards.read(where)
        was_refreshed = False
        for _ in attempts(where.conversation):
            page = await self._read_within(where, selection)
            places = selection.places(page.head.count)
            try:
                verified = await self._verify_page(open_card, page, places, seen)
            except (Tampered, WrongKey) as error:
                fresh_card = await self._cards.read(where, fresh=True)
                if was_refreshed and is_same_card(open_card, fresh_card):
                    raise _with_rescue(name_conversation(error, where)) from None
                open_card = fresh_card
                was_refreshed = True
                continue
            self._remember_page(where, verified)
            return verified
        raise AssertionError  # the attempts end in an error

    async def _read_within(self, where: Where, selection: RecordSelection) -> RecordPage:
        """A page of the store within. Its errors about damage get the name that the caller knows."""
        try:
            return await self._store.read(
                self._vault.inner(where),
                after=selection.after,
                last=selection.last,
                at=selection.at,
                limit=selection.limit,
            )
        except Damaged as error:
            raise name_conversation(error, where) from error

    async def _verify_page(
        self, open_card: OpenCard | None, page: RecordPage, places: Sequence[int], seen: SeenEnd | None
    ) -> VerifiedPage:
        """Verify a page, in a thread if it is large, so that other tasks go on."""
        size = sum(len(record.body) for record in page.records) + len(page.head.state)
        return await run_by_size(size, partial(read_page, open_card, page, places, seen))

    def _remember_page(self, where: Where, page: VerifiedPage) -> None:
        """Remember how far a conversation had come, so that an older copy is seen as one."""
        if page.open_card is None:
            self._seen.pop(where, None)
        elif page.exists:
            self.remember_end(where, page.open_card, page.state)

    def remember_end(self, where: Where, open_card: OpenCard, state: SealedState) -> None:
        """Remember the furthest end that was seen of this conversation."""
        end = SeenEnd(open_card.card.id, state.count, state.link)
        seen = self._seen.pop(where, end)
        if same(seen.card, end.card) and seen.count > end.count:
            end = seen  # a read that began earlier ends later
        self._seen[where] = end
        if len(self._seen) > MOST_SEEN:
            oldest = next(iter(self._seen))
            del self._seen[oldest]

    def forget_end(self, where: Where) -> None:
        """Forget a conversation that was deleted."""
        self._seen.pop(where, None)


def _with_rescue(error: StoreError) -> StoreError:
    """The error, with a way to what is left. Records that open with the key are what was written."""
    if isinstance(error, Tampered) and not error.hint:
        return Tampered(error.problem, conversation=error.conversation, hint=RESCUE)
    return error


def name_conversation(error: StoreError, where: Where) -> StoreError:
    """The same error with the name that the caller knows."""
    new = type(error)(error.problem, conversation=where.conversation, hint=error.hint)
    if isinstance(error, Damaged) and isinstance(new, Damaged):
        new.whole = error.whole
    return new


async def run_by_size(size: int, function: Callable[[], Result]) -> Result:
    """Run a function here, or in a worker thread if it has many bytes to encrypt or decrypt."""
    if size > LARGE:
        return await to_thread.run_sync(function)
    return function()


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
