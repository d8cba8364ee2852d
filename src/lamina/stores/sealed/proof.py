"""Verifies a whole conversation, also against an anchor that was stored elsewhere.

If a store is set back as a whole to an older copy of itself, nothing in it looks wrong. An anchor shows that:
it is the end of a conversation, stored where whoever writes to the store cannot change it.
"""

from __future__ import annotations

import msgspec

from lamina.errors import StoreError, Tampered
from lamina.stores.checked import RecordSelection
from lamina.stores.paging import check_page
from lamina.stores.port import Where
from lamina.stores.sealed.cipher import same
from lamina.stores.sealed.reader import NOTHING, VerifiedPage
from lamina.stores.sealed.store import Sealed


class Anchor(msgspec.Struct, frozen=True):
    """The number of records, and the link of the last one."""

    count: int
    link: bytes


async def anchor(sealed: Sealed, where: Where) -> Anchor:
    """The end of a conversation, to be stored elsewhere."""
    page = await sealed.reader.read(where, NOTHING)
    return Anchor(page.state.count, page.state.link)


async def verify(sealed: Sealed, where: Where, *, since: Anchor | None = None, batch: int = 500) -> Anchor:
    """Read all of a conversation, and verify the whole chain and that it continues `since`.

    Raises StoreError if it was deleted and the deletion was interrupted.
    """
    check_page(batch)
    place = 0
    link = b""
    while True:
        page = await sealed.reader.read(where, RecordSelection(after=place, limit=batch))
        if page.open_card is not None and page.open_card.is_deleting:
            problem = "its deletion was interrupted: its keys are gone, and some of its records may be left"
            raise StoreError(problem, conversation=where.conversation, hint="delete it again")
        links = _links_of(page, link)
        if link and not same(links[0], link):
            raise _tampered(where, f"record {place} does not continue the one before it")
        _check_anchor(where, since, place, links)
        link = links[-1]
        place += len(page.records)
        if place >= page.state.count:  # a verified page is never short, so each turn makes progress
            break
    if since is not None and since.count > place:
        raise _tampered(where, f"{place} records, {since.count} were there before")
    return Anchor(place, page.state.link)


def _links_of(page: VerifiedPage, link: bytes) -> list[bytes]:
    """The link before each record of a page, and the link after the last.

    A page without records has one link: the one where the page before it ended, or that of the state.
    """
    if not page.records:
        return [link or page.state.link]
    return [*(record.before for record in page.records), page.records[-1].link]


def _check_anchor(where: Where, since: Anchor | None, place: int, links: list[bytes]) -> None:
    """Raise Tampered if the anchor is among these links and differs. The first is before record `place`."""
    if since is None or not place <= since.count < place + len(links):
        return
    if not same(links[since.count - place], since.link):
        raise _tampered(where, f"before record {since.count} it is not what it was")


def _tampered(where: Where, problem: str) -> Tampered:
    return Tampered(problem, conversation=where.conversation)
