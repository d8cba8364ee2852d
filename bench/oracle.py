"""How much dearer lamina's planner is than the best schedule of cuts with the future known, at equal recall.

    python bench/oracle.py PATH... [--sessions 100] [--calls 150] [--windows 32000,64000]
                           [--rules anthropic,vllm] [--policy lamina] [--jobs 2] [--json FILE]
    python bench/oracle.py --quick [--json FILE]

Paths are recorded sessions, as `lamina replay` reads them. Only those count in which a window presses, and
that have at most `--calls` calls; of these so many are taken, in a random order that is always the same.

Printed, for each window and cache: the ratio of costs at the median, the mean and the worst tenth, and then
the worst sessions with what makes them hard. The ratio is to the cost at equal recall, which may lie between
two schedules. `one` is the median of the ratio to the cheapest single schedule that shows at least as much.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.samples import QUICK_HELP, sample_sessions
from bench.schedules import Compared, compared
from lamina.errors import LaminaError
from lamina.replay.traces import read_traces
from lamina.replay.values import Trace

RULES = ("anthropic", "openai", "openai_legacy", "gemini", "vllm")
WORST = 3
SEED = 1
CALLS = 150


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One trace in one window: what was found, and how long it took."""

    found: tuple[Compared, ...] = ()
    seconds: float = 0.0
    failed: str = ""


def worked(trace: Trace, *, window: int, rules: Sequence[str], policy: str) -> Job:
    started = time.process_time()
    try:
        found = compared(trace, window=window, rules=rules, own=policy)
    except LaminaError as error:
        return Job(failed=f"{trace.id}: {error}")
    return Job(found=tuple(found), seconds=time.process_time() - started)


def pressed(paths: Sequence[str], window: int, sessions: int, calls: int) -> list[Trace]:
    """Sessions that are certainly larger than the window, in an order that depends on their ids alone.

    Four characters are one token. A session of more calls than `calls` is left out: its time grows with their
    square.
    """
    large = []
    for trace in read_traces(paths):
        if not isinstance(trace, Trace) or count_answers(trace) > calls:
            continue
        if sum(len(str(item)) for item in trace.items) > 4 * window:
            large.append(trace)
    large.sort(key=lambda trace: (trace.source, trace.id))
    random.Random(SEED).shuffle(large)  # noqa: S311 - an order, not a secret
    return large[:sessions]


def count_answers(trace: Trace) -> int:
    """How often a model answered."""
    return sum(item.get("role") == "assistant" for item in trace.items)


def lines(found: Sequence[Compared]) -> Iterator[str]:
    tables = sorted({(c.window, c.rules) for c in found})
    heads = f"{'median':>7} {'mean':>6} {'p90':>6} {'one':>6} {'recall':>7}"
    yield f"{'window':>7} {'rules':14} {'sessions':>8} {heads}"
    for window, rules in tables:
        mine = [c for c in found if (c.window, c.rules) == (window, rules)]
        ratios = sorted(c.ratio for c in mine)
        mean, recall = (sum(each) / len(mine) for each in (ratios, [c.own.recall for c in mine]))
        yield (
            f"{window:7} {rules:14} {len(mine):8} {ratios[len(ratios) // 2]:7.3f} {mean:6.3f} "
            f"{ratios[len(ratios) * 9 // 10]:6.3f} {median(map(ratio_to_schedule, mine)):6.3f} {recall:7.1%}"
        )
    for window, rules in tables:
        mine = [c for c in found if (c.window, c.rules) == (window, rules)]
        yield f"\nworst at {window} under {rules}:"
        yield from map(told, sorted(mine, key=lambda c: -c.ratio)[:WORST])


def ratio_to_schedule(row: Compared) -> float:
    """The cost of lamina over that of the cheapest schedule that shows as much; 1 if lamina is cheaper."""
    return max(row.own.cost / row.best.cost, 1.0)


def told(c: Compared) -> str:
    """One session: what it is like, what lamina did, what the oracle did."""
    room = c.window - c.window // 8
    return (
        f"  {c.ratio:.2f} {c.trace}: {c.calls} calls to {c.tokens:,} tokens, {c.growth:,} a call and at most "
        f"{c.largest / room:.0%} of the room, {c.gaps} cold, floor {c.floor:.0%}; "
        f"{c.own.cuts} cuts, {c.own.mean / room:.0%} sent, recall {c.own.recall:.1%}; "
        f"oracle {c.best.cuts} cuts, {c.best.mean / room:.0%} sent, {c.best.recall:.1%}: "
        + " ".join(f"{5 * depth}%@{call}" for call, depth in c.cuts)
        + f" else {5 * c.otherwise}%"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--calls", type=int, default=CALLS, help="leave out sessions of more calls")
    parser.add_argument("--windows", default="32000,64000")
    parser.add_argument("--rules", default=",".join(RULES))
    parser.add_argument("--policy", default="lamina")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    asked = parser.parse_args()
    if asked.quick:
        asked.sessions, asked.windows, asked.rules, asked.jobs = 1, "8000", "anthropic,vllm", 1
        with sample_sessions(sessions=1, turns=6) as path:
            asked.paths = [str(path)]
            compare(asked)
    elif asked.paths:
        compare(asked)
    else:
        parser.error("name recorded sessions, or say --quick")


def compare(asked: argparse.Namespace) -> None:
    jobs: list[Job] = []
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("forkserver")) as pool:
        for window in map(int, asked.windows.split(",")):
            work = partial(worked, window=window, rules=asked.rules.split(","), policy=asked.policy)
            for job in pool.map(work, pressed(asked.paths, window, asked.sessions, asked.calls)):
                jobs.append(job)
                print(f"\r{len(jobs)} sessions", end="", file=sys.stderr, flush=True)
    found = [each for job in jobs for each in job.found]
    print("\n".join(lines(found)))
    print(f"{sum(job.seconds for job in jobs) / max(len(jobs), 1):.1f} s of processor a session and window")
    print("\n".join(job.failed for job in jobs if job.failed))
    if asked.json:
        asked.json.write_bytes(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
