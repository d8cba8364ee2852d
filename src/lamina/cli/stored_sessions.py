"""Reads the sessions of a store, to inspect and replay them: their logs, and what lamina recorded."""

from __future__ import annotations

import argparse
import math
import time
from functools import partial

import anyio

from lamina.cli.stored import ask_store, find_gateway_workspace, open_existing, open_named_store
from lamina.conversations.store import read_record
from lamina.costs.logs.lamina_exports import log_to_trace
from lamina.costs.logs.recorded_conversations import add_reported
from lamina.costs.logs.values import Trace, UnreadableLine
from lamina.errors import LaminaError
from lamina.inspector.stored_sessions import StoredSessions
from lamina.stores.paging import every_conversation
from lamina.stores.port import Store


class LogSource:
    """The logs of the sessions in a store. One that has grown is read again, the others are remembered.

    With `only`, no other conversation is shown. A live page asks often. So the store is not looked at again
    within `pause` seconds.
    """

    def __init__(self, arguments: argparse.Namespace, *, only: str = "", pause: float = 1.0) -> None:
        self._arguments = arguments
        self._only = only
        self._pause = pause
        self._counts: dict[str, int] = {}
        self._looked_at = -math.inf
        self._traces: dict[str, tuple[int, Trace | UnreadableLine]] = {}

    def state(self) -> dict[str, int]:
        """The number of records of each conversation."""
        if time.monotonic() - self._looked_at > self._pause:
            self._counts = anyio.run(self._count_records)
            self._looked_at = time.monotonic()
        return self._counts

    def read(self) -> list[Trace | UnreadableLine]:
        return anyio.run(self._read_conversations)

    async def _count_records(self) -> dict[str, int]:
        """How many records each conversation has: one that has more than before is read again."""
        async with open_named_store(self._arguments) as (store, workspace):
            counts: dict[str, int] = {}
            async for head in every_conversation(store, workspace):
                counts[head.conversation] = head.count
            return counts

    async def _read_conversations(self) -> list[Trace | UnreadableLine]:
        """All conversations of the store.

        Those that have not grown since the last time are not read again.
        """
        traces: dict[str, tuple[int, Trace | UnreadableLine]] = {}
        async with open_named_store(self._arguments) as (store, workspace):
            async for head in every_conversation(store, workspace):
                name = head.conversation
                if self._only and name != self._only:
                    continue
                traces[name] = self._traces.get(name, (-1, _NOTHING))
                if traces[name][0] != head.count:
                    traces[name] = (head.count, await _read_conversation(store, workspace, name))
        self._traces = traces
        return [trace for _, trace in traces.values()]


def open_recorded(arguments: argparse.Namespace, *, only: str = "") -> StoredSessions:
    """The conversations that lamina recorded in the store which the arguments name."""
    return StoredSessions(partial(ask_store, arguments), find_gateway_workspace(arguments), only=only)


_NOTHING = UnreadableLine(place="", reason="it was not read yet")


async def _read_conversation(store: Store, workspace: str, name: str) -> Trace | UnreadableLine:
    """One conversation of a store as a trace. One that cannot be read is told with its reason."""
    try:
        async with open_existing(store, workspace, name) as session:
            trace = log_to_trace(session.log, name, model=session.setup.model or "")
        if isinstance(trace, UnreadableLine):
            return trace
        return add_reported(trace, await read_record(store, workspace, name))
    except LaminaError as error:
        return UnreadableLine(place=name, reason=str(error))
