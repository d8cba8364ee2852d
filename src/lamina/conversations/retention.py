"""How long conversations stay: limits of age and of size, for what the doors record.

`prune` deletes recorded conversations that were not used for so many days, and then the oldest ones until the
rest is small enough. It never touches the log of a session or of a chat: whoever keeps one decides when it
goes. A conversation that was used within the last hour stays, since somebody may be talking in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import time

import msgspec

from lamina.conversations.deleting import delete_places, list_record_places
from lamina.conversations.store import (
    conversation_place,
    conversation_workspace,
    find_conversation,
    read_record,
    recorded_workspace,
)
from lamina.errors import LaminaError
from lamina.stores.paging import every_conversation, every_record
from lamina.stores.port import Measurable, Store, Where

DAY = 86_400
IN_USE = 3_600
"""Seconds after its last request for which a conversation counts as in use."""

RUN_DAYS = 30
RUN_BYTES = 2_000_000_000
"""The limits of `lamina run`, which keeps everything in the user's own data folder."""


class RecordedSize(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded conversation, as the limits see it. `updated` is in seconds since 1970."""

    name: str
    updated: float
    size: int


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """What `prune` deleted, or would delete: conversations that are too old, and those of too much size.

    `size` is the bytes of what stays.
    """

    too_old: tuple[str, ...] = ()
    too_large: tuple[str, ...] = ()
    size: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return self.too_old + self.too_large


async def prune(
    store: Store,
    workspace: str,
    *,
    days: float | None = None,
    size: int | None = None,
    now: float | None = None,
    in_use: float = IN_USE,
    dry_run: bool = False,
) -> Pruned:
    """Delete recorded conversations beyond these limits; None is no limit. With `dry_run` only say which.

    What was used within the last `in_use` seconds stays. Call it at the start of a door, and now and then.
    """
    moment = time() if now is None else now
    rows = await measure_recorded(store, workspace, sizes=size is not None)
    pruned = choose_pruned(rows, now=moment, days=days, size=size, in_use=in_use)
    if not dry_run:
        places: list[Where] = []
        for name in pruned.names:
            places += await list_record_places(store, workspace, name)
        await delete_places(store, places)  # at once: SQLite rewrites its file only once then
    return pruned


def choose_pruned(
    rows: list[RecordedSize],
    *,
    now: float,
    days: float | None = None,
    size: int | None = None,
    in_use: float = IN_USE,
) -> Pruned:
    """Which conversations are beyond the limits. The ones that were not used for longest go first."""
    by_age = sorted(rows, key=lambda row: row.updated)
    too_old: list[str] = []
    too_large: list[str] = []
    total = sum(row.size for row in rows)
    for row in by_age:
        if now - row.updated < in_use:
            continue  # it stays, but its size counts
        if days is not None and now - row.updated > days * DAY:
            too_old.append(row.name)
            total -= row.size
        elif size is not None and total > size:
            too_large.append(row.name)
            total -= row.size
    return Pruned(too_old=tuple(too_old), too_large=tuple(too_large), size=total)


async def measure_recorded(store: Store, workspace: str, *, sizes: bool = True) -> list[RecordedSize]:
    """When each recorded conversation was used last, and its bytes in the store; 0 without `sizes`."""
    recorded_in = recorded_workspace(workspace)
    known_sizes: Mapping[str, int] | None = None
    if sizes and isinstance(store, Measurable):
        known_sizes = await store.sizes(conversation_workspace(recorded_in))
    rows: list[RecordedSize] = []
    async for listed in every_conversation(store, conversation_workspace(recorded_in)):
        name = listed.conversation
        own_size = 0
        if known_sizes is not None:
            own_size = known_sizes.get(name, 0)
        elif sizes:
            own_size = await _measure(store, recorded_in, name)
        updated = await _read_last_use(store, recorded_in, name)
        rows.append(RecordedSize(name=name, updated=updated, size=own_size))
    return rows


async def _measure(store: Store, recorded_in: str, name: str) -> int:
    """The bytes of a conversation in a store that cannot say them: everything is read."""
    where = conversation_place(recorded_in, name)
    size = 0
    async for record in every_record(store, where):
        size += len(record.body)
    return size


async def _read_last_use(store: Store, recorded_in: str, name: str) -> float:
    """When a conversation was used last. A damaged one counts as in use: it can be rescued."""
    try:
        stored = await find_conversation(store, recorded_in, name)
        if stored is not None and not stored.state.updated:  # killed before its state was written
            calls = (await read_record(store, recorded_in, name)).calls
            return calls[-1].request.at if calls else 0.0
    except LaminaError:
        return time()
    if stored is None:
        return time()
    return stored.state.updated
