"""Writes what a replay found as Parquet tables, for DuckDB, polars, pandas or Spark.

    outcomes     a session under one policy, window and cache
    reported     what the records say of a session
    settings     what a session would have cost with each setting of `lamina run`
    lost_caches  a call that read less than three quarters of what it could
    unreadable   a line or a file that was skipped

A table has the fields of its struct as columns, without those that are lists. Before them stand the file, the
id of the session, its name, and the day on which it began. A folder gets one file for each table, when the
replay has ended: until then the files are called `outcomes.part`, and so on.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from lamina.caches.prices import WorkingCost
from lamina.conversations.lost_caches import LostCache
from lamina.errors import BadInput
from lamina.replay.runs import TraceReplay
from lamina.replay.values import ReplayOutcome, Reported, UnreadableLine, day_of, make_id

TABLES: dict[str, type[msgspec.Struct]] = {
    "outcomes": ReplayOutcome,
    "reported": Reported,
    "settings": WorkingCost,
    "lost_caches": LostCache,
    "unreadable": UnreadableLine,
}

Row = dict[str, Any]

_KEYS = ("file", "session", "trace", "day")

ROWS_IN_MEMORY = 20_000
"""Rows that wait before they are written."""


@contextlib.contextmanager
def open_tables(folder: str | Path) -> Iterator[ParquetTables]:
    """The tables of this folder, which is made if it is not there. Nothing is there before `finish`."""
    path = Path(folder)
    tables = ParquetTables(_import_pyarrow("--parquet"), path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        yield tables
    except OSError as error:
        hint = "check folder and rights"
        raise BadInput(f"it cannot be written: {error.strerror}", place=str(path), hint=hint) from None
    finally:
        tables.close()


class ParquetTables:
    """State: the rows that wait, and the files that are being written."""

    def __init__(self, pyarrow: Any, folder: Path) -> None:
        self._pyarrow = pyarrow
        self._folder = folder
        self._schemas = {table: make_schema(pyarrow, table) for table in TABLES}
        self._rows: dict[str, list[Row]] = {table: [] for table in TABLES}
        self._writers: dict[str, Any] = {}

    def add(self, file: str, replays: Iterable[TraceReplay]) -> None:
        """The rows of one file, or of a store."""
        for trace_replay in replays:
            for table, row in write_rows(trace_replay, file):
                self._rows[table].append(row)
        if sum(map(len, self._rows.values())) >= ROWS_IN_MEMORY:
            self._write_waiting()

    def finish(self) -> None:
        """Write what waits, and give the files their names. Those of an earlier replay are replaced."""
        self._write_waiting()
        for table, writer in self._writers.items():
            writer.close()
            self._part(table).replace(self._folder / f"{table}.parquet")
        self._writers = {}

    def close(self) -> None:
        """Remove what was not finished: a part of the figures would look like all of them."""
        for table, writer in self._writers.items():
            writer.close()
            self._part(table).unlink(missing_ok=True)
        self._writers = {}

    def _part(self, table: str) -> Path:
        return self._folder / f"{table}.part"

    def _write_waiting(self) -> None:
        for table, rows in self._rows.items():
            schema = self._schemas[table]
            if table not in self._writers:
                writer = self._pyarrow.parquet.ParquetWriter(self._part(table), schema, compression="zstd")
                self._writers[table] = writer
            columns = [{name: row[name] for name in schema.names} for row in rows]
            self._writers[table].write_table(self._pyarrow.Table.from_pylist(columns, schema=schema))
            rows.clear()


def write_rows(trace_replay: TraceReplay, file: str) -> Iterator[tuple[str, Row]]:
    """The rows of one session, each with the name of its table."""
    keys: Row = dict.fromkeys(_KEYS, "")
    keys["file"] = file
    if trace_replay.damaged is not None:
        yield "unreadable", keys | msgspec.structs.asdict(trace_replay.damaged)
    reported = trace_replay.reported
    if reported is None:
        return
    keys["session"] = make_id(reported.source, reported.place, reported.trace)
    keys["trace"] = reported.trace
    keys["day"] = day_of(reported.began)
    yield "reported", keys | msgspec.structs.asdict(reported)
    for outcome in trace_replay.outcomes:
        yield "outcomes", keys | msgspec.structs.asdict(outcome)
    for cost in reported.by_setting:
        yield "settings", keys | msgspec.structs.asdict(cost)
    for lost in reported.lost:
        yield "lost_caches", keys | msgspec.structs.asdict(lost)


def make_schema(pyarrow: Any, name: str) -> Any:
    """The columns of a table: the keys, and each field of its struct that holds one value."""
    types: dict[Any, Any] = {
        str: pyarrow.string(),
        int: pyarrow.int64(),
        bool: pyarrow.bool_(),
        float: pyarrow.float64(),
        float | None: pyarrow.float64(),
    }
    columns = {key: pyarrow.field(key, types[str], nullable=False) for key in _KEYS}
    for field in msgspec.structs.fields(TABLES[name]):
        column = types.get(field.type)
        if column is not None:
            nullable = field.type == float | None
            columns[field.name] = pyarrow.field(field.name, column, nullable=nullable)
    return pyarrow.schema(list(columns.values()))


def _import_pyarrow(place: str) -> Any:
    """The package, with what reads and writes files."""
    try:
        importlib.import_module("pyarrow.parquet")
    except ImportError:
        hint = "install it: pip install 'lamina-context[replay]'"
        raise BadInput("the package pyarrow is missing", place=place, hint=hint) from None
    return importlib.import_module("pyarrow")
