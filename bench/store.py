"""What keeping a conversation costs: appends that are on the disk, and reads of the end of long ones.

    python bench/store.py                  the tables
    python bench/store.py --json FILE      the same figures, to a file as well
    python bench/store.py --quick          a run of a second or two, to see that it works

An append is a turn: a group of two records, the state and an idempotency key, in one transaction. The bar is
Python's sqlite3 in one thread with the same settings, tables and statements, which computes no checksums.
All take turns in rounds, so that a busy
machine slows them alike; the ratios are the result, the times only say what they are ratios of.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import statistics
import sys
import time
import warnings
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.samples import QUICK_HELP
from lamina.stores import MemoryStore, Once, Store, WalResetRisk, Where, open_sqlite
from lamina.stores.sealed import Sealed, generate
from lamina.stores.sqlite.connections import SETTINGS, connect
from lamina.stores.sqlite.schema import make_tables

RECORD = b"x" * 787
STATE = b"s" * 2_000
GROUP = (RECORD, RECORD)
SIZES = (1_000, 10_000, 100_000, 1_000_000)
TASKS = 8
HERE = Where("bench", "conversation")

Append = Callable[[int], Awaitable[None]]


class Row(NamedTuple):
    """One store: appends a second, the median and the CPU of one; `ratio` to raw sqlite3, of all the time."""

    what: str
    per_second: float
    median_us: float
    cpu_us: float
    ratio: float


class Tail(NamedTuple):
    """Reading the last fifty of so many records, and deleting all of them."""

    messages: int
    tail_us: float
    raw_us: float
    megabytes: float
    delete_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description="Time appends and tail reads against raw sqlite3.")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there as well")
    parser.add_argument("--appends", type=int, default=96, help="appends in a round (default: 96)")
    parser.add_argument("--rounds", type=int, default=10, help="rounds (default: 10)")
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="the longest conversation")
    parser.add_argument("--folder", type=Path, help="where to write; by default a temporary folder")
    parser.add_argument("--reads", type=int, default=300, help="reads of a tail (default: 300)")
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    asked = parser.parse_args()
    if asked.quick:
        asked.appends, asked.rounds, asked.largest, asked.reads = TASKS, 1, SIZES[0], 5
    warnings.simplefilter("ignore", WalResetRisk)
    with TemporaryDirectory(prefix="lamina-bench-", dir=asked.folder) as folder:
        figures = anyio.run(measure, Path(folder), asked)
    if asked.json:
        asked.json.write_text(json.dumps(figures, indent=2) + "\n")


async def measure(folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    print(f"SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores; one append is 2 records of 787 bytes")
    rows = await appends(folder, asked.rounds, asked.appends)
    print(f"\n{'append':44}{'a second':>10}{'median µs':>11}{'CPU µs':>9}{'ratio':>8}")
    for row in rows:
        print(f"{row.what:44}{row.per_second:10,.0f}{row.median_us:11,.0f}{row.cpu_us:9,.0f}{row.ratio:8.2f}")
    print(f"\n{'messages':>10}{'tail of 50, µs':>16}{'raw, µs':>10}{'file, MB':>10}{'delete, s':>11}")
    tails = []
    for size in SIZES:
        if size <= asked.largest:
            tails.append(await tail(folder / f"{size}.db", size, asked.reads))
            one = tails[-1]
            print(
                f"{size:10,}{one.tail_us:16,.0f}{one.raw_us:10,.0f}{one.megabytes:10,.1f}{one.delete_s:11.2f}"
            )
    return {"appends": [row._asdict() for row in rows], "tails": [one._asdict() for one in tails]}


async def appends(folder: Path, rounds: int, count: int) -> list[Row]:
    """All of them, a round each in turn; the first round is not counted."""
    async with AsyncExitStack() as stack:
        kinds = await contestants(folder, stack)
        walls: dict[str, list[float]] = {what: [] for what in kinds}
        cpu = dict.fromkeys(kinds, 0.0)
        for round_ in range(rounds + 1):
            for what, append in kinds.items():
                began, times = time.process_time(), []
                for number in range(count):
                    start = time.perf_counter()
                    await append(round_ * count + number)
                    times.append(time.perf_counter() - start)
                if round_:
                    walls[what] += times
                    cpu[what] += time.process_time() - began
    bar = sum(walls["raw sqlite3"])
    return [_row(what, walls[what], cpu[what], bar) for what in kinds]


def _row(what: str, times: Sequence[float], cpu: float, bar: float) -> Row:
    shared = "at once" in what  # seven calls of eight do nothing there
    median = statistics.fmean(times) if shared else statistics.median(times)
    return Row(what, len(times) / sum(times), median * 1e6, cpu / len(times) * 1e6, bar / sum(times))


async def contestants(folder: Path, stack: AsyncExitStack) -> dict[str, Append]:
    kinds: dict[str, Append] = {"raw sqlite3": raw(folder / "raw.db", stack)}
    kinds["lamina sqlite"] = ours(await stack.enter_async_context(open_sqlite(folder / "ours.db")))
    many = await stack.enter_async_context(open_sqlite(folder / "many.db"))
    kinds[f"lamina sqlite, {TASKS} tasks at once"] = at_once(many)
    inner = await stack.enter_async_context(open_sqlite(folder / "sealed.db"))
    kinds["lamina sqlite, encrypted"] = ours(Sealed(inner, generate(), create=True))
    kinds["lamina memory"] = ours(MemoryStore())
    return kinds


def ours(store: Store) -> Append:
    async def append(number: int) -> None:
        once = Once(key=f"turn-{number}", digest=RECORD[:32])
        await store.append(HERE, GROUP, expect=2 * number, once=once, state=STATE)

    return append


def at_once(store: Store) -> Append:
    """Tasks of eight conversations, which share a commit: every eighth call does the work of eight."""

    async def append(number: int) -> None:
        if number % TASKS == 0:
            async with anyio.create_task_group() as tasks:
                for task in range(TASKS):
                    tasks.start_soon(one, task, number // TASKS)

    async def one(task: int, number: int) -> None:
        where = Where("bench", f"conversation {task}")
        once = Once(key=f"turn-{number}", digest=RECORD[:32])
        await store.append(where, GROUP, expect=2 * number, once=once, state=STATE)

    return append


def raw(path: Path, stack: AsyncExitStack) -> Append:
    """The same settings and statements, in this thread, through nothing."""
    set_up = connect(str(path), writes=True)
    make_tables(set_up)
    settings = {name: set_up.run(f"PRAGMA {name}")[0][0] for name in _SETTINGS}
    set_up.close()
    connection = sqlite3.connect(path, isolation_level=None)
    stack.callback(connection.close)
    for name, value in settings.items():
        connection.execute(f"PRAGMA {name}={value}")
    head = "INSERT INTO conversation VALUES ('bench', 'conversation', 0, 0, 0, '')"
    connection.execute(head)
    names = ("bench", "conversation")
    find = "SELECT count, state FROM conversation WHERE workspace = ? AND name = ?"

    async def append(number: int) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(find, names).fetchall()
        connection.execute(
            "SELECT * FROM once WHERE workspace = ? AND conversation = ? AND key = ?",
            (*names, f"turn-{number}"),
        ).fetchall()
        rows = ((*names, 2 * number + place, body, 0) for place, body in enumerate(GROUP))
        connection.execute(
            "UPDATE conversation SET count = ?, state = ? WHERE workspace = ? AND name = ?",
            (2 * number + 2, STATE, *names),
        )
        connection.executemany("INSERT INTO record VALUES (?, ?, ?, ?, ?)", rows)
        values = (*names, f"turn-{number}", RECORD[:32], 2 * number + 2)
        connection.execute("INSERT INTO once VALUES (?, ?, ?, ?, ?, 0)", values)
        connection.execute("COMMIT")

    return append


_SETTINGS = (*SETTINGS, "wal_autocheckpoint")


async def tail(path: Path, size: int, reads: int) -> Tail:
    step = 1_000
    async with open_sqlite(path) as store:  # it sees the locks of `_raw_tail`
        for start in range(0, size, step):
            await store.append(HERE, [RECORD] * step, expect=start)
        took = await _median(partial(store.read, HERE, last=50), runs=reads)
        with_raw = _raw_tail(path, size, runs=reads)
        megabytes = (os.stat(path).st_size + os.stat(f"{path}-wal").st_size) / 1e6  # noqa: PTH116 - as SQLite
        began = time.perf_counter()
        await store.delete(HERE)
        return Tail(size, took * 1e6, with_raw * 1e6, megabytes, time.perf_counter() - began)


async def _median(call: Callable[[], Awaitable[Any]], *, runs: int) -> float:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        await call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _raw_tail(path: Path, size: int, *, runs: int) -> float:
    connection = sqlite3.connect(path)
    sql = "SELECT seq, body FROM record WHERE workspace = ? AND conversation = ? AND seq >= ? ORDER BY seq"
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        connection.execute(sql, (HERE.workspace, HERE.conversation, size - 50)).fetchall()
        times.append(time.perf_counter() - start)
    connection.close()
    return statistics.median(times)


if __name__ == "__main__":
    main()
