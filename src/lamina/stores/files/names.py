"""Names of workspaces and conversations as names of folders, and back.

Only lower-case letters, digits, `-`, `_` and a dot inside a name stay as they are. So two names are two
folders also on a file system that does not distinguish `A` from `a`. A name that gets too long for a folder
becomes its hash; the name itself is then in the `.head` file of the folder.
"""

from __future__ import annotations

import hashlib
import string
from urllib.parse import unquote

LONGEST = 200
"""Bytes in the name of a folder. Most file systems allow 255; deleting a folder adds some to its name."""

_PLAIN_BYTES = frozenset((string.ascii_lowercase + string.digits + "-_.").encode())


def folder_name(name: str) -> str:
    """The folder of a workspace or conversation. It never begins with a dot and is never empty.

    Every byte that some file system treats in a special way is written as `%2f`. A name that is too long is
    hashed.
    """
    if not name:
        return "%"
    data = name.encode()
    folder = "".join(chr(byte) if byte in _PLAIN_BYTES else f"%{byte:02x}" for byte in data)
    # Names that begin with a dot are those of the store itself: `.head`, `.locks`, `.deleted.` and a name.
    if folder.startswith("."):
        folder = f"%2e{folder[1:]}"
    if len(folder) > LONGEST:
        return f"~{hashlib.sha256(data).hexdigest()}"
    return folder


def name_of(folder: str) -> str | None:
    """The name that `folder_name` turned into this folder; None if the folder's name is a hash."""
    if folder.startswith("~"):
        return None
    if folder == "%":
        return ""
    return unquote(folder, errors="strict")
