"""The words of the chunks in one FTS5 table, scored by BM25 from its lists of rows.

FTS5's own `rank` looks up the length of every row that it scores, one by one. Here the length of a chunk, in
steps of 4 %, stands in the low bits of its row's number: the list of a word's rows is all that is read, and
it comes as one value. It knows numbers of chunks and words, not what is left out of a question.
"""

from __future__ import annotations

import heapq
import math
import sqlite3
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence

import msgspec

from lamina.context.search.words import expression, split

TABLES = """
CREATE VIRTUAL TABLE words USING fts5 (body, tokenize = 'porter unicode61');
CREATE TABLE totals (chunks INTEGER NOT NULL, words INTEGER NOT NULL);
INSERT INTO totals VALUES (0, 0);
"""
_PASSING = """
CREATE VIRTUAL TABLE temp.places USING fts5vocab (main, words, instance);
CREATE VIRTUAL TABLE temp.stemmed USING fts5 (body, content = '', tokenize = 'porter unicode61');
CREATE VIRTUAL TABLE temp.stems USING fts5vocab (temp, stemmed, instance);
"""
_COUNT = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)"
_ROWS = "SELECT json_group_array(doc) FROM places WHERE term = ?"
_ROWS_OF = "SELECT rowid FROM words WHERE rowid BETWEEN ? AND ?"
_GROWN = "UPDATE totals SET chunks = chunks + ?, words = words + ?"

STEMS = 100_000
"""Stems that are remembered."""

K1, B = 1.2, 0.75

_BITS = 8
_LOW = (1 << _BITS) - 1
_STEP = 1.04
_SIZES = tuple(round(_STEP**step) for step in range(_LOW + 1))

_numbers = msgspec.json.Decoder(list[int])


class Postings:
    """The words of chunks by their numbers. For one thread at a time; the caller begins and commits."""

    def __init__(self, link: sqlite3.Connection) -> None:
        self._link = link
        self._stems: dict[str, tuple[str, ...]] = {}
        link.execute("PRAGMA temp_store = MEMORY")
        link.executescript(_PASSING)

    def add(self, number: int, text: str) -> None:
        """Adds the words of a chunk."""
        low = _low(len(split(text)))
        self._link.execute("INSERT INTO words (rowid, body) VALUES (?, ?)", (number << _BITS | low, text))
        self._link.execute(_GROWN, (1, _SIZES[low]))

    def drop(self, numbers: Iterable[int]) -> None:
        """Forgets chunks."""
        for number in numbers:
            first = number << _BITS
            for (row,) in self._link.execute(_ROWS_OF, (first, first | _LOW)).fetchall():
                self._link.execute("DELETE FROM words WHERE rowid = ?", (row,))
                self._link.execute(_GROWN, (-1, -_SIZES[row & _LOW]))

    def merge(self) -> None:
        """Writes the lists of words anew: until then they hold the words of what was dropped."""
        self._link.execute("INSERT INTO words (words) VALUES ('optimize')")

    def counts(self, words: Sequence[str], most: int) -> dict[str, int]:
        """How many chunks have each word, counted up to `most`."""
        return {word: self._link.execute(_COUNT, (expression([word]), most)).fetchone()[0] for word in words}

    def matches(
        self, words: Mapping[str, int], most: int, among: Container[int] | None
    ) -> list[tuple[int, float]]:
        """The best chunks with any of the words, more is better; with each word its count."""
        chunks, total = self._link.execute("SELECT chunks, words FROM totals").fetchone()
        mean = max(total / max(chunks, 1), 1.0)
        norms = [K1 * (1 - B + B * size / mean) for size in _SIZES]
        self._learn(words)
        scores: dict[int, float] = {}
        for word, amount in words.items():
            weight = (K1 + 1) * max(math.log((chunks - amount + 0.5) / (amount + 0.5)), 1e-6)
            for row, times in self._times(self._stems[word]).items():
                scores[row] = scores.get(row, 0.0) + weight * times / (times + norms[row & _LOW])
        if among is not None:
            scores = {row: score for row, score in scores.items() if row >> _BITS in among}
        return [(row >> _BITS, score) for row, score in _best(scores, most)]

    def _times(self, stems: Iterable[str]) -> Counter[int]:
        """How often each row has one of these."""
        times: Counter[int] = Counter()
        for stem in stems:
            times.update(_numbers.decode(self._link.execute(_ROWS, (stem,)).fetchone()[0]))
        return times

    def _learn(self, words: Collection[str]) -> None:
        """Finds the stems that are not known yet, as FTS5 makes them."""
        if len(self._stems) > STEMS:
            self._stems.clear()
        missing = [word for word in words if word not in self._stems]
        if not missing:
            return
        self._link.executemany("INSERT INTO stemmed (rowid, body) VALUES (?, ?)", enumerate(missing))
        found: dict[int, list[str]] = {}
        for number, stem in self._link.execute("SELECT doc, term FROM stems"):
            found.setdefault(number, []).append(stem)
        self._link.execute("INSERT INTO stemmed (stemmed) VALUES ('delete-all')")
        self._stems |= {word: tuple(found.get(number, ())) for number, word in enumerate(missing)}


def _low(size: int) -> int:
    """The low bits of a row's number: which of the sizes is nearest."""
    return min(round(math.log(max(size, 1), _STEP)), _LOW)


def _best(scores: Mapping[int, float], most: int) -> list[tuple[int, float]]:
    """The highest scores; equal ones by age."""
    least = min(heapq.nlargest(most, scores.values()), default=0.0)
    kept = [(row, score) for row, score in scores.items() if score >= least]
    return sorted(kept, key=lambda pair: (-pair[1], pair[0]))[:most]
