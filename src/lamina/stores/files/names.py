"""Names of workspaces and conversations as names of folders: safe everywhere, and back again.

Only lower-case letters, digits, `-`, `_` and a dot inside stay as they are, so that two names are two
folders on a file system that does not tell `A` from `a`, too. A name that gets too long for a folder becomes
its hash; what it was stands inside the folder.
"""

from __future__ import annotations

import hashlib
import string
from urllib.parse import unquote

LONGEST = 200
"""Bytes in the name of a folder. Most file systems allow 255; some are added when it is deleted."""

_AS_IS = frozenset((string.ascii_lowercase + string.digits + "-_.").encode())


def folder_name(name: str) -> str:
    """The folder of a workspace or conversation. It never begins with a dot and is never empty."""
    plain = name.encode()
    text = "".join(chr(byte) if byte in _AS_IS else f"%{byte:02x}" for byte in plain) or "%"
    text = f"%2e{text[1:]}" if text.startswith(".") else text
    return text if len(text) <= LONGEST else f"~{hashlib.sha256(plain).hexdigest()}"


def name_of(folder: str) -> str | None:
    """What `folder_name` made this of; None if only the folder itself knows."""
    if folder.startswith("~"):
        return None
    return "" if folder == "%" else unquote(folder, errors="strict")
