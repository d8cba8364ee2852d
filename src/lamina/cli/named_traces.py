"""Reads the recorded sessions that a command names: those of files and folders, and those of a store."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain

from lamina.cli.stored import ask_store, find_gateway_workspace
from lamina.cli.stored_sessions import LogSource
from lamina.replay.traces import ALWAYS, Period, Progress, read_traces
from lamina.replay.traces.own_answers import select_own
from lamina.replay.traces.recorded_conversations import list_recorded, read_recorded
from lamina.replay.values import Trace, UnreadableLine


def read_named_traces(
    arguments: argparse.Namespace, *, period: Period = ALWAYS, progress: Progress | None = None
) -> Iterator[Trace | UnreadableLine]:
    """The sessions of the paths and of the store, up to the limit."""
    traces: list[Iterable[Trace | UnreadableLine]] = []
    if arguments.paths:
        traces.append(read_traces(arguments.paths, progress=progress, period=period))
    if arguments.store is not None:
        traces.append(read_stored_traces(arguments, period=period))
    return _limit_traces(chain.from_iterable(traces), arguments.limit)


def read_stored_traces(
    arguments: argparse.Namespace, *, period: Period = ALWAYS
) -> Iterator[Trace | UnreadableLine]:
    """What lamina recorded in a store, and the sessions in it, one after the other, with what counts of each.

    The store is opened for each, so that whoever writes to it does not wait for the replay.
    """
    workspace = find_gateway_workspace(arguments)
    for name in ask_store(arguments, partial(list_recorded, workspace=workspace)):
        stored = ask_store(arguments, partial(read_recorded, workspace=workspace, name=name))
        yield from _select_period([stored], period)
    yield from _select_period(LogSource(arguments).read(), period)


def _select_period(
    traces: Iterable[Trace | UnreadableLine], period: Period
) -> Iterator[Trace | UnreadableLine]:
    for trace in traces:
        if isinstance(trace, UnreadableLine) or period == ALWAYS:
            yield trace
            continue
        own_part = select_own(trace, frozenset(), period)
        if own_part is not None:
            yield own_part


def _limit_traces(traces: Iterable[Trace | UnreadableLine], limit: int) -> Iterator[Trace | UnreadableLine]:
    """The first traces, and the lines between them that cannot be read; all of them if the limit is 0."""
    count = 0
    for trace in traces:
        yield trace
        if isinstance(trace, Trace):
            count += 1
        if limit and count >= limit:
            return
