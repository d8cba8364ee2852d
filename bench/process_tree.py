"""A process and all below it: memory, processor time, and which of them are workers of a replay.

It reads Linux's /proc. Memory that processes share is counted in proportion, so that sums are right.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import NamedTuple

WORKER_MARKS = ("multiprocessing.spawn", "ray::")
"""What the command line of a worker has: of a pool and of Dask the first, of Ray the second."""

_TICKS = os.sysconf("SC_CLK_TCK")


class Memory(NamedTuple):
    """Bytes: the most that the first process held, that any worker held, and that all held at one moment."""

    driver: int
    largest_worker: int
    together: int


class ProcessTree:
    """State: the peaks of memory and the processor time of each process so far, also of those that ended."""

    def __init__(self, root: int) -> None:
        self.root = root
        self.memory = Memory(0, 0, 0)
        self._seconds: dict[int, float] = {}
        self._last_gains: dict[int, float] = {}

    def look(self) -> None:
        """Read memory and time of every process that runs now."""
        processes = [self.root, *_descendants(self.root)]
        sizes = {process: _resident(process) for process in processes}
        worker_sizes = [sizes[process] for process in processes if _is_worker(process)]
        self.memory = Memory(
            max(self.memory.driver, sizes[self.root]),
            max(self.memory.largest_worker, *worker_sizes, 0),
            max(self.memory.together, sum(sizes.values())),
        )
        self._last_gains = {}
        for process in processes:
            before = self._seconds.get(process, 0.0)
            now = max(before, _processor_seconds(process))
            self._seconds[process] = now
            if _is_worker(process):
                self._last_gains[process] = now - before

    @property
    def driver_seconds(self) -> float:
        return self._seconds.get(self.root, 0.0)

    @property
    def seconds(self) -> float:
        """Processor time of all processes."""
        return sum(self._seconds.values())

    def kill_busiest_worker(self) -> int:
        """Kill the worker that worked most between the last two looks; its id, or 0 if there is none."""
        if not self._last_gains:
            return 0
        process = max(self._last_gains, key=lambda each: self._last_gains[each])
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        return process


def count_bytes_read(root: int, files: list[Path]) -> int:
    """How far a process and those below it are in these files, which are begun one after the other.

    It is that of the one that is farthest; 0 if no file is open.
    """
    return max(_count_bytes_read(process, files) for process in (root, *_descendants(root)))


def _count_bytes_read(process: int, files: list[Path]) -> int:
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{process}/fd").iterdir():
            target = link.readlink()
            if target not in files:
                continue
            position = Path(f"/proc/{process}/fdinfo/{link.name}").read_text().split()[1]
            return sum(file.stat().st_size for file in files[: files.index(target)]) + int(position)
    return 0


def _descendants(parent: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                fields = _stat_fields(int(entry.name))
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    descendants: list[int] = []
    waiting = [parent]
    while waiting:
        below = children.get(waiting.pop(), [])
        descendants += below
        waiting += below
    return descendants


def _stat_fields(process: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may hold anything: first state and parent."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def _processor_seconds(process: int) -> float:
    try:
        fields = _stat_fields(process)
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _resident(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def _is_worker(process: int) -> bool:
    try:
        command = Path(f"/proc/{process}/cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return False
    return any(mark in command for mark in WORKER_MARKS)
