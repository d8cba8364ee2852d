"""The table of requests: every sum that lamina prints is a query of it.

The gateway's log, the records of a store and the logs of clients fill it with rows (`lamina.costs.requests`).
It is a table of SQLite, in memory. `save` writes it to a file for sqlite3, DuckDB, pandas or datasette:

    select conversation, sum(dollars), sum(dollars_without) from requests group by conversation;
"""

from __future__ import annotations

import importlib
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from lamina.conversations.costs import NO_USAGE, find_unpriced_tiers
from lamina.costs.requests import Request
from lamina.errors import BadInput
from lamina.models.facts import AS_OF

COLUMNS = Request.__struct_fields__

_CREATE = " ".join(("create table requests (", ", ".join(COLUMNS), ", unique (answer))"))
# The same answer stands in the logs of a session and of one that was resumed from it. It was paid once.
_INSERT = " ".join(("insert or ignore into requests values (", ", ".join("?" * len(COLUMNS)), ")"))
_LOSS = ("cause", "by", "why", "place", "advice", "lost")
_NOTE_LOSS = """
update requests set cause = ?, lost_by = ?, why = ?, place = ?, advice = ?, lost = ?, lost_dollars = ?
where rowid = (
    select rowid from requests
    where conversation = coalesce(?, conversation) and read = coalesce(?, read)
    order by rowid desc limit 1
)
"""
_DROP_RECORDED = """
delete from requests where door = '' and client_session in (
    select client_session from requests where client_session != '' group by client_session
    having count(*) filter (where door = '') <= count(*) filter (where door != '')
)
"""
_TABLES = "select name from sqlite_master where type = 'table'"
PARQUET = ".parquet"


class MoneySum(msgspec.Struct, frozen=True, kw_only=True):
    """A sum in USD. If some of it is not known, `reason` says why, and there is no `amount`.

    `tiers` are those at which calls were served and whose prices are not known.
    """

    least: float = 0.0
    reason: str = ""
    tiers: tuple[str, ...] = ()

    @property
    def amount(self) -> float | None:
        if self.reason:
            return None
        return self.least

    def __str__(self) -> str:
        if self.reason and not self.least:
            return f"not known: {self.reason}"
        words = f"${self.least:.4f} (prices of {AS_OF}"
        if self.tiers:
            words += f"; {', '.join(self.tiers)} at standard prices"
        if self.reason:
            return f"at least {words}): {self.reason}"
        return f"{words})"


class RequestTable:
    """State: the rows. A `where` is a condition in SQL over their columns, and no text of a stranger."""

    def __init__(self) -> None:
        # The gateway of `lamina run` is read by a thread of its own, and its sums by another.
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.execute(_CREATE)
        self._database.row_factory = sqlite3.Row

    def add(self, requests: Iterable[Request]) -> None:
        self._database.executemany(_INSERT, map(msgspec.structs.astuple, requests))

    def query(self, words: str, *values: Any) -> list[dict[str, Any]]:
        """The rows that a query selects, by the names of their columns."""
        return [dict(row) for row in self._database.execute(words, values)]

    def select(self, what: str, where: str = "true", rest: str = "") -> list[dict[str, Any]]:
        """What a query finds in the rows of a condition; `rest` groups, orders and limits it."""
        words = ["select", what, "from requests where", where, rest]
        return self.query(" ".join(words))

    def sum(self, what: str, where: str = "true") -> Any:
        """One figure: `sum("count(*)", "is_cut")` is how many requests were cut. None is 0."""
        [row] = self.select(f"{what} as figure", where)
        return row["figure"] or 0

    def sum_money(self, column: str = "dollars", where: str = "true") -> MoneySum:
        """What these requests cost: `dollars`, `dollars_uncut` or `dollars_without`."""
        reason = ""
        for row in self.select("tokens, model", f"{where} and {column} is null", "order by rowid limit 1"):
            reason = NO_USAGE
            if row["tokens"] is not None:
                reason = f"no price of {row['model']!r} is known"
        served = self.select("distinct tier, model, dialect", f"{where} and tier != ''")
        tiers = {name for row in served for name in find_unpriced_tiers(**row)}
        least = self.sum(f"total({column})", where)
        return MoneySum(least=least, reason=reason, tiers=tuple(sorted(tiers)))

    def explain_too_long(self, where: str = "true") -> str:
        """Which request would not have fitted the window of its model without lamina; "" if all would."""
        rows = self.select("whole, model", f"{where} and too_long", "order by rowid limit 1")
        if not rows:
            return ""
        [row] = rows
        return f"a request would have had {row['whole']:,} tokens, more than the window of {row['model']}"

    def drop_recorded(self) -> None:
        """Remove a client's own log of a conversation of which lamina has recorded at least as much."""
        self._database.execute(_DROP_RECORDED)

    def note_loss(self, event: Mapping[str, Any]) -> None:
        """Add what the gateway found out about a lost cache to the request that lost it."""
        values = [event.get(name) for name in _LOSS]
        values += [event.get(name) for name in ("price", "conversation", "cached")]
        self._database.execute(_NOTE_LOSS, values)

    def save(self, path: Path) -> None:
        """Write the table to a file: Parquet, if its name says so, else SQLite. An older one is replaced."""
        if path.suffix == PARQUET:
            _write_parquet(self.query("select * from requests"), path)
            return
        with closing(sqlite3.connect(path)) as target:
            try:
                tables = [name for (name,) in target.execute(_TABLES)]
            except sqlite3.DatabaseError:
                tables = [""]
            if tables not in ([], ["requests"]):
                hint = "name a new file, or one that --table wrote"
                raise BadInput("it holds something else", place=str(path), hint=hint)
            self._database.commit()
            self._database.backup(target)


def _write_parquet(rows: list[dict[str, Any]], path: Path) -> None:
    try:
        arrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        hint = "install it: pip install 'lamina-context[cost]'"
        raise BadInput("the package pyarrow is missing", place="--table", hint=hint) from None
    part = path.with_suffix(".part")
    parquet.write_table(arrow.Table.from_pylist(rows), part)
    part.replace(path)
