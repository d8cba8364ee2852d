"""The same large replay on every engine, with one worker killed on the way: results, memory and time.

    python bench/engines.py [--bytes 2GB] [--file-bytes 64MB] [--engines local,dask,ray] [--jobs 3]
                            [--no-kill] [--json FILE]
    python bench/engines.py --quick

It generates logs of so many bytes, and runs `lamina replay` over them: first with one process, then on each
engine with `--jobs` workers. Each replay is a process of its own, which is watched from outside. In the
middle of the logs the busiest worker is killed. The bench fails if one result differs in a bit from those of
the first replay: the account as JSON, and the Parquet tables if pyarrow is installed. Only the time that a
policy took is left out, since it is measured.

It needs Linux, since it reads /proc. Dask and Ray are those of `make scale`.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `bench`, however this is started

from bench.generated_logs import GeneratedLogs, write_logs
from bench.process_tree import ProcessTree, count_bytes_read
from bench.samples import QUICK_HELP

SECONDS_BETWEEN_LOOKS = 1.0
KILLED_AT = 0.4
"""The share of the logs after which a worker is killed."""

POLICIES = "none,lamina"
WINDOW = 32_000
UNITS = {"kB": 10**3, "MB": 10**6, "GB": 10**9}
MEASURED = ("seconds", "pace")
"""Fields that hold a time, which differs from run to run."""


class EngineRun(msgspec.Struct, frozen=True, kw_only=True):
    """One replay. Memory is in megabytes; `killed` is the id of the worker that was killed, or 0."""

    engine: str
    jobs: int
    killed: int
    wall_seconds: float
    seconds: float
    driver_seconds: float
    driver_mb: int
    largest_worker_mb: int
    together_mb: int
    damaged: int
    digest: str


def main() -> int:
    options = _read_options()
    with tempfile.TemporaryDirectory(prefix="lamina-engines-", dir=options.folder) as name:
        folder = Path(name)
        turns = 3 if options.quick else 20
        logs = write_logs(folder / "logs", options.bytes, turns=turns, file_size=options.file_bytes)
        print(
            f"{logs.size / 1e6:,.0f} MB in {len(logs.files)} files, {logs.sessions} sessions, "
            f"{os.cpu_count()} processors",
            flush=True,
        )
        runs = [measure_replay(folder, logs, "local", jobs=1, kills=False)]
        for engine in options.engines:
            run = measure_replay(folder, logs, engine, jobs=options.jobs, kills=not options.no_kill)
            runs.append(run)
    print(_format_table(runs))
    if options.json:
        figures = {"bytes": logs.size, "sessions": logs.sessions, "runs": msgspec.to_builtins(runs)}
        options.json.write_text(json.dumps(figures, indent=1))
    return int(any(run.digest != runs[0].digest for run in runs))


def measure_replay(folder: Path, logs: GeneratedLogs, engine: str, *, jobs: int, kills: bool) -> EngineRun:
    """One `lamina replay` of all logs, watched until it ends."""
    output = folder / f"{engine}-{jobs}"
    output.mkdir()
    command = [
        sys.executable,
        "-m",
        "lamina",
        "replay",
        str(folder / "logs"),
        "--json",
        str(output / "account"),
    ]
    command += ["--engine", engine, "--jobs", str(jobs), "--policy", POLICIES, "--window", str(WINDOW)]
    if _has_pyarrow():
        command += ["--parquet", str(output / "tables")]
    # A busy machine starts Ray slowly.
    environment = {**os.environ, "RAY_raylet_start_wait_time_s": "180"}
    started = time.monotonic()
    with (output / "messages").open("wb") as messages:
        replay = subprocess.Popen(command, stdout=messages, stderr=messages, env=environment)
    tree = ProcessTree(replay.pid)
    killed = 0
    while replay.poll() is None:
        tree.look()
        if kills and not killed and count_bytes_read(replay.pid, logs.files) >= KILLED_AT * logs.size:
            killed = tree.kill_busiest_worker()
        time.sleep(SECONDS_BETWEEN_LOOKS)
    wall_seconds = time.monotonic() - started
    if replay.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{(output / 'messages').read_text()[-2_000:]}")
    account = json.loads((output / "account").read_text())
    run = EngineRun(
        engine=engine,
        jobs=jobs,
        killed=killed,
        wall_seconds=wall_seconds,
        seconds=tree.seconds,
        driver_seconds=tree.driver_seconds,
        driver_mb=tree.memory.driver >> 20,
        largest_worker_mb=tree.memory.largest_worker >> 20,
        together_mb=tree.memory.together >> 20,
        damaged=len(account["damaged"]),
        digest=_digest_results(account, output / "tables"),
    )
    print(json.dumps(msgspec.to_builtins(run)), flush=True)
    return run


def _digest_results(account: Any, tables: Path) -> str:
    """A hash of every figure, in order, without the times that were measured."""
    digest = hashlib.sha256(json.dumps(_drop_measured(account), sort_keys=True).encode())
    if tables.exists():
        parquet: Any = importlib.import_module("pyarrow.parquet")
        for path in sorted(tables.glob("*.parquet")):
            rows = _drop_measured(parquet.ParquetFile(path).read().to_pylist())
            digest.update(json.dumps([path.name, rows]).encode())
    return digest.hexdigest()


def _drop_measured(value: Any) -> Any:
    if isinstance(value, list):
        return [_drop_measured(each) for each in value]
    if isinstance(value, dict):
        return {name: _drop_measured(each) for name, each in value.items() if name not in MEASURED}
    return value


def _format_table(runs: list[EngineRun]) -> str:
    """The runs beside the first, in Markdown."""
    first = runs[0]
    rows = [
        [
            "engine",
            "workers",
            "one killed",
            "results",
            "wall time",
            "processor time",
            "of it the first process",
            "memory of the first process",
            "of the largest worker",
            "of all",
        ],
        ["---", "--:", "---", "---", *["--:"] * 6],
    ]
    for run in runs:
        row = [
            run.engine,
            str(run.jobs),
            "yes" if run.killed else "no",
            "the same" if run.digest == first.digest else "DIFFERENT",
            _format_ratio(run.wall_seconds, first.wall_seconds, ".2f"),
            _format_ratio(run.seconds, first.seconds, ".2f"),
            _format_ratio(run.driver_seconds, run.seconds, ".0%"),
            f"{run.driver_mb} MB",
            f"{run.largest_worker_mb} MB",
            f"{run.together_mb} MB",
        ]
        rows.append(row)
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def _format_ratio(value: float, whole: float, shape: str) -> str:
    """A ratio, or "–" if a replay ended before its processor time was looked at."""
    if not whole:
        return "–"
    return format(value / whole, shape)


def _has_pyarrow() -> bool:
    return importlib.util.find_spec("pyarrow") is not None


def _read_size(text: str) -> int:
    """`50MB` is 50,000,000."""
    number, unit = text[:-2], text[-2:]
    if unit not in UNITS or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no size; give one such as 50MB or 2GB")
    return int(number) * UNITS[unit]


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bytes", type=_read_size, default="200MB", help="how large the logs are (200MB)")
    parser.add_argument("--file-bytes", type=_read_size, default="64MB", help="how large each file is (64MB)")
    parser.add_argument("--engines", type=lambda text: text.split(","), default=["local", "dask", "ray"])
    parser.add_argument("--jobs", type=int, default=3, help="workers of each engine (3)")
    parser.add_argument("--no-kill", action="store_true", help="let every worker live")
    parser.add_argument("--folder", type=Path, help="where logs and results are written, and removed again")
    parser.add_argument("--quick", action="store_true", help=QUICK_HELP)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.bytes = 200_000
        options.engines = ["local"]
        options.jobs = 2
        options.no_kill = True
    return options


if __name__ == "__main__":
    sys.exit(main())
