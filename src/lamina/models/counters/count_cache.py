"""Remembers counts by content, for counters that are slow: a bounded cache of one process.

A text is identified by its SHA-256, so the cache keeps no text alive. Forgetting costs time and never
changes a count. Two threads may count the same text twice; they cannot damage the cache.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from threading import Lock

MOST = 65_536
"""Counts that are remembered; the least recently used one is forgotten first."""


class CachedCounter:
    """Calls `count` once for each text."""

    def __init__(self, count: Callable[[str], int], *, most: int = MOST) -> None:
        self._count = count
        self._most = most
        self._counts: OrderedDict[bytes, int] = OrderedDict()
        self._lock = Lock()

    def __call__(self, text: str) -> int:
        if not text:
            return 0
        key = sha256(text.encode("utf-8", "surrogatepass")).digest()
        with self._lock:
            cached_count = self._counts.get(key)
            if cached_count is not None:
                self._counts.move_to_end(key)
                return cached_count
        # Counting may be slow, so it happens outside the lock.
        count = self._count(text)
        with self._lock:
            self._counts[key] = count
            while len(self._counts) > self._most:
                self._counts.popitem(last=False)
        return count

    def __len__(self) -> int:
        return len(self._counts)
