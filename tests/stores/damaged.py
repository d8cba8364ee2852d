"""Databases of lamina's stores, with what a damaged disk gives: rows that nobody wrote."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

import psycopg

from lamina.stores import Once, Where, open_postgres, open_sqlite
from lamina.stores.checksums import Checksums
from tests.servers.postgres import shared

HERE, OTHER, THIRD = Where("w", "here"), Where("w", "other"), Where("x", "third")
ONCE = Once(key="turn", digest=b"digest")


class Damaged:
    """A store of four records in one conversation, and of some in others, whose rows a test changes.

    The statements of a test name rows: `{zero}` and `{one}` are the first records of the first conversation,
    `{two}` is the first of the second. `{bytes}` is a body that nobody wrote.
    """

    names: dict[str, str] = {  # noqa: RUF012 - nobody changes it
        "zero": "seq = 0 AND conversation = 'here'",
        "one": "seq = 1 AND conversation = 'here'",
        "two": "seq = 0 AND conversation = 'other'",
    }

    def open(self) -> AbstractAsyncContextManager[Any]:
        raise NotImplementedError

    def run(self, statement: str) -> list[Any]:
        """Run a statement on the tables, beside the store, and return its rows."""
        raise NotImplementedError

    def change(self, statement: str) -> None:
        self.run(statement.format(**self.names))

    async def fill(self) -> None:
        async with self.open() as store:
            await store.append(HERE, [b"zero", b"one"], once=ONCE, state=b"before")
            await store.append(HERE, [b"two", b"three"], state=b"state")
            await store.append(OTHER, [b"a", b"b"], state=b"of another")
            await store.append(THIRD, [b"x"])

    def set_head_back(self, count: int) -> None:
        """As after a write of one page that the disk acknowledged and lost: a head that was right once."""
        sums = Checksums(HERE)
        state_sum = sums.state(b"before")
        head_sum = sums.head(count, state_sum)
        self.change(
            f"UPDATE conversation SET count = {count}, state = {{before}}, "  # noqa: S608 - the tests' own tables
            f"state_sum = {state_sum}, sum = {head_sum} WHERE name = 'here'"
        )


class DamagedSqlite(Damaged):
    names = Damaged.names | {
        "bytes": "x'7a65726f21'",
        "before": "x'6265666f7265'",
        "more": "'w', 'here', 4, x'6d6f7265', 0",
    }

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> AbstractAsyncContextManager[Any]:
        return open_sqlite(self.path)

    def run(self, statement: str) -> list[Any]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as link:
            return link.execute(statement).fetchall()


class DamagedPostgres(Damaged):
    names = Damaged.names | {
        "bytes": "'zero!'",
        "before": "'before'",
        "more": "'w', 'here', 4, 'more', 0",
    }

    def __init__(self) -> None:
        self.schema = f"damage_{uuid.uuid4().hex}"

    def open(self) -> AbstractAsyncContextManager[Any]:
        return open_postgres(shared().url, schema=self.schema)

    def run(self, statement: str) -> list[Any]:
        with psycopg.connect(shared().url, autocommit=True) as link:
            link.execute(f'SET search_path TO "{self.schema}"')
            link.execute(statement.encode())
        return []

    def drop(self) -> None:
        self.run(f'DROP SCHEMA IF EXISTS "{self.schema}" CASCADE')
