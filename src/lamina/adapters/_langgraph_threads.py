"""A LangGraph thread in a lamina store: its checkpoints, their values and their pending writes.

A thread is one conversation of the store, and each record adds to it. A message stands in it once: a list is
stored item by item, and an item that is there already is named by its digest. So a thread grows with its
messages, and not with their square as it does where every checkpoint repeats its list.

Deleting rewrites the records in place, where the store can do that, so that what was deleted is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from hashlib import blake2b
from uuid import uuid4

import msgspec

from lamina.adapters.bridge import RecentValues
from lamina.stores.port import Rekeyable, Store, Where

_THREADS = 64
"""How many threads are remembered, to read only what is new in them."""

Typed = tuple[str, bytes]
"""A value as LangGraph's serializer writes it: the name of its type, and its bytes."""

Place = tuple[str, str]
"""The namespace and the id of a checkpoint."""


class StoredValue(msgspec.Struct, frozen=True):
    """The value of a channel at one version. A list has the digests of its items and no `data`."""

    data: Typed | None = None
    items: tuple[bytes, ...] = ()


class StoredCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint without its values. `versions` has the version of each channel, as text."""

    place: Place
    parent: str
    checkpoint: Typed
    metadata: Typed
    versions: dict[str, str]
    run: str = ""
    has_deltas: bool = False


class StoredWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A write that waits at a checkpoint for the next step."""

    place: Place
    task: str
    index: int
    channel: str
    value: Typed
    path: str = ""


class ThreadRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one record adds. If it `resets`, everything before it is forgotten.

    `values` are keyed by namespace, channel and version.
    """

    checkpoints: tuple[StoredCheckpoint, ...] = ()
    writes: tuple[StoredWrite, ...] = ()
    values: tuple[tuple[tuple[str, str, str], StoredValue], ...] = ()
    items: tuple[tuple[bytes, Typed], ...] = ()
    resets: bool = False


class StoredThreads:
    """The threads of a workspace; those that were opened last are remembered."""

    def __init__(self, workspace: str) -> None:
        self._workspace = workspace
        self._threads: RecentValues[str, StoredThread] = RecentValues(_THREADS)

    @asynccontextmanager
    async def open(self, store: Store, thread_id: str) -> AsyncIterator[StoredThread]:
        """Open a thread as the store has it now. Other tasks of this process wait until it is closed."""
        thread = self._threads.pop(thread_id, None) or StoredThread(Where(self._workspace, thread_id))
        self._threads[thread_id] = thread
        async with thread.lock:
            await thread.load(store)
            yield thread


class StoredThread:
    """One thread as it was read last; `load` reads what was added since, by whichever process."""

    def __init__(self, where: Where) -> None:
        self.where = where
        self.lock = asyncio.Lock()
        self.checkpoints: dict[Place, StoredCheckpoint] = {}
        self.writes: dict[Place, dict[tuple[str, int], StoredWrite]] = {}
        self.values: dict[tuple[str, str, str], StoredValue] = {}
        self.items: dict[bytes, Typed] = {}
        self._count = 0
        self._uid = b""

    async def load(self, store: Store) -> None:
        """Read what is new. If the thread was deleted or rewritten since, read all of it.

        A thread that is rewritten gets a new uid, which is the state of its conversation.
        """
        page = await store.read(self.where, after=self._count)
        if page.head.state != self._uid or page.head.count < self._count:
            self._forget()
            self._count = 0
            self._uid = page.head.state
            page = await store.read(self.where)
        for record in page.records:
            if record.body:
                self._apply(_DECODER.decode(record.body))
        self._count = page.head.count

    async def add(self, store: Store, record: ThreadRecord) -> None:
        """Append a record. The next `load` applies it."""
        state = None
        if not self._uid:
            state = uuid4().bytes
        await store.append(self.where, [_ENCODER.encode(record)], state=state)

    async def keep(self, store: Store, places: Iterable[Place]) -> None:
        """Delete every checkpoint that is not at one of these places, with its writes and values."""
        record = self.copy_record(set(places), resets=True)
        if len(record.checkpoints) == len(self.checkpoints):
            return
        if not record.checkpoints:
            await store.delete(self.where)
            return
        if not isinstance(store, Rekeyable):
            await store.append(self.where, [_ENCODER.encode(record)], state=uuid4().bytes)
            return
        bodies = dict.fromkeys(range(1, self._count), b"")
        bodies[0] = _ENCODER.encode(record)
        await store.replace(self.where, bodies, expect=self._count, was=self._uid, state=uuid4().bytes)

    def copy_record(self, places: set[Place], *, resets: bool = False) -> ThreadRecord:
        """One record with all that these checkpoints need.

        Checkpoints share values, and values share items, so each is copied once.
        """
        checkpoints: list[StoredCheckpoint] = []
        values: dict[tuple[str, str, str], StoredValue] = {}
        for place, checkpoint in self.checkpoints.items():
            if place not in places:
                continue
            checkpoints.append(checkpoint)
            for channel, version in checkpoint.versions.items():
                name = (place[0], channel, version)
                if name in self.values:
                    values[name] = self.values[name]
        items: dict[bytes, Typed] = {}
        for value in values.values():
            for digest in value.items:
                items[digest] = self.items[digest]
        writes: list[StoredWrite] = []
        for place in places:
            writes += self.writes.get(place, {}).values()
        return ThreadRecord(
            checkpoints=tuple(checkpoints),
            writes=tuple(writes),
            values=tuple(values.items()),
            items=tuple(items.items()),
            resets=resets,
        )

    def store_list(self, items: Sequence[Typed]) -> tuple[StoredValue, dict[bytes, Typed]]:
        """The value of a list, and those of its items that are not in the thread yet."""
        digests: list[bytes] = []
        new_items: dict[bytes, Typed] = {}
        for kind, data in items:
            digest = blake2b(data, digest_size=16, key=kind.encode()).digest()
            digests.append(digest)
            if digest not in self.items:
                new_items[digest] = (kind, data)
        return StoredValue(items=tuple(digests)), new_items

    def _apply(self, record: ThreadRecord) -> None:
        """Add what a record holds to what was read before it.

        Of two writes with the same task and index the first counts, so a task that is run again changes
        nothing.
        """
        if record.resets:
            self._forget()
        self.items.update(record.items)
        self.values.update(record.values)
        for checkpoint in record.checkpoints:
            self.checkpoints[checkpoint.place] = checkpoint
        for write in record.writes:
            writes = self.writes.setdefault(write.place, {})
            # A special write, such as an error, has a negative index and replaces the one before.
            if write.index < 0 or (write.task, write.index) not in writes:
                writes[write.task, write.index] = write

    def _forget(self) -> None:
        self.checkpoints.clear()
        self.writes.clear()
        self.values.clear()
        self.items.clear()


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(ThreadRecord)
