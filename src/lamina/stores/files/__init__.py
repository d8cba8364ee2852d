"""A folder of JSON files, one for each record: to be looked at, copied and kept without a database.

    root/WORKSPACE/CONVERSATION/20250824T163625123Z_0000_user.json

`store` is the port, `shelf` the folder of one conversation, `write` what makes a group of files all or
nothing, `sheet` the file of one record, `names` the folders' names, `disk` the writes and the lock.
"""

from lamina.stores.files.store import FilesStore, open_files

__all__ = ["FilesStore", "open_files"]
