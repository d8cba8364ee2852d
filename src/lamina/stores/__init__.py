"""Where conversations live: memory, SQLite, files, PostgreSQL, and encryption around any of them."""
