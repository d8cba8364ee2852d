"""LangGraph's checkpoints as `_langgraph_threads` stores them: written, read back, and chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    SerializerProtocol,
    writes_sort_key,
)

from lamina.adapters._langgraph_threads import (
    Place,
    StoredCheckpoint,
    StoredThread,
    StoredValue,
    StoredWrite,
    ThreadRecord,
    Typed,
)


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
