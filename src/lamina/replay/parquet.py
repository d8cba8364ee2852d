"""An account as Parquet tables, written while the replay runs: for DuckDB, polars, pandas or Spark.

    with open_tables("figures/") as tables:
        replay(traces, policies=["lamina"], windows=[64_000], progress=tables.add)

A table has the fields of its struct as columns, without those that are lists. Rows are in the order of the
traces, and leave memory a thousand at a time. A file gets its name when it is whole.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from lamina.errors import BadInput
from lamina.replay.runs import TraceReplay
from lamina.replay.values import LostCache, ReplayOutcome, Reported, UnreadableLine

ROWS_AT_ONCE = 1_000

TABLES: dict[str, type[msgspec.Struct]] = {
    "outcomes": ReplayOutcome,
    "reported": Reported,
    "lost_caches": LostCache,
    "unreadable": UnreadableLine,
}


@contextlib.contextmanager
def open_tables(folder: str | Path) -> Iterator[ParquetTables]:
    """Tables in this folder, which is made if it is not there. After an error there are no new files."""
    tables = ParquetTables(_import_pyarrow(), Path(folder))
    try:
        yield tables
    except BaseException:
        tables.discard()
        raise
    tables.finish()


class ParquetTables:
    """State: one file for each table, and the rows that are not in it yet."""

    def __init__(self, pyarrow: Any, folder: Path) -> None:
        self.paths = {name: folder / f"{name}.parquet" for name in TABLES}
        self._pyarrow = pyarrow
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._writers = {name: self._open(name) for name in TABLES}
        except OSError as error:
            hint = "check folder and rights"
            raise BadInput(f"it cannot be written: {error.strerror}", place=str(folder), hint=hint) from None
        self._rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}

    def add(self, trace_replay: TraceReplay) -> None:
        """The rows of one trace.

        A row leaves memory when its table has a thousand of them.
        """
        self._rows["outcomes"] += map(msgspec.structs.asdict, trace_replay.outcomes)
        reported = trace_replay.reported
        if reported is not None:
            self._rows["reported"].append(msgspec.structs.asdict(reported))
            for lost_cache in reported.lost:
                self._rows["lost_caches"].append(
                    {"trace": reported.trace, **msgspec.structs.asdict(lost_cache)}
                )
        if trace_replay.damaged is not None:
            self._rows["unreadable"].append(msgspec.structs.asdict(trace_replay.damaged))
        for name, rows in self._rows.items():
            if len(rows) >= ROWS_AT_ONCE:
                self._write(name)

    def finish(self) -> None:
        for name, writer in self._writers.items():
            self._write(name)
            writer.close()
            self._unfinished(name).replace(self.paths[name])

    def discard(self) -> None:
        for name, writer in self._writers.items():
            writer.close()
            self._unfinished(name).unlink(missing_ok=True)

    def _open(self, name: str) -> Any:
        schema = self._pyarrow.schema(list(_columns(self._pyarrow, name)))
        return self._pyarrow.parquet.ParquetWriter(self._unfinished(name), schema, compression="zstd")

    def _write(self, name: str) -> None:
        """Write the rows of a table that wait in memory. Fields that are lists have no column."""
        writer = self._writers[name]
        rows = [{column: row[column] for column in writer.schema.names} for row in self._rows[name]]
        if rows:
            writer.write_table(self._pyarrow.Table.from_pylist(rows, schema=writer.schema))
        self._rows[name].clear()

    def _unfinished(self, name: str) -> Path:
        return self.paths[name].with_suffix(".parquet.part")


def _columns(pyarrow: Any, name: str) -> Iterator[Any]:
    """The columns of a table: each field of its struct that holds one value.

    A lost cache has no field for its trace, so its table gets one.
    """
    types = {
        "str": pyarrow.string(),
        "int": pyarrow.int64(),
        "bool": pyarrow.bool_(),
        "float": pyarrow.float64(),
        "float | None": pyarrow.float64(),
    }
    if name == "lost_caches":
        yield pyarrow.field("trace", types["str"], nullable=False)
    for field in msgspec.structs.fields(TABLES[name]):
        annotation = TABLES[name].__annotations__[field.name]
        if annotation in types:
            yield pyarrow.field(field.encode_name, types[annotation], nullable="None" in annotation)


def _import_pyarrow() -> Any:
    try:
        importlib.import_module("pyarrow.parquet")
    except ImportError:
        hint = "install it: pip install 'lamina-context[parquet]'"
        raise BadInput("the package pyarrow is missing", place="--parquet", hint=hint) from None
    return importlib.import_module("pyarrow")
