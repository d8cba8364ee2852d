"""Going through a store page by page, and trying again, so that each loop makes progress or raises.

A damaged index can give the same page for ever, and a store that lies can refuse what it has just given. No
loop over a store trusts it to end by itself: names have to rise, places have to follow each other, and a
write that others were quicker than is tried again a limited number of times.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from lamina.errors import BadInput, Damaged, StoreError
from lamina.stores.port import Listed, Record, Store, Where

PAGE = 1000
"""Conversations or records that are asked for at once."""

TRIES = 1000
"""How often a write is tried again because another was quicker. Each time that other one got on."""


async def every_conversation(store: Store, workspace: str, *, page: int = PAGE) -> AsyncIterator[Listed]:
    """Every conversation of a workspace, in order, each once."""
    after = ""
    while listed := await store.list(workspace, after=after, limit=page):
        for each in listed:
            if each.conversation <= after:
                problem = f"its list names {each.conversation!r} after {after!r}"
                raise Damaged(problem, hint="the index of the store is damaged: restore it from a backup")
            yield each
            after = each.conversation


async def every_record(store: Store, where: Where, *, page: int = PAGE) -> AsyncIterator[Record]:
    """Every record of a conversation, in order, each once, as many as there are at the end."""
    check_page(page)
    place = 0
    while True:
        found = await store.read(where, after=place, limit=page)
        for record in found.records:
            if record.seq != place:
                problem = f"record {record.seq} comes where record {place} should"
                raise Damaged(problem, conversation=where.conversation)
            yield record
            place += 1
        if place >= found.head.count:
            return
        if not found.records:
            problem = f"{found.head.count} records, and nothing comes from record {place} on"
            raise Damaged(problem, conversation=where.conversation)


def check_page(page: int) -> None:
    """Refuses a page that could hold nothing: whoever asks for the next one would never get on."""
    if page < 1:
        raise BadInput(f"{page!r}", place="batch", hint="give 1 or more")


def attempts(conversation: str = "", *, most: int = TRIES) -> Iterator[int]:
    """The numbers of a limited number of attempts; StoreError after the last."""
    yield from range(most)
    problem = f"{most:,} times another writer was first"
    raise StoreError(problem, conversation=conversation, hint="try again when fewer write to it")
