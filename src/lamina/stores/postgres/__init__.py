"""Conversations in PostgreSQL, for many processes on many machines. Start reading in `store`."""

from __future__ import annotations

try:
    import psycopg as psycopg
except ImportError as error:
    raise ImportError("the PostgreSQL store needs psycopg: pip install 'lamina-context[postgres]'") from error

from lamina.stores.postgres.connections import ConnectionLimits
from lamina.stores.postgres.store import PostgresStore, open_postgres

__all__ = ["ConnectionLimits", "PostgresStore", "open_postgres"]
