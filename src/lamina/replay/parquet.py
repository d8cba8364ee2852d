"""Turns what a replay found into rows of Parquet tables, for DuckDB, polars, pandas or Spark, and back.

    outcomes     a session under one policy, window and cache
    reported     what the records say of a session
    settings     what a session would have cost with each setting of `lamina run`
    lost_caches  a call that read less than three quarters of what it could
    unreadable   a line or a file that was skipped

A table has the fields of its struct as columns, without those that are lists. Before them stand the file, the
id of the session, its name, and the day on which it began. `figures_folder` says where the files are.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterator
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, TypeVar

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

T = TypeVar("T")


def make_id(*words: str) -> str:
    """An id that can stand in an address. That of a session is made of its source, its place and its name."""
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogateescape")).hexdigest()[:12]


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


def read_rows(tables: Tables) -> Iterator[TraceReplay]:
    """The sessions that rows were written of, without their calls one by one."""
    by_session = {name: group_by(rows, itemgetter("session")) for name, rows in tables.items()}
    for row in tables.get("reported", ()):
        session = row["session"]

        def read(table: str, kind: type[T], session: str = session) -> tuple[T, ...]:
            rows = by_session.get(table, {}).get(session, ())
            return tuple(msgspec.convert(each, kind, strict=False) for each in rows)

        reported = msgspec.convert(row, Reported, strict=False)
        yield TraceReplay(
            reported=msgspec.structs.replace(
                reported, lost=read("lost_caches", LostCache), by_setting=read("settings", WorkingCost)
            ),
            outcomes=read("outcomes", ReplayOutcome),
        )
    for row in tables.get("unreadable", ()):
        yield TraceReplay(damaged=msgspec.convert(row, UnreadableLine))


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
