"""Deletes a workspace from plain and from partitioned tables, and plans a read of the store on both.

    python -m tools.scale_partitions [--kinds KIND...] [--conversations N] [--workspaces N] [--records N]

It fills a PostgreSQL server of its own with the tables of the store, once plain, once with a partition for
each workspace (`PARTITION BY LIST`), and once with 16 partitions that share the workspaces (`HASH`). Times
depend on the machine; the ratios between the three are what counts.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, LiteralString

import psycopg

from lamina.stores.postgres.store import TABLES
from tests.servers.postgres import Server, postgres

HASHED = 16
"""Partitions that share all workspaces."""

TABLE_NAMES = ("conversation", "record", "once")
PLANS = 200
"""How often each query is planned."""

READ: LiteralString = """
    WITH head AS (
        SELECT count, state, state_sum, sum FROM conversation
        WHERE workspace = %(workspace)s AND name = %(name)s
    )
    SELECT -1, count, state, state_sum, sum FROM head
    UNION ALL (
        SELECT seq, 0, body, sum, NULL FROM record
        WHERE workspace = %(workspace)s AND conversation = %(name)s AND seq >= 0 ORDER BY seq LIMIT 100
    )"""

Link = psycopg.Connection[Any]
Kind = Callable[[Link, int], None]


def main() -> None:
    options = _read_options()
    each = options.conversations // options.workspaces
    print(f"{options.workspaces} workspaces with {each:,} conversations of {options.records} records each")
    with postgres() as server:
        print(server.version)
        for name in options.kinds:
            print(f"{name}: {measure_kind(server, name, options)}", flush=True)


def measure_kind(server: Server, name: str, options: argparse.Namespace) -> str:
    """Make, fill and measure the tables of one kind, in a database of their own."""
    with psycopg.connect(server.url, autocommit=True) as link:
        link.execute("ALTER SYSTEM SET autovacuum = off")  # its work would be counted with that of a deletion
        link.execute("SELECT pg_reload_conf()")
        link.execute(f"CREATE DATABASE {name}_tables")
        with psycopg.connect(
            server.url.replace("/postgres?", f"/{name}_tables?"), autocommit=True
        ) as own_link:
            KINDS[name](own_link, options.workspaces)
            _fill(own_link, options)
            report = _measure(own_link, name)
        link.execute(f"DROP DATABASE {name}_tables")
    return report


def make_plain(link: Link, _: int) -> None:
    for statement in TABLES:
        link.execute(statement)


def make_listed(link: Link, workspaces: int) -> None:
    _make_partitioned(link, "LIST")
    for table in TABLE_NAMES:
        for number in range(workspaces):
            values = f"FOR VALUES IN ('w{number}')"
            link.execute(f"CREATE TABLE {table}_w{number} PARTITION OF {table} {values}")


def make_hashed(link: Link, _: int) -> None:
    _make_partitioned(link, "HASH")
    for table in TABLE_NAMES:
        for number in range(HASHED):
            values = f"FOR VALUES WITH (MODULUS {HASHED}, REMAINDER {number})"
            link.execute(f"CREATE TABLE {table}_{number} PARTITION OF {table} {values}")


KINDS: dict[str, Kind] = {"plain": make_plain, "list": make_listed, "hash": make_hashed}


def _make_partitioned(link: Link, method: str) -> None:
    for statement in TABLES:
        link.execute(f"{statement} PARTITION BY {method} (workspace)")


def _fill(link: Link, options: argparse.Namespace) -> None:
    values = {
        "workspaces": options.workspaces,
        "each": options.conversations // options.workspaces,
        "records": options.records,
        "bytes": options.bytes,
    }
    link.execute(
        "INSERT INTO conversation SELECT 'w' || w, 'conversation-' || c, %(records)s, "
        "decode(repeat('ab', 500), 'hex'), 1, 1 "
        "FROM generate_series(0, %(workspaces)s - 1) w, generate_series(1, %(each)s) c",
        values,
    )
    link.execute(
        "INSERT INTO record SELECT 'w' || w, 'conversation-' || c, r - 1, "
        "decode(repeat(md5(w || ' ' || c || ' ' || r), %(bytes)s / 16), 'hex'), 1 "
        "FROM generate_series(0, %(workspaces)s - 1) w, generate_series(1, %(each)s) c, "
        "generate_series(1, %(records)s) r",
        values,
    )
    link.execute(
        "INSERT INTO once SELECT 'w' || w, 'conversation-' || c, sha256('key'), sha256('digest'), 1, 1 "
        "FROM generate_series(0, %(workspaces)s - 1) w, generate_series(1, %(each)s) c",
        values,
    )
    link.execute("VACUUM ANALYZE")
    link.execute("CHECKPOINT")


def _measure(link: Link, kind: str) -> str:
    planning = _plan_milliseconds(link)
    size = _read_number(link, "SELECT pg_database_size(current_database())")
    before = _read_number(link, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
    begun = time.monotonic()
    for table in TABLE_NAMES:
        if kind == "list":
            link.execute(f"DROP TABLE {table}_w0")
        else:
            link.execute(f"DELETE FROM {table} WHERE workspace = 'w0'")  # noqa: S608 - names of this file
    seconds = time.monotonic() - begun
    log = _read_number(link, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn") - before
    begun = time.monotonic()
    link.execute("VACUUM conversation, record, once")
    vacuum = time.monotonic() - begun
    return (
        f"{size / 1e9:.1f} GB; planning a read takes {planning:.2f} ms; deleting a workspace {seconds:.2f} s "
        f"and {log / 1e6:.1f} MB of log, vacuum after it {vacuum:.1f} s"
    )


def _plan_milliseconds(link: Link) -> float:
    """The median over all plans of one read, each of another conversation."""
    times = []
    for number in range(PLANS):
        values = {"workspace": "w1", "name": f"conversation-{number + 1}"}
        rows = link.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + READ, values, prepare=False).fetchone()
        times.append(float(rows[0][0]["Planning Time"]) if rows else 0.0)
    return statistics.median(times)


def _read_number(link: Link, query: LiteralString) -> int:
    row = link.execute(query).fetchone()
    return int(row[0]) if row else 0


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--kinds", nargs="+", choices=[*KINDS], default=[*KINDS])
    parser.add_argument("--conversations", type=int, default=1_000_000)
    parser.add_argument("--workspaces", type=int, default=10)
    parser.add_argument("--records", type=int, default=3, help="of each conversation")
    parser.add_argument("--bytes", type=int, default=400, help="of each record")
    return parser.parse_args()


if __name__ == "__main__":
    main()
