"""One conversation in its store: what was read of it, and how a group is added.

A group is encoded first and read back, so the log in memory is exactly the one that a reload would give.
It decides nothing about requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

import msgspec

from lamina.core.values import Segment
from lamina.formats.codec import encode
from lamina.sessions.records import Control, Told, told, written
from lamina.sessions.state import SessionState, load
from lamina.stores.port import Once, Store, Where


class RecordGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Records to add, and the conversation as it is with them."""

    bodies: tuple[bytes, ...]
    told: Told


class StoredConversation:
    """A conversation, as far as it is known here."""

    def __init__(self, store: Store, where: Where) -> None:
        self.store, self.where = store, where
        self.told, self.state = Told(), SessionState()
        self.notes: list[str] = []
        self.stale = False  # nobody knows whether the last group was added

    async def load(self) -> None:
        """Reads everything: log, setup and ledger, from one snapshot."""
        page = await self.store.read(self.where)
        self.told = told([record.body for record in page.records])
        self.state, note = load(page.head.state, count=page.head.count)
        if note and note not in self.notes:
            self.notes.append(note)
        self.stale = False

    def group(self, controls: Iterable[Control], segments: Iterable[Segment]) -> RecordGroup:
        """The records of a group, not added yet."""
        bodies = tuple(written(controls, segments))
        return RecordGroup(bodies=bodies, told=told(bodies, after=self.told))

    async def append(self, group: RecordGroup, state: SessionState, *, once: Once | None = None) -> bool:
        """Adds a group; False if its idempotency key shows that it was added before."""
        self.stale = True
        head = await self.store.append(
            self.where, group.bodies, expect=self.told.count, once=once, state=state.dump()
        )
        self.stale = False
        if head.count != group.told.count:
            await self.load()
            return False
        self.told, self.state = group.told, state
        return True


def once(key: str, given: Sequence[Segment]) -> Once | None:
    """Makes a group safe to repeat. What counts is what was given: neither its time nor what was found."""
    if not key:
        return None
    digest = sha256()
    for segment in given:
        digest.update(encode(msgspec.structs.replace(segment, at="")) + b"\n")
    return Once(key=key, digest=digest.digest())
