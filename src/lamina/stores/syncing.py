"""Waits until what was written is on the disk, and would still be there after a power cut."""

from __future__ import annotations

import os
from pathlib import Path


def sync_file(path: str | Path) -> None:
    """Wait until all bytes of a file are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last: what was written, moved and removed there.

    Only POSIX systems can open a folder for that.
    """
    if os.name == "posix":
        sync_file(folder)
