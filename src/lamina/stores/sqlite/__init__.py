"""Conversations in one SQLite file: the default store. Start reading in `store`."""

from __future__ import annotations

from lamina.stores.sqlite.store import SqliteStore, open_sqlite
from lamina.stores.sqlite.wal_reset import WalResetRisk

__all__ = ["SqliteStore", "WalResetRisk", "open_sqlite"]
