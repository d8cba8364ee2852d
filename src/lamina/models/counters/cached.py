"""Counts that are remembered by content, for counters that are slow: a bounded memo of one process.

A text is known by its SHA-256, so what was counted is not kept alive. Forgetting costs time and never
changes a count. Two threads may count the same text twice; they cannot tear the memo.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from threading import Lock

MOST = 65_536
"""Counts that are kept, the least recently used forgotten first."""


class CachedCounter:
    """`count`, asked once for each text."""

    def __init__(self, count: Callable[[str], int], *, most: int = MOST) -> None:
        self._count, self._most = count, most
        self._known: OrderedDict[bytes, int] = OrderedDict()
        self._lock = Lock()

    def __call__(self, text: str) -> int:
        if not text:
            return 0
        key = sha256(text.encode("utf-8", "surrogatepass")).digest()
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                return known
        counted = self._count(text)
        with self._lock:
            self._known[key] = counted
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return counted

    def __len__(self) -> int:
        return len(self._known)
