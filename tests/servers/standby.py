"""A streaming standby of a test server, which a primary waits for at each commit, until it is promoted."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.servers.postgres import PATIENCE, Server


@contextmanager
def run_standby(primary: Server) -> Iterator[Server]:
    """A copy of the primary that follows it. A commit on the primary is on the disks of both."""
    folder = Path(tempfile.mkdtemp(prefix="lamina-pg-"))
    primary.lend(folder)
    standby = primary.copy_to(folder)
    try:
        standby.start()
        with psycopg.connect(primary.url, autocommit=True) as connection:
            _wait_for_standby(connection)
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
        yield standby
    finally:
        standby.stop()
        shutil.rmtree(folder, ignore_errors=True)


def promote(standby: Server) -> None:
    """Make it the primary, and wait until it is."""
    with psycopg.connect(standby.url, autocommit=True) as connection:
        connection.execute("SELECT pg_promote(true)")


def url_of_both(one: Server, other: Server) -> str:
    """The address of whichever of the two takes writes now."""
    hosts = f"{one.folder},{other.folder}"
    return f"postgresql://lamina@/postgres?host={hosts}&target_session_attrs=read-write"


def _wait_for_standby(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    until = time.monotonic() + PATIENCE
    while (
        connection.execute("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'").fetchone() is None
    ):
        if time.monotonic() > until:
            raise RuntimeError("the standby does not follow")
        time.sleep(0.05)
