"""What a process remembers of the words that it read, whoever wrote them.

Every text repeats the words of others, and what a word says depends on that word alone. So what was read of
it is kept for the next text. A process keeps short words only, never a sentence or a file in Base64: neither
its memory nor the privacy of what it read may depend on who sends what.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import Generic, TypeVar

MOST_KNOWN = 20_000
"""Words that are remembered; the one that was not met for longest goes first."""

Reading = TypeVar("Reading")


class KnownWords(Generic[Reading]):
    """Reads words with `read`, those of at most `longest` characters once.

    `read_once` is for callers that have bounded their words.
    """

    def __init__(self, read: Callable[[str], Reading], *, longest: int) -> None:
        self._read = read
        self._longest = longest
        self.read_once = lru_cache(maxsize=MOST_KNOWN)(read)

    def read_all(self, words: Collection[str]) -> Iterable[Reading]:
        """What each of these words says, in their order."""
        if max(map(len, words), default=0) <= self._longest:
            return map(self.read_once, words)
        return map(self.read, words)

    def read(self, word: str) -> Reading:
        """What a word says."""
        if len(word) <= self._longest:
            return self.read_once(word)
        return self._read(word)
