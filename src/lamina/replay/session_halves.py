"""Parts sessions into two halves, one to learn from and one to check what was learned.

The digest of a session's id decides, so that the halves are the same each time and have nothing to do with
the order of the files.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256


def halve_sessions(ids: Iterable[str]) -> tuple[list[str], list[str]]:
    """The ids of both halves, each in the order of the digests. The first may have one more."""
    ordered = sorted(ids, key=lambda session: sha256(session.encode()).digest())
    return ordered[::2], ordered[1::2]
