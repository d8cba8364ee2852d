"""Reads the recorded sessions that a command names: those of files and folders, and those of a store."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain

from lamina.cli.stored import ask_store, find_gateway_workspace
from lamina.cli.stored_sessions import LogSource
from lamina.replay.traces import Progress, read_traces
from lamina.replay.traces.own_answers import select_own
from lamina.replay.traces.recorded_conversations import list_recorded, read_recorded
from lamina.replay.values import Trace, UnreadableLine


def read_named_traces(
    arguments: argparse.Namespace, *, since: float | None = None, progress: Progress | None = None
) -> Iterator[Trace | UnreadableLine]:
    """The sessions of the paths and of the store."""
    traces: list[Iterable[Trace | UnreadableLine]] = []
    if arguments.paths:
        traces.append(read_traces(arguments.paths, progress=progress, since=since))
    if arguments.store is not None:
        traces.append(read_stored_traces(arguments, since=since))
    return chain.from_iterable(traces)


def read_stored_traces(
    arguments: argparse.Namespace, *, since: float | None = None
) -> Iterator[Trace | UnreadableLine]:
    """What lamina recorded in a store, and the sessions in it, one after the other, with what counts of each.

    The store is opened for each, so that whoever writes to it does not wait for the replay.
    """
    workspace = find_gateway_workspace(arguments)
    for name in ask_store(arguments, partial(list_recorded, workspace=workspace)):
        stored = ask_store(arguments, partial(read_recorded, workspace=workspace, name=name))
        yield from _select_since([stored], since)
    yield from _select_since(LogSource(arguments).read(), since)


def _select_since(
    traces: Iterable[Trace | UnreadableLine], since: float | None
) -> Iterator[Trace | UnreadableLine]:
    for trace in traces:
        if isinstance(trace, UnreadableLine) or since is None:
            yield trace
            continue
        own_part = select_own(trace, frozenset(), since)
        if own_part is not None:
            yield own_part
