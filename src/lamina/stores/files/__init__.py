"""A folder of JSON files, one for each record: to look at, copy and archive without a database.

    root/WORKSPACE/CONVERSATION/20250824T163625123Z_0000_user.json

It is for one person who reads their conversations with `grep` and keeps them with `git` or `rsync`, and for
those who come from a system that stored them so. Each append waits for the disk several times, so whoever
serves many conversations uses SQLite or PostgreSQL.

`store` is the port, `conversation` reads and writes the folder of one conversation, `disk` has what the files
of records hold, writes single ones, and has the lock.
"""

from lamina.stores.files.store import FilesStore, open_files

__all__ = ["FilesStore", "open_files"]
