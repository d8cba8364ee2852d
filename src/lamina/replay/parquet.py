"""Writes what a replay found as Parquet tables, for DuckDB, polars, pandas or Spark.

    figures/outcomes/month=2026-11/000003.parquet    the rows of part 3 whose sessions began in November

    outcomes     a session under one policy, window and cache
    reported     what the records say of a session
    settings     what a session would have cost with each setting of `lamina run`
    lost_caches  a call that read less than three quarters of what it could
    unreadable   a line or a file that was skipped

A table has the fields of its struct as columns, without those that are lists. Before them stand the file, the
id of the session, its name, and the day on which it began. Rows are written a part at a time, so that memory
does not grow with the replay.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from lamina.caches.prices import WorkingCost
from lamina.conversations.lost_caches import LostCache
from lamina.errors import BadInput
from lamina.replay.account_sums import group_by
from lamina.replay.runs import TraceReplay
from lamina.replay.values import ReplayOutcome, Reported, UnreadableLine

TABLES: dict[str, type[msgspec.Struct]] = {
    "outcomes": ReplayOutcome,
    "reported": Reported,
    "settings": WorkingCost,
    "lost_caches": LostCache,
    "unreadable": UnreadableLine,
}

UNKNOWN_DAY = ""

Row = dict[str, Any]
Tables = dict[str, list[Row]]

_KEYS = ("file", "session", "trace", "day")


ROWS_OF_PART = 20_000
"""A part ends with the file after which it has so many rows."""

_NO_MONTH = "__HIVE_DEFAULT_PARTITION__"
"""What DuckDB, Spark and pyarrow read as a month that is not known."""


@contextlib.contextmanager
def open_tables(folder: str) -> Iterator[TableWriter]:
    """New tables in this folder. After an error, what was added so far is there."""
    path = Path(folder)
    pyarrow = import_pyarrow("--parquet")
    if any((path / table).exists() for table in TABLES):
        hint = "name another folder, or delete this one"
        raise BadInput("it has tables already", place=folder, hint=hint)
    tables = TableWriter(pyarrow, path)
    try:
        yield tables
    finally:
        tables.write_part()


class TableWriter:
    """State: the rows of the next part, and its number."""

    def __init__(self, pyarrow: Any, folder: Path) -> None:
        self._pyarrow = pyarrow
        self._folder = folder
        self._rows: Tables = {name: [] for name in TABLES}
        self._part = 1

    def add(self, file: str, replays: Iterable[TraceReplay]) -> None:
        """The rows of one file. They are in memory until their part is full."""
        for trace_replay in replays:
            for table, row in write_rows(trace_replay, file):
                self._rows[table].append(row)
        if sum(map(len, self._rows.values())) >= ROWS_OF_PART:
            self.write_part()

    def write_part(self) -> None:
        """Write the rows in memory as the next part."""
        try:
            for table, rows in self._rows.items():
                self._write_table(table, rows)
        except OSError as error:
            problem = f"it cannot be written: {error.strerror}"
            raise BadInput(problem, place=str(self._folder), hint="check folder and rights") from None
        self._rows = {name: [] for name in TABLES}
        self._part += 1

    def _write_table(self, table: str, rows: Sequence[Row]) -> None:
        """Write the rows of one part, those of each month into a file of its own."""
        schema = make_schema(self._pyarrow, table)
        for month, rows_of_month in group_by(rows, lambda row: row["day"][:7] or _NO_MONTH).items():
            path = self._folder / table / f"month={month}" / f"{self._part:06}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            columns = [{name: row[name] for name in schema.names} for row in rows_of_month]
            content = self._pyarrow.Table.from_pylist(columns, schema=schema)
            self._pyarrow.parquet.write_table(content, path, compression="zstd")


def session_id(source: str, place: str, trace: str) -> str:
    """An id for a session that can stand in an address. The inspector has the same."""
    words = f"{source}\0{place}\0{trace}"
    return hashlib.sha256(words.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def write_rows(trace_replay: TraceReplay, file: str) -> Iterator[tuple[str, Row]]:
    """The rows of one session, each with the name of its table."""
    keys: Row = dict.fromkeys(_KEYS, "")
    keys["file"] = file
    if trace_replay.damaged is not None:
        yield "unreadable", keys | msgspec.structs.asdict(trace_replay.damaged)
    reported = trace_replay.reported
    if reported is None:
        return
    keys["session"] = session_id(reported.source, reported.place, reported.trace)
    keys["trace"] = reported.trace
    keys["day"] = day_of(reported.began)
    yield "reported", keys | msgspec.structs.asdict(reported)
    for outcome in trace_replay.outcomes:
        yield "outcomes", keys | msgspec.structs.asdict(outcome)
    for cost in reported.by_setting:
        yield "settings", keys | msgspec.structs.asdict(cost)
    for lost in reported.lost:
        yield "lost_caches", keys | msgspec.structs.asdict(lost)


def day_of(moment: float | None) -> str:
    """The day of a moment in UTC, such as 2026-11-01; "" if it is not known."""
    if moment is None:
        return UNKNOWN_DAY
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d}"


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


def import_pyarrow(place: str) -> Any:
    """The package, with what reads and writes files."""
    try:
        importlib.import_module("pyarrow.parquet")
    except ImportError:
        hint = "install it: pip install 'lamina-context[replay]'"
        raise BadInput("the package pyarrow is missing", place=place, hint=hint) from None
    return importlib.import_module("pyarrow")
