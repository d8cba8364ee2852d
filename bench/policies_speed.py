"""How long a replay takes, against parsing and dumping the same sessions once."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from lamina.replay.runs import replay
from lamina.replay.values import Trace

SESSIONS, LIMIT = 500, 90.0
"""Sessions that are to be replayed in so many seconds, on two cores."""


class Speed(NamedTuple):
    """Seconds of the clock and of the processor, for the replay and for parsing and dumping."""

    sessions: int
    calls: int
    jobs: int
    wall: float
    cpu: float
    once: float

    def __str__(self) -> str:
        return (
            f"{self.sessions:,} sessions, {self.calls:,} calls under lamina at 64,000 tokens, {self.jobs} "
            f"processes: {self.wall:.1f} s, {self.cpu:.1f} s of processor time, "
            f"{self.cpu / self.jobs:.1f} s for each process, "
            f"{self.cpu / self.once:,.0f} × parsing and dumping them once ({self.once:.2f} s)"
        )


def speed(found: Sequence[Trace], *, jobs: int) -> Speed:
    """The replay of up to 500 of these, evenly chosen, with lamina in a window of 64,000."""
    traces = chosen(found, SESSIONS)
    once = _once(traces)
    wall, cpu = time.perf_counter(), _processor()
    account = replay(
        traces, policies=["lamina"], windows=[64_000], rules=["anthropic"], count_as="gpt-5.4", jobs=jobs
    )
    wall, cpu = time.perf_counter() - wall, _processor() - cpu
    calls = sum(each.calls for each in account.outcomes)
    return Speed(len(traces), calls, jobs, wall, cpu, once)


def chosen(found: Sequence[Trace], count: int) -> list[Trace]:
    """So many of them, evenly spread; all where there are fewer."""
    return [found[at * len(found) // count] for at in range(count)] if len(found) > count else list(found)


def _once(traces: Sequence[Trace]) -> float:
    lines = [msgspec.json.encode(trace) for trace in traces]
    started = time.process_time()
    for line in lines:
        msgspec.json.encode(msgspec.json.decode(line))
    return time.process_time() - started


def _processor() -> float:
    """Seconds of this process and of those that it started and that have ended."""
    both = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)
