"""What a process remembers of the words that it read, whoever wrote them.

Every text repeats the words of others, and what a word says depends on that word alone. So what was read of
it is kept for the next text. A process keeps short words only, never a sentence or a file in Base64: neither
its memory nor the privacy of what it read may depend on who sends what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

MOST_KNOWN = 20_000
"""Words that are remembered. When there are more, all are forgotten."""

Reading = TypeVar("Reading")


class KnownWords(dict[str, Reading]):
    """What `read` says of each word. Those of at most `longest` characters are read once.

    A dict with `__missing__` takes half the time of an `lru_cache`.
    """

    def __init__(self, read: Callable[[str], Reading], *, longest: int) -> None:
        super().__init__()
        self._read = read
        self._longest = longest

    def __missing__(self, word: str) -> Reading:
        reading = self._read(word)
        if len(word) <= self._longest:
            if len(self) >= MOST_KNOWN:
                self.clear()
            self[word] = reading
        return reading

    def read_all(self, words: Iterable[str]) -> Iterator[Reading]:
        """What each of these words says, in their order."""
        return map(self.__getitem__, words)
