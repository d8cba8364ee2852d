"""Reads sealed pages and seals groups: everything that needs keys and no store.

What a read proves: every record it gives was sealed for this store, workspace, conversation and place, and
neighbours follow each other; and how many records there are. Up to the end: that nothing was cut off, put in
or exchanged from its first record on. From 0 to the end: the same of the whole conversation. Single places
(`at`), and pages that stop before the end, prove no more than the first sentence.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.errors import StoreError, Tampered, WrongKey
from lamina.stores.port import RecordPage
from lamina.stores.sealed.cipher import NotSealedHere, same
from lamina.stores.sealed.documents import DELETING, SHREDDED
from lamina.stores.sealed.records import (
    MOST_RECORDS,
    Generation,
    Opened,
    SealedState,
    follows,
    generation_of,
    open_record,
    open_state,
    seal_record,
    seal_state,
)
from lamina.stores.sealed.vault import Held

NO_CARD = "records without the card of their key: not sealed, or the card is gone"


class SeenEnd(msgspec.Struct, frozen=True):
    """The end of a conversation as this process saw it last: it never lies before that again."""

    card: bytes
    count: int
    link: bytes


class VerifiedPage(msgspec.Struct, frozen=True, kw_only=True):
    """A verified page. `held` is None where there is no such conversation.

    `kept` is the state as the store within has it: never the same bytes again, whenever it is sealed.
    """

    held: Held | None
    state: SealedState
    kept: bytes = b""
    seqs: tuple[int, ...] = ()
    records: tuple[Opened, ...] = ()
    exists: bool = True


def read_page(
    held: Held | None, page: RecordPage, meant: Sequence[int], seen: SeenEnd | None
) -> VerifiedPage:
    """Verifies a page that should hold the records at the places `meant`."""
    if held is not None and held.card.gone == DELETING:
        return VerifiedPage(held=held, state=SealedState(count=0, link=held.place.genesis), exists=False)
    if not page.head.count and not page.head.state:
        return _nothing(held, seen)
    if held is None:
        raise Tampered(NO_CARD)
    state = read_state(held, page.head.state)
    if state.count != page.head.count:
        raise Tampered(f"{page.head.count} records, {state.count} were sealed: some were cut off or put in")
    _check_seen(held, state, seen)
    if [record.seq for record in page.records] != list(meant):
        raise Tampered("records are missing, or others came than were asked for")
    records = tuple(read_record(held, record.seq, record.body) for record in page.records)
    check_chain(held, state, meant, records)
    return VerifiedPage(held=held, state=state, kept=page.head.state, seqs=tuple(meant), records=records)


def read_state(held: Held, kept: bytes) -> SealedState:
    if held.card.gone == SHREDDED:
        hint = "what was written there is lost; delete it to use its name again"
        raise WrongKey("it was shredded: its key is destroyed", hint=hint)
    try:
        return open_state(_generation(held, generation_of(kept, state=True), "the state"), kept)
    except NotSealedHere:
        raise Tampered("its state is not what was written") from None


def read_record(held: Held, seq: int, kept: bytes) -> Opened:
    try:
        return open_record(_generation(held, generation_of(kept), f"record {seq}"), seq, kept)
    except NotSealedHere:
        raise Tampered(f"record {seq} is not what was written, or was not written there") from None


def check_chain(held: Held, state: SealedState, seqs: Sequence[int], records: Sequence[Opened]) -> None:
    """Neighbours continue each other; the first record continues nothing, the last one is the head's."""
    if not seqs:
        return
    runs = [at for at in range(len(seqs)) if not at or seqs[at - 1] + 1 != seqs[at]]
    for start, end in zip(runs, [*runs[1:], len(seqs)], strict=True):
        first = held.place.genesis if seqs[start] == 0 else None
        last = state.link if seqs[end - 1] + 1 == state.count else None
        broken = follows(records[start:end], first=first, last=last)
        if broken is not None:
            raise Tampered(
                f"record {seqs[start + broken]} does not continue the one before it, or is not the last"
            )


def seal_group(
    held: Held, state: SealedState, records: Sequence[bytes], body: bytes | None, *, bucket: int
) -> tuple[list[bytes], bytes, SealedState]:
    """The records as they are kept after `state`, the state as it is kept then, and that state."""
    newest = held.newest
    if state.count + len(records) - held.card.data[-1].since > MOST_RECORDS:
        raise StoreError(
            f"its data key has sealed {MOST_RECORDS:,} records", hint="give it a new one: rekey()"
        )
    sealed, link = [], state.link
    for seq, record in enumerate(records, state.count):
        kept, link = seal_record(newest, seq, link, record, bucket=bucket)
        sealed.append(kept)
    new = SealedState(
        count=state.count + len(records),
        link=link,
        body=state.body if body is None else body,
        generation=newest.number,
    )
    return sealed, seal_state(newest, new, bucket=bucket), new


def _nothing(held: Held | None, seen: SeenEnd | None) -> VerifiedPage:
    if held is None:
        return VerifiedPage(held=None, state=SealedState(count=0, link=b""), exists=False)
    if held.card.begun or (seen is not None and same(seen.card, held.card.id)):
        raise Tampered("all its records are gone, and nobody deleted it")
    return VerifiedPage(held=held, state=SealedState(count=0, link=held.place.genesis), exists=False)


def _generation(held: Held, number: int, what: str) -> Generation:
    if number not in held.generations:
        raise Tampered(f"{what} names generation {number} of its key, which is not in use")
    return held.generations[number]


def _check_seen(held: Held, state: SealedState, seen: SeenEnd | None) -> None:
    if seen is None or not same(seen.card, held.card.id):
        return
    if state.count < seen.count or (state.count == seen.count and not same(state.link, seen.link)):
        raise Tampered(
            f"{state.count} records, {seen.count} were there before: it was set back to an older copy"
        )
