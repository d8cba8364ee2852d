"""Where conversations live: memory, SQLite, files, PostgreSQL, and encryption around any of them."""

from typing import TYPE_CHECKING

from lamina._lazy_names import name_lazily

if TYPE_CHECKING:
    from lamina.stores.address import open_store
    from lamina.stores.files import FilesStore, open_files
    from lamina.stores.memory import MemoryStore
    from lamina.stores.paging import copy_conversations
    from lamina.stores.port import ListedConversation, Once, Record, RecordPage, Store, StoredHead, Where
    from lamina.stores.postgres import ConnectionLimits, PostgresStore, open_postgres
    from lamina.stores.sqlite import SqliteStore, WalResetRisk, open_sqlite

__all__ = [
    "ConnectionLimits",
    "FilesStore",
    "ListedConversation",
    "MemoryStore",
    "Once",
    "PostgresStore",
    "Record",
    "RecordPage",
    "SqliteStore",
    "Store",
    "StoredHead",
    "WalResetRisk",
    "Where",
    "copy_conversations",
    "open_files",
    "open_postgres",
    "open_sqlite",
    "open_store",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = name_lazily(
        __name__,
        {
            "lamina.stores.address": "open_store",
            "lamina.stores.paging": "copy_conversations",
            "lamina.stores.files": "FilesStore open_files",
            "lamina.stores.memory": "MemoryStore",
            "lamina.stores.port": "ListedConversation Once Record RecordPage Store StoredHead Where",
            "lamina.stores.postgres": "ConnectionLimits PostgresStore open_postgres",
            "lamina.stores.sqlite": "SqliteStore WalResetRisk open_sqlite",
        },
    )
