"""Verifies a conversation as a whole, and against what was remembered of it elsewhere.

A store that is set back as a whole to an older copy of itself looks right from inside. An anchor is what
catches that: the end of a conversation, kept where whoever writes to the store cannot.
"""

from __future__ import annotations

import msgspec

from lamina.errors import Tampered
from lamina.stores.paging import check_page
from lamina.stores.port import Where
from lamina.stores.sealed.cipher import same
from lamina.stores.sealed.store import Sealed


class Anchor(msgspec.Struct, frozen=True):
    """How many records there were, and the link of the last one."""

    count: int
    link: bytes


async def anchor(sealed: Sealed, where: Where) -> Anchor:
    """The end of a conversation, to be remembered."""
    reading = await sealed.reading(where, last=0)
    return Anchor(reading.state.count, reading.state.link)


async def verify(sealed: Sealed, where: Where, *, since: Anchor | None = None, batch: int = 500) -> Anchor:
    """Reads all of a conversation, verifies the whole chain, and that it continues `since`."""
    check_page(batch)
    at, link = 0, b""
    while True:
        reading = await sealed.reading(where, after=at, limit=batch)
        links = [*(record.before for record in reading.records), *(r.link for r in reading.records[-1:])]
        if link and links and not same(links[0], link):
            raise _broken(where, f"record {at} does not continue the one before it")
        _check_since(where, since, at, links or [link or reading.state.link])
        at, link = at + len(reading.records), links[-1] if links else link
        if at >= reading.state.count:  # a verified page is never short, so each turn gets on
            break
    if since is not None and since.count > at:
        raise _broken(where, f"{at} records, {since.count} were there before")
    return Anchor(at, reading.state.link)


def _check_since(where: Where, since: Anchor | None, at: int, links: list[bytes]) -> None:
    """`links` stand before the records from `at` on, and after the last of them."""
    if since is None or not at <= since.count < at + len(links):
        return
    if not same(links[since.count - at], since.link):
        raise _broken(where, f"before record {since.count} it is not what it was")


def _broken(where: Where, problem: str) -> Tampered:
    return Tampered(problem, conversation=where.conversation)
