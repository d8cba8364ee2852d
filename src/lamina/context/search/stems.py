"""The stems of words, as the database of an index makes them: `retrying` and `retries` have the stem `retri`.

A database is asked for many words at once, and only for words that it was not asked for lately.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Generic, TypeVar

Stem = TypeVar("Stem")

MOST_STEMS = 100_000
"""Words whose stems are remembered."""


class RememberedStems(Generic[Stem]):
    """The stem of each word. `make_stems` returns those of words that are not remembered."""

    def __init__(self, make_stems: Callable[[Sequence[str]], Mapping[str, Stem]]) -> None:
        self._make_stems = make_stems
        self._stems: dict[str, Stem] = {}

    def learn(self, words: Collection[str]) -> None:
        """Have the stems of all these words made that are not remembered yet."""
        if len(self._stems) > MOST_STEMS:
            self._stems.clear()
        missing = [word for word in words if word not in self._stems]
        if missing:
            self._stems.update(self._make_stems(missing))

    def __getitem__(self, word: str) -> Stem:
        return self._stems[word]
