"""Loops over a store: page by page, and retries of a write. Each makes progress or raises.

A damaged index can return the same page for ever, and a hostile store can refuse a write every time. So no
loop trusts a store to end it: names have to rise, places have to follow each other, and a write that comes
too late is tried again a limited number of times.

`copy_conversations` copies each conversation with its records and its state as one group, so the other store
has all of it or nothing. The idempotency keys are not copied: no store can list them.

A database leaves the bytes of a replaced record in its file until it needs their place. Every store of lamina
removes such bytes when it deletes a conversation, so `sweep_replaced` makes one and deletes it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from lamina.errors import BadInput, Conflict, Damaged, StoreError
from lamina.stores.port import ListedConversation, OwnName, Record, Store, Where

T = TypeVar("T")

PAGE = 1000
"""Conversations or records that are read at once."""

TRIES = 1000
"""How often a write is tried because another writer was first. Each time that other writer made progress."""

RETRIES = 100
"""How often what a user waits for is tried in that case."""

SWEEP = Where(OwnName("lamina.sweep"), "sweep")
"""The conversation that is made and deleted."""


async def every_conversation(
    store: Store, workspace: str, *, page: int = PAGE
) -> AsyncIterator[ListedConversation]:
    """Every conversation of a workspace, in order, each once.

    Names must rise from page to page. If they do not, a damaged index could list the same page for ever.
    """
    after = ""
    while True:
        conversations = await store.list(workspace, after=after, limit=page)
        if not conversations:
            return
        for listed in conversations:
            if listed.conversation <= after:
                raise Damaged(
                    f"its list names {listed.conversation!r} after {after!r}",
                    hint="the index of the store is damaged: restore it from a backup",
                )
            yield listed
            after = listed.conversation


async def every_record(store: Store, where: Where, *, page: int = PAGE) -> AsyncIterator[Record]:
    """Every record of a conversation, in order, each once, as many as there are at the end.

    Records may be added while this goes on. They are read as well.
    """
    check_page(page)
    place = 0
    while True:
        record_page = await store.read(where, after=place, limit=page)
        for record in record_page.records:
            if record.seq != place:
                problem = f"record {record.seq} comes where record {place} should"
                raise Damaged(problem, conversation=where.conversation)
            yield record
            place += 1
        count = record_page.head.count
        if place >= count:
            return
        if not record_page.records:
            problem = f"{count} records, and nothing comes from record {place} on"
            raise Damaged(problem, conversation=where.conversation)


def check_page(page: int) -> None:
    """Raise BadInput for a page that could hold nothing: a loop over such pages would never end."""
    if page < 1:
        raise BadInput(f"{page!r}", place="batch", hint="give 1 or more")


def attempts(conversation: str = "") -> Iterator[int]:
    """Count the attempts of a write, in a `for` loop. Raises StoreError after the last."""
    yield from range(TRIES)
    problem = f"{TRIES:,} times another writer was first"
    raise StoreError(problem, conversation=conversation, hint="try again when fewer write to it")


async def sweep_replaced(store: Store, *, place: Where = SWEEP) -> None:
    """Remove from the disk what `replace` has replaced, as far as a deletion removes it."""
    await store.append(place, [b""])
    await store.delete(place)


async def copy_conversations(source: Store, target: Store, workspace: str) -> dict[str, int]:
    """Copy every conversation of a workspace, and return how many records each has.

    Nothing is overwritten: if the other store has one of the names, this raises BadInput and copies nothing.
    """
    names = [listed.conversation async for listed in every_conversation(source, workspace)]
    existing_names = {listed.conversation async for listed in every_conversation(target, workspace)}
    for name in names:
        if name in existing_names:
            hint = "delete it there, or copy into a new store"
            raise BadInput(f"there is a conversation {name!r} already", place="copy", hint=hint)
    counts: dict[str, int] = {}
    for name in names:
        where = Where(workspace, name)
        page = await source.read(where)
        bodies = [record.body for record in page.records]
        await target.append(where, bodies, expect=0, state=page.head.state)
        # Whoever copies often removes the old store next, so the copy is read back first.
        if await target.read(where) != page:
            raise Damaged("the copy is not what was copied", conversation=name)
        counts[name] = page.head.count
    return counts


async def retry_conflicts(write: Callable[[], Awaitable[T]], *, tries: int = RETRIES) -> T:
    """Call a function that reads and then writes, until nobody else has written in between.

    If others were first each time, the last Conflict is raised.
    """
    for _ in range(tries - 1):
        with suppress(Conflict):
            return await write()
    return await write()
