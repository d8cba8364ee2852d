"""The same replay on every engine, with a worker killed on the way: equal results, memory and time.

    python -m tools.scale_replay [--megabytes N] [--engines local,dask,ray] [--jobs N] [--json FILE]

It makes logs of so many megabytes, replays them in this process, on each engine, and on each engine with one
worker killed. It fails if any result differs in a bit from those of this process; only `seconds`, which is
measured, is left out. Peak memory is that of the process that reads, and that of all processes together.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from bench.samples import recorded_session
from lamina.replay.engines import Engine, open_engine
from lamina.replay.parquet import open_tables
from lamina.replay.runs import TraceReplay, replay
from lamina.replay.traces import read_traces

SECONDS_BETWEEN_LOOKS = 0.2
KILLED_AT = 0.3
"""The share of the sessions after which a worker is killed."""

WORKER_NAMES = {"local": "spawn_main", "dask": "spawn_main", "ray": "ray::"}
"""What the command line of a worker has: Ray's are named after the task that they run."""


def main() -> int:
    options = _read_options()
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "180")  # a busy machine starts it slowly
    with tempfile.TemporaryDirectory(prefix="lamina-scale-") as name:
        folder = Path(name)
        sessions = write_logs(folder / "logs", options.megabytes << 20)
        print(f"{sessions} sessions, {options.megabytes} MB, {os.cpu_count()} processors", flush=True)
        figures = [measure(folder, "this process", options.jobs, sessions, kills=False)]
        for engine in options.engines:
            figures.append(measure(folder, engine, options.jobs, sessions, kills=False))
            figures.append(measure(folder, engine, options.jobs, sessions, kills=True))
        read_tables(folder)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    return int(any(each["digest"] != figures[0]["digest"] for each in figures))


def write_logs(folder: Path, size: int) -> int:
    """Files of about ten megabytes each, every session with another seed; the number of sessions."""
    folder.mkdir()
    written = 0
    seed = 0
    while written < size:
        with (folder / f"{seed:06}.jsonl").open("w", encoding="utf-8") as file:
            while file.tell() < 10 << 20 and written + file.tell() < size:
                row = recorded_session(seed, "anthropic-messages", turns=12 + seed % 20)
                file.write(json.dumps(row) + "\n")
                seed += 1
            written += file.tell()
    return seed


def measure(folder: Path, name: str, jobs: int, sessions: int, *, kills: bool) -> dict[str, Any]:
    """One replay of all logs: its time, its memory, and a digest of all its results in order."""
    digest = hashlib.sha256()
    finished = 0
    killed: list[int] = []

    def take(trace_replay: TraceReplay) -> None:
        nonlocal finished
        finished += 1
        digest.update(_encode(trace_replay))
        if kills and not killed and finished >= sessions * KILLED_AT:
            killed.append(_kill_worker(WORKER_NAMES[name]))

    with _watch_memory() as memory, _open(name, jobs) as engine, open_tables(folder / "tables") as tables:
        started = time.monotonic()
        account = replay(
            read_traces(str(folder / "logs")),
            policies=["none", "lamina"],
            windows=[32_000],
            engine=engine,
            progress=_both(take, tables.add),
        )
        seconds = time.monotonic() - started
    figures = {
        "engine": name,
        "killed": bool(killed),
        "seconds": seconds,
        "sessions": finished,
        "damaged": len(account.damaged),
        "digest": digest.hexdigest(),
        "reader_mb": memory["reader"] >> 20,
        "all_mb": memory["all"] >> 20,
    }
    lost = ", one worker killed" if killed else ""
    print(
        f"{name}{lost}: {seconds:.0f} s, {finished} sessions, {figures['damaged']} damaged, "
        f"{figures['reader_mb']} MB in the reader, {figures['all_mb']} MB in all, {digest.hexdigest()[:12]}",
        flush=True,
    )
    return figures


def read_tables(folder: Path) -> None:
    """Sums of the tables by DuckDB and by polars, if they are installed."""
    path = str(folder / "tables/outcomes.parquet")
    with contextlib.suppress(ImportError):
        duckdb: Any = importlib.import_module("duckdb")
        query = f"select policy, count(*), sum(equivalents) from '{path}' group by policy order by policy"  # noqa: S608
        print("duckdb:", duckdb.sql(query).fetchall())
    with contextlib.suppress(ImportError):
        polars: Any = importlib.import_module("polars")
        sums = polars.scan_parquet(path).group_by("policy").agg(polars.len(), polars.sum("equivalents"))
        print("polars:", sums.sort("policy").collect().rows())


@contextlib.contextmanager
def _open(name: str, jobs: int) -> Iterator[Engine | None]:
    if name == "this process":
        yield None
        return
    with open_engine(name, jobs=jobs) as engine:
        yield engine


def _both(
    one: Callable[[TraceReplay], None], other: Callable[[TraceReplay], None]
) -> Callable[[TraceReplay], None]:
    def call(trace_replay: TraceReplay) -> None:
        one(trace_replay)
        other(trace_replay)

    return call


def _encode(trace_replay: TraceReplay) -> bytes:
    outcomes = tuple(msgspec.structs.replace(each, seconds=0.0) for each in trace_replay.outcomes)
    return msgspec.json.encode(msgspec.structs.replace(trace_replay, outcomes=outcomes))


def _kill_worker(name: str) -> int:
    """Kills the first worker below this process that is at work; its id."""
    for process in sorted(_descendants(os.getpid())):
        command = _command_line(process)
        if name in command and "IDLE" not in command:
            os.kill(process, signal.SIGKILL)
            return process
    raise RuntimeError(f"no worker was found whose command line has {name}")


@contextlib.contextmanager
def _watch_memory() -> Iterator[dict[str, int]]:
    """The largest resident memory of this process, and of it and all below it."""
    peaks = {"reader": 0, "all": 0}
    stopped = threading.Event()

    def look() -> None:
        while not stopped.wait(SECONDS_BETWEEN_LOOKS):
            own = _resident(os.getpid())
            peaks["reader"] = max(peaks["reader"], own)
            peaks["all"] = max(peaks["all"], own + sum(map(_resident, _descendants(os.getpid()))))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peaks
    finally:
        stopped.set()
        thread.join()


def _descendants(parent: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    descendants: list[int] = []
    waiting = [parent]
    while waiting:
        below = children.get(waiting.pop(), [])
        descendants += below
        waiting += below
    return descendants


def _resident(process: int) -> int:
    """Its own bytes: what it shares with others is counted in proportion."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def _command_line(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=200, help="how large the logs are (200)")
    parser.add_argument("--engines", type=lambda text: text.split(","), default=["local", "dask", "ray"])
    parser.add_argument("--jobs", type=int, default=3, help="workers of each engine (3)")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
