"""Verified reads of a sealed store, and the memory of how far each conversation has come.

A conversation whose end this process has seen cannot end before that later: it was set back to an older copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from anyio import to_thread

from lamina.errors import Damaged, StoreError, Tampered, WrongKey
from lamina.stores.checked import RecordSelection
from lamina.stores.paging import attempts
from lamina.stores.port import RecordPage, Store, Where
from lamina.stores.sealed.cards import Cards, OpenCard, is_same_card
from lamina.stores.sealed.cipher import same
from lamina.stores.sealed.pages import SeenEnd, VerifiedPage, read_page
from lamina.stores.sealed.records import SealedState
from lamina.stores.sealed.vault import Vault

LARGE = 262_144
"""Bytes above which sealing and opening go to a worker thread."""

RESCUE = "restore it from a backup, or keep what can be read: lamina conversations rescue NAME"

MOST_SEEN = 65_536
"""Conversations whose end is remembered."""

EVERYTHING = RecordSelection()
NOTHING = RecordSelection(last=0)
"""Selects the head alone."""

Result = TypeVar("Result")


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
