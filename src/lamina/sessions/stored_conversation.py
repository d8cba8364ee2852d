"""One conversation in its store: what was read of it, and how a group of records is added.

A group is encoded first and read back, so the log in memory is exactly what a reload would give. This module
decides nothing about requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

import msgspec

from lamina.core.values import Segment
from lamina.formats.codec import encode
from lamina.sessions.records import Control, LiveLog, encode_records, read_records
from lamina.sessions.state import SessionState, load_state
from lamina.stores.port import Once, Store, Where


class RecordGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Records to add, and the conversation as it will be with them."""

    bodies: tuple[bytes, ...]
    live: LiveLog


class StoredConversation:
    """A conversation as this process has read it.

    `notes` are for the caller of the session. `stale` means that the last append failed, and that nobody
    knows whether its group was added.
    """

    def __init__(self, store: Store, where: Where) -> None:
        self.store = store
        self.where = where
        self.live = LiveLog()
        self.state = SessionState()
        self._stored_state = b""
        self.notes: list[str] = []
        self.stale = False

    async def load(self) -> None:
        """Read everything from one snapshot: log, setup and ledger."""
        page = await self.store.read(self.where)
        self.live = read_records([record.body for record in page.records])
        self.state, note = load_state(page.head.state, count=page.head.count)
        self._stored_state = page.head.state
        if note and note not in self.notes:
            self.notes.append(note)
        self.stale = False

    def group(self, controls: Iterable[Control], segments: Iterable[Segment]) -> RecordGroup:
        """Make a group of records. It is not added yet."""
        bodies = tuple(encode_records(controls, segments))
        return RecordGroup(bodies=bodies, live=read_records(bodies, after=self.live))

    async def append(self, group: RecordGroup, state: SessionState, *, once: Once | None = None) -> bool:
        """Add a group. Returns False if its idempotency key shows that it was added before.

        The state has to be the one that was read: whoever erases a message changes it, and not the number of
        records. Otherwise an open session would write a digest of the erased message back.
        """
        self.stale = True  # until the store has answered: it may fail after the group was added
        head = await self.store.append(
            self.where,
            group.bodies,
            expect=self.live.count,
            was=self._stored_state,
            once=once,
            state=state.dump(),
        )
        self.stale = False
        self._stored_state = head.state
        if head.count != group.live.count:  # the count of the first time that this key came
            await self.load()
            return False
        self.live = group.live
        self.state = state
        return True


def once(key: str, segments: Sequence[Segment]) -> Once | None:
    """Make a group safe to repeat: a second one with the same key and the same segments is not added.

    `segments` are what the caller gave. Their time does not count, and neither does what sources found.
    """
    if not key:
        return None
    digest = sha256()
    for segment in segments:
        digest.update(encode(msgspec.structs.replace(segment, at="")) + b"\n")
    return Once(key=key, digest=digest.digest())
