"""LangGraph: a checkpointer over any lamina store.

    with LaminaSaver("chats.db") as saver:
        agent = create_agent(model, tools, checkpointer=saver)

It implements all that a checkpointer may, the optional `copy_thread`, `prune` and `delete_for_runs` too, for
graphs that run with and without `await`. Several processes may use one store. With a key the store is sealed:
`LaminaSaver("chats.db", key=…)`.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Self

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    SerializerProtocol,
    get_checkpoint_id,
    get_checkpoint_metadata,
)

from lamina.adapters import _langgraph_checkpoints as checkpoints
from lamina.adapters._langgraph_threads import Place, StoredThreads
from lamina.adapters._store_thread import (
    StoreAddress,
    StoreThread,
    list_names,
    open_store_thread,
    run_both_ways,
)
from lamina.errors import BadInput
from lamina.stores.port import Store, Where

__all__ = ["LaminaSaver"]


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
        thread_id, namespace = checkpoints.read_place(config)
        async with self._threads.open(store, thread_id) as thread:
            place = (namespace, get_checkpoint_id(config) or checkpoints.find_latest(thread, namespace))
            if place not in thread.checkpoints:
                return None
            return checkpoints.read_tuple(thread, place, self.serde)

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
                for place in checkpoints.select_places(thread, fields, before_id):
                    each = checkpoints.read_tuple(thread, place, self.serde)
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
        thread_id, namespace = checkpoints.read_place(config)
        full_metadata = get_checkpoint_metadata(config, metadata)
        async with self._threads.open(store, thread_id) as thread:
            values = checkpoints.write_values(
                thread, namespace, checkpoint["channel_values"], new_versions, self.serde
            )
            stored = checkpoints.write_checkpoint(
                checkpoint, full_metadata, namespace, parent=get_checkpoint_id(config) or "", serde=self.serde
            )
            await thread.add(store, msgspec.structs.replace(values, checkpoints=(stored,)))
        return checkpoints.make_config(thread_id, stored.place)

    async def _put_writes(
        self,
        store: Store,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the writes of a task, which wait at a checkpoint until its step is over."""
        thread_id, namespace = checkpoints.read_place(config)
        place = (namespace, config["configurable"]["checkpoint_id"])
        record = checkpoints.write_pending(writes, place, task=task_id, path=task_path, serde=self.serde)
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
                    kept_places = checkpoints.find_needed(thread)
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
