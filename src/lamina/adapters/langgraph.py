"""LangGraph: a checkpointer over any lamina store.

    with LaminaSaver("chats.db") as saver:
        agent = create_agent(model, tools, checkpointer=saver)

It implements all that a checkpointer may, the optional `copy_thread`, `prune` and `delete_for_runs` too, for
graphs that run with and without `await`. Several processes may use one store. With a key the store is sealed:
`LaminaSaver("chats.db", key=…)`.

A thread is one conversation of the store, and each record adds to it. A message stands in it once: a list is
stored item by item, and an item that is there already is named by its digest. So a thread grows with its
messages, and not with their square as it does where every checkpoint repeats its list. Deleting rewrites the
records in place, where the store can do that, so that what was deleted is gone.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import blake2b
from operator import itemgetter
from typing import Any, Self
from uuid import uuid4

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    SerializerProtocol,
    get_checkpoint_id,
    get_checkpoint_metadata,
    writes_sort_key,
)

from lamina.adapters._store_thread import list_names, open_store_thread, run_both_ways
from lamina.adapters.bridge import RecentValues
from lamina.errors import BadInput
from lamina.stores.port import Rekeyable, Store, Where
from lamina.stores.store_thread import StoreAddress, StoreThread

__all__ = ["LaminaSaver"]

_THREADS = 64
"""How many threads are remembered, to read only what is new in them."""

Typed = tuple[str, bytes]
"""A value as LangGraph's serializer writes it: the name of its type, and its bytes."""

Place = tuple[str, str]
"""The namespace and the id of a checkpoint."""


class LaminaSaver(BaseCheckpointSaver[str]):
    """Keeps checkpoints in the store at `address`, within `workspace`. A thread is one conversation of it."""

    def __init__(
        self,
        address: StoreAddress | StoreThread,
        *,
        key: Any = None,
        workspace: str = "langgraph",
        serde: SerializerProtocol | None = None,
    ) -> None:
        super().__init__(serde=serde)
        self.store = open_store_thread(address, key=key)
        self.workspace = workspace
        self._threads = StoredThreads(workspace)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def get_next_version(self, current: str | None, channel: None) -> str:  # noqa: ARG002 - LangGraph's
        """A version that no other branch of the thread has, and that sorts after the current one."""
        number = 0
        if current is not None:
            number = int(str(current).partition(".")[0])
        return f"{number + 1:032}.{secrets.token_hex(8)}"

    async def _get(self, store: Store, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that the configuration names, else the latest of its thread.

        None if the thread has no such checkpoint.
        """
        thread_id, namespace = read_place(config)
        async with self._threads.open(store, thread_id) as thread:
            place = (namespace, get_checkpoint_id(config) or find_latest(thread, namespace))
            if place not in thread.checkpoints:
                return None
            return read_tuple(thread, place, self.serde)

    async def _list(
        self,
        store: Store,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Sequence[CheckpointTuple]:
        """Checkpoints, the newest of each thread first.

        Without a configuration all threads are searched. `filter` are fields that the metadata must have,
        `before` names a checkpoint that all of them are older than.
        """
        fields = (config or {}).get("configurable", {})
        before_id = (before or {}).get("configurable", {}).get("checkpoint_id")
        thread_ids = [fields.get("thread_id")]
        if config is None:
            thread_ids = await list_names(store, self.workspace)
        tuples: list[CheckpointTuple] = []
        for thread_id in thread_ids:
            async with self._threads.open(store, str(thread_id)) as thread:
                for place in select_places(thread, fields, before_id):
                    each = read_tuple(thread, place, self.serde)
                    if (filter or {}).items() <= each.metadata.items():
                        tuples.append(each)
                    if len(tuples) == limit:
                        return tuples
        return tuples

    async def _put(
        self,
        store: Store,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint with the values that are new in it.

        The configuration that is returned names it.
        """
        thread_id, namespace = read_place(config)
        full_metadata = get_checkpoint_metadata(config, metadata)
        async with self._threads.open(store, thread_id) as thread:
            values = write_values(thread, namespace, checkpoint["channel_values"], new_versions, self.serde)
            stored = write_checkpoint(
                checkpoint, full_metadata, namespace, parent=get_checkpoint_id(config) or "", serde=self.serde
            )
            await thread.add(store, msgspec.structs.replace(values, checkpoints=(stored,)))
        return make_config(thread_id, stored.place)

    async def _put_writes(
        self,
        store: Store,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the writes of a task, which wait at a checkpoint until its step is over."""
        thread_id, namespace = read_place(config)
        place = (namespace, config["configurable"]["checkpoint_id"])
        record = write_pending(writes, place, task=task_id, path=task_path, serde=self.serde)
        async with self._threads.open(store, thread_id) as thread:
            await thread.add(store, record)

    async def _delete_thread(self, store: Store, thread_id: str) -> None:
        await store.delete(Where(self.workspace, thread_id))

    async def _delete_for_runs(self, store: Store, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that these runs made, in all threads."""
        runs = set(run_ids)
        for thread_id in await list_names(store, self.workspace):
            async with self._threads.open(store, thread_id) as thread:
                kept_places: list[Place] = []
                for place, checkpoint in thread.checkpoints.items():
                    if checkpoint.run not in runs:
                        kept_places.append(place)
                await thread.keep(store, kept_places)

    async def _copy_thread(self, store: Store, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints of a thread to another one, with the values that they need."""
        async with self._threads.open(store, source_thread_id) as source:
            record = source.copy_record(set(source.checkpoints))
        async with self._threads.open(store, target_thread_id) as target:
            if record.checkpoints:
                await target.add(store, record)

    async def _prune(self, store: Store, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the checkpoints that a thread needs to go on, or none."""
        if strategy not in ("keep_latest", "delete"):
            hint = "use keep_latest or delete"
            raise BadInput(f"strategy is {strategy!r:.100}", place="prune", hint=hint)
        for thread_id in thread_ids:
            async with self._threads.open(store, thread_id) as thread:
                kept_places: list[Place] = []
                if strategy == "keep_latest":
                    kept_places = find_needed(thread)
                await thread.keep(store, kept_places)

    get_tuple, aget_tuple = run_both_ways(_get)
    put, aput = run_both_ways(_put)
    put_writes, aput_writes = run_both_ways(_put_writes)
    delete_thread, adelete_thread = run_both_ways(_delete_thread)
    delete_for_runs, adelete_for_runs = run_both_ways(_delete_for_runs)
    copy_thread, acopy_thread = run_both_ways(_copy_thread)
    prune, aprune = run_both_ways(_prune)

    def list(self, *args: Any, **kwargs: Any) -> Iterator[CheckpointTuple]:
        yield from self.store.run(self._list, *args, **kwargs)

    async def alist(self, *args: Any, **kwargs: Any) -> AsyncIterator[CheckpointTuple]:
        for each in await self.store.arun(self._list, *args, **kwargs):
            yield each


def write_checkpoint(
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    namespace: str,
    *,
    parent: str,
    serde: SerializerProtocol,
) -> StoredCheckpoint:
    """A checkpoint without its values."""
    fields: Mapping[str, Any] = metadata
    versions = checkpoint["channel_versions"]
    without_values: dict[str, Any] = dict(checkpoint)
    del without_values["channel_values"]
    return StoredCheckpoint(
        place=(namespace, checkpoint["id"]),
        parent=parent,
        checkpoint=serde.dumps_typed(without_values),
        metadata=serde.dumps_typed(metadata),
        versions={channel: str(version) for channel, version in versions.items()},
        run=str(fields.get("run_id") or ""),
        has_deltas=bool(fields.get("counters_since_delta_snapshot")),
    )


def write_values(
    thread: StoredThread,
    namespace: str,
    channel_values: Mapping[str, Any],
    new_versions: ChannelVersions,
    serde: SerializerProtocol,
) -> ThreadRecord:
    """A record of the values that are new, and of those of their items that are not in the thread."""
    values: list[tuple[tuple[str, str, str], StoredValue]] = []
    items: dict[bytes, Typed] = {}
    for channel, version in new_versions.items():
        if channel not in channel_values:
            continue
        value = channel_values[channel]
        if type(value) is list:
            stored, new_items = thread.store_list([serde.dumps_typed(item) for item in value])
            items.update(new_items)
        else:
            stored = StoredValue(data=serde.dumps_typed(value))
        values.append(((namespace, channel, str(version)), stored))
    return ThreadRecord(values=tuple(values), items=tuple(items.items()))


def write_pending(
    writes: Sequence[tuple[str, Any]], place: Place, *, task: str, path: str, serde: SerializerProtocol
) -> ThreadRecord:
    """A record of the writes of a task that wait at a checkpoint."""
    stored: list[StoredWrite] = []
    for position, (channel, value) in enumerate(writes):
        write = StoredWrite(
            place=place,
            task=task,
            index=WRITES_IDX_MAP.get(channel, position),
            channel=channel,
            value=serde.dumps_typed(value),
            path=path,
        )
        stored.append(write)
    return ThreadRecord(writes=tuple(stored))


def read_tuple(thread: StoredThread, place: Place, serde: SerializerProtocol) -> CheckpointTuple:
    """A checkpoint with its values and the writes that wait at it."""
    stored = thread.checkpoints[place]
    values: dict[str, Any] = {}
    for channel, version in stored.versions.items():
        value = thread.values.get((place[0], channel, version))
        if value is not None:
            values[channel] = _read_value(thread, value, serde)
    writes = sorted(
        thread.writes.get(place, {}).values(),
        key=lambda write: writes_sort_key(write.path, write.task, write.index),
    )
    parent_config = None
    if stored.parent:
        parent_config = make_config(thread.where.conversation, (place[0], stored.parent))
    return CheckpointTuple(
        config=make_config(thread.where.conversation, place),
        checkpoint={**serde.loads_typed(stored.checkpoint), "channel_values": values},
        metadata=serde.loads_typed(stored.metadata),
        parent_config=parent_config,
        pending_writes=[(write.task, write.channel, serde.loads_typed(write.value)) for write in writes],
    )


def _read_value(thread: StoredThread, value: StoredValue, serde: SerializerProtocol) -> Any:
    if value.data is not None:
        return serde.loads_typed(value.data)
    return [serde.loads_typed(thread.items[digest]) for digest in value.items]


def read_place(config: RunnableConfig) -> tuple[str, str]:
    """The thread and the namespace that a configuration is about."""
    fields = config["configurable"]
    return str(fields["thread_id"]), fields.get("checkpoint_ns", "")


def make_config(thread_id: str, place: Place) -> RunnableConfig:
    """The configuration that names one checkpoint."""
    namespace, checkpoint_id = place
    return {
        "configurable": {
            "thread_id": thread_id,
            "checkpoint_ns": namespace,
            "checkpoint_id": checkpoint_id,
        }
    }


def select_places(thread: StoredThread, fields: dict[str, Any], before_id: str | None) -> Sequence[Place]:
    """The places of the checkpoints that are asked for, the newest first."""
    asked_namespace = fields.get("checkpoint_ns")
    asked_id = fields.get("checkpoint_id")
    places: list[Place] = []
    for namespace, checkpoint_id in thread.checkpoints:
        if asked_namespace is not None and namespace != asked_namespace:
            continue
        if asked_id and checkpoint_id != asked_id:
            continue
        if before_id and checkpoint_id >= before_id:
            continue
        places.append((namespace, checkpoint_id))
    return sorted(places, key=itemgetter(1), reverse=True)


def find_latest(thread: StoredThread, namespace: str) -> str:
    """The id of the latest checkpoint, "" if there is none. Ids sort by time."""
    latest_id = ""
    for checkpoint_namespace, checkpoint_id in thread.checkpoints:
        if checkpoint_namespace == namespace:
            latest_id = max(latest_id, checkpoint_id)
    return latest_id


def find_needed(thread: StoredThread) -> list[Place]:
    """The latest checkpoint of each namespace.

    A channel of deltas is rebuilt from its ancestors, so every checkpoint that has deltas is needed too.
    """
    latest: dict[str, str] = {}
    for namespace, checkpoint_id in thread.checkpoints:
        latest[namespace] = max(latest.get(namespace, ""), checkpoint_id)
    needed: list[Place] = []
    for place, stored in thread.checkpoints.items():
        if stored.has_deltas or latest[place[0]] == place[1]:
            needed.append(place)
    return needed


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
