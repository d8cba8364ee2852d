"""LangGraph: a checkpointer over any lamina store.

    with LaminaSaver("chats.db") as saver:
        agent = create_agent(model, tools, checkpointer=saver)

It implements all that a checkpointer may, the optional `copy_thread`, `prune` and `delete_for_runs` too, for
graphs that run with and without `await`. Several processes may use one store. With a key the store is sealed:
`LaminaSaver("chats.db", key=…)`.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from operator import itemgetter
from typing import Any, Self

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

from lamina.adapters.langgraph_threads import (
    Place,
    StoredCheckpoint,
    StoredThread,
    StoredValue,
    StoredWrite,
    ThreadRecord,
)
from lamina.adapters.store_thread import (
    StoreAddress,
    StoreThread,
    list_names,
    open_store_thread,
    run_both_ways,
)
from lamina.errors import BadInput
from lamina.stores.port import Store, Where

_THREADS = 64
"""How many threads a saver remembers, to read only what is new in them."""


class LaminaSaver(BaseCheckpointSaver[str]):
    """Keeps checkpoints in the store at `address`, within `workspace`; see `lamina.adapters.store_thread`."""

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
        self._threads: OrderedDict[str, StoredThread] = OrderedDict()

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
        thread_id, namespace = _read_place(config)
        thread = self._find_thread(thread_id)
        async with thread.lock:
            await thread.load(store)
            checkpoint_id = get_checkpoint_id(config) or _find_latest(thread, namespace)
            if (namespace, checkpoint_id) not in thread.checkpoints:
                return None
            return self._read_tuple(thread, (namespace, checkpoint_id))

    async def _list(
        self,
        store: Store,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Sequence[CheckpointTuple]:
        fields = (config or {}).get("configurable", {})
        before_id = (before or {}).get("configurable", {}).get("checkpoint_id")
        thread_ids = [fields.get("thread_id")]
        if config is None:
            thread_ids = await list_names(store, self.workspace)
        tuples: list[CheckpointTuple] = []
        for thread_id in thread_ids:
            thread = self._find_thread(str(thread_id))
            async with thread.lock:
                await thread.load(store)
                for place in _select_places(thread, fields, before_id):
                    each = self._read_tuple(thread, place)
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
        thread_id, namespace = _read_place(config)
        thread = self._find_thread(thread_id)
        full_metadata = get_checkpoint_metadata(config, metadata)
        bare_checkpoint = {name: value for name, value in checkpoint.items() if name != "channel_values"}
        async with thread.lock:
            await thread.load(store)
            values: list[tuple[tuple[str, str, str], StoredValue]] = []
            items: dict[bytes, Any] = {}
            for channel, version in new_versions.items():
                if channel in checkpoint["channel_values"]:
                    value, new_items = self._write_value(thread, checkpoint["channel_values"][channel])
                    values.append(((namespace, channel, str(version)), value))
                    items.update(new_items)
            stored = StoredCheckpoint(
                place=(namespace, checkpoint["id"]),
                parent=get_checkpoint_id(config) or "",
                checkpoint=self.serde.dumps_typed(bare_checkpoint),
                metadata=self.serde.dumps_typed(full_metadata),
                versions={
                    channel: str(version) for channel, version in checkpoint["channel_versions"].items()
                },
                run=str(full_metadata.get("run_id") or ""),
                has_deltas=bool(full_metadata.get("counters_since_delta_snapshot")),
            )
            record = ThreadRecord(checkpoints=(stored,), values=tuple(values), items=tuple(items.items()))
            await thread.add(store, record)
        return _make_config(thread_id, stored.place)

    async def _put_writes(
        self,
        store: Store,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        thread_id, namespace = _read_place(config)
        stored: list[StoredWrite] = []
        for position, (channel, value) in enumerate(writes):
            write = StoredWrite(
                place=(namespace, config["configurable"]["checkpoint_id"]),
                task=task_id,
                index=WRITES_IDX_MAP.get(channel, position),
                channel=channel,
                value=self.serde.dumps_typed(value),
                path=task_path,
            )
            stored.append(write)
        thread = self._find_thread(thread_id)
        async with thread.lock:
            await thread.load(store)
            await thread.add(store, ThreadRecord(writes=tuple(stored)))

    async def _delete_thread(self, store: Store, thread_id: str) -> None:
        await store.delete(Where(self.workspace, thread_id))

    async def _delete_for_runs(self, store: Store, run_ids: Sequence[str]) -> None:
        runs = set(run_ids)
        for thread_id in await list_names(store, self.workspace):
            thread = self._find_thread(thread_id)
            async with thread.lock:
                await thread.load(store)
                rest = [place for place, each in thread.checkpoints.items() if each.run not in runs]
                if len(rest) < len(thread.checkpoints):
                    await thread.keep(store, rest)

    async def _copy_thread(self, store: Store, source_thread_id: str, target_thread_id: str) -> None:
        source = self._find_thread(source_thread_id)
        async with source.lock:
            await source.load(store)
            record = source.copy_record(set(source.checkpoints))
        target = self._find_thread(target_thread_id)
        async with target.lock:
            await target.load(store)
            if record.checkpoints:
                await target.add(store, record)

    async def _prune(self, store: Store, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the latest checkpoint of each namespace.

        A channel of deltas is rebuilt from its ancestors, so where there is one, they are kept.
        """
        if strategy not in ("keep_latest", "delete"):
            hint = "use keep_latest or delete"
            raise BadInput(f"strategy is {strategy!r:.100}", place="prune", hint=hint)
        for thread_id in thread_ids:
            thread = self._find_thread(thread_id)
            async with thread.lock:
                await thread.load(store)
                latest: dict[str, str] = {}
                for namespace, checkpoint_id in thread.checkpoints:
                    latest[namespace] = max(latest.get(namespace, ""), checkpoint_id)  # ids sort by time
                rest: list[Place] = []
                for place, each in thread.checkpoints.items():
                    is_needed = latest[place[0]] == place[1] or each.has_deltas
                    if is_needed and strategy == "keep_latest":
                        rest.append(place)
                if len(rest) < len(thread.checkpoints):
                    await thread.keep(store, rest)

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

    def _find_thread(self, thread_id: str) -> StoredThread:
        thread = self._threads.pop(thread_id, None) or StoredThread(Where(self.workspace, thread_id))
        self._threads[thread_id] = thread
        while len(self._threads) > _THREADS:
            self._threads.popitem(last=False)
        return thread

    def _write_value(self, thread: StoredThread, value: Any) -> tuple[StoredValue, dict[bytes, Any]]:
        if type(value) is list:
            return thread.store_list([self.serde.dumps_typed(item) for item in value])
        return StoredValue(data=self.serde.dumps_typed(value)), {}

    def _read_tuple(self, thread: StoredThread, place: Place) -> CheckpointTuple:
        stored = thread.checkpoints[place]
        values: dict[str, Any] = {}
        for channel, version in stored.versions.items():
            value = thread.values.get((place[0], channel, version))
            if value is None:
                continue
            if value.data is not None:
                values[channel] = self.serde.loads_typed(value.data)
            else:
                values[channel] = [self.serde.loads_typed(thread.items[digest]) for digest in value.items]
        writes = sorted(
            thread.writes.get(place, {}).values(),
            key=lambda write: writes_sort_key(write.path, write.task, write.index),
        )
        parent_config = None
        if stored.parent:
            parent_config = _make_config(thread.where.conversation, (place[0], stored.parent))
        return CheckpointTuple(
            config=_make_config(thread.where.conversation, place),
            checkpoint={**self.serde.loads_typed(stored.checkpoint), "channel_values": values},
            metadata=self.serde.loads_typed(stored.metadata),
            parent_config=parent_config,
            pending_writes=[
                (write.task, write.channel, self.serde.loads_typed(write.value)) for write in writes
            ],
        )


def _read_place(config: RunnableConfig) -> tuple[str, str]:
    fields = config["configurable"]
    return str(fields["thread_id"]), fields.get("checkpoint_ns", "")


def _make_config(thread_id: str, place: Place) -> RunnableConfig:
    namespace, checkpoint_id = place
    return {
        "configurable": {
            "thread_id": thread_id,
            "checkpoint_ns": namespace,
            "checkpoint_id": checkpoint_id,
        }
    }


def _select_places(thread: StoredThread, fields: dict[str, Any], before_id: str | None) -> Sequence[Place]:
    """Return the places of the checkpoints that are asked for, the newest first."""
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


def _find_latest(thread: StoredThread, namespace: str) -> str:
    """Ids sort by time. Without a checkpoint the answer is ""."""
    return max((name for space, name in thread.checkpoints if space == namespace), default="")
