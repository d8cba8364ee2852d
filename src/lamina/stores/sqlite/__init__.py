"""Conversations in one SQLite file: the default store. Start reading in `store`."""

from __future__ import annotations

from lamina.stores.sqlite.drivers import WalResetRisk
from lamina.stores.sqlite.store import SqliteStore, open_sqlite

__all__ = ["SqliteStore", "WalResetRisk", "open_sqlite"]
