"""Keeps the words of the chunks in one FTS5 table, and scores them by BM25 from its lists of rows.

FTS5's own `rank` looks up the length of every row that it scores, one by one. Here the low bits of a row's
number hold the length of its chunk, in steps of 4 %. So we read nothing but the list of a word's rows, and it
comes as one value. This module knows numbers of chunks and words. It does not choose the words of a query.
"""

from __future__ import annotations

import heapq
import math
import sqlite3
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

import msgspec

from lamina.context.search.words import RememberedStems, match_any, split_folded

TABLES = (
    "CREATE VIRTUAL TABLE words USING fts5 (body, tokenize = 'porter unicode61')",
    "CREATE TABLE totals (chunks INTEGER NOT NULL, words INTEGER NOT NULL)",
    "INSERT INTO totals VALUES (0, 0)",
)
_TEMPORARY_TABLES = """
CREATE VIRTUAL TABLE temp.places USING fts5vocab (main, words, instance);
CREATE VIRTUAL TABLE temp.stemmed USING fts5 (body, content = '', tokenize = 'porter unicode61');
CREATE VIRTUAL TABLE temp.stems USING fts5vocab (temp, stemmed, instance);
"""
_COUNT_MATCHES = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)"
_ROWS_WITH_STEM = "SELECT json_group_array(doc) FROM places WHERE term = ?"
_ROWS_OF_CHUNK = "SELECT rowid FROM words WHERE rowid BETWEEN ? AND ?"
_UPDATE_TOTALS = "UPDATE totals SET chunks = chunks + ?, words = words + ?"

K1 = 1.2
B = 0.75
"""The usual constants of BM25."""

_BITS = 8
_LOW = (1 << _BITS) - 1
_STEP = 1.04
_SIZES = tuple(round(_STEP**step) for step in range(_LOW + 1))
"""The length in words that each value of the low bits stands for."""

_decode_numbers = msgspec.json.Decoder(list[int]).decode


class Postings:
    """The words of chunks by their numbers. One thread uses it at a time. The caller begins and commits."""

    def __init__(self, link: sqlite3.Connection) -> None:
        self._link = link
        self._stems = RememberedStems(self._make_stems)
        link.execute("PRAGMA temp_store = MEMORY")
        link.executescript(_TEMPORARY_TABLES)

    def add(self, number: int, text: str) -> None:
        """Add the words of a chunk."""
        low = _nearest_size(len(split_folded(text)))
        row = number << _BITS | low
        self._link.execute("INSERT INTO words (rowid, body) VALUES (?, ?)", (row, text))
        self._link.execute(_UPDATE_TOTALS, (1, _SIZES[low]))

    def drop(self, numbers: Iterable[int]) -> None:
        """Remove the words of chunks."""
        for number in numbers:
            first = number << _BITS
            for (row,) in self._link.execute(_ROWS_OF_CHUNK, (first, first | _LOW)).fetchall():
                self._link.execute("DELETE FROM words WHERE rowid = ?", (row,))
                self._link.execute(_UPDATE_TOTALS, (-1, -_SIZES[row & _LOW]))

    def merge(self) -> None:
        """Rewrite the lists of words. Until then they hold the words of what was dropped."""
        self._link.execute("INSERT INTO words (words) VALUES ('optimize')")

    def counts(self, words: Sequence[str], most: int) -> dict[str, int]:
        """How many chunks have each word, counted up to `most`."""
        counts = {}
        for word in words:
            row = self._link.execute(_COUNT_MATCHES, (match_any([word]), most)).fetchone()
            counts[word] = row[0]
        return counts

    def matches(
        self, words: Mapping[str, int], most: int, among: Container[int] | None
    ) -> list[tuple[int, float]]:
        """The best chunks with any of the words; more is better. `words` has the count of each."""
        chunks, total = self._link.execute("SELECT chunks, words FROM totals").fetchone()
        mean = max(total / max(chunks, 1), 1.0)
        norms = [K1 * (1 - B + B * size / mean) for size in _SIZES]
        self._stems.learn(words)
        scores: dict[int, float] = {}
        for word, amount in words.items():
            # a word that most chunks have would weigh less than nothing
            weight = (K1 + 1) * max(math.log((chunks - amount + 0.5) / (amount + 0.5)), 1e-6)
            for row, times in self._count_in_rows(self._stems[word]).items():
                scores[row] = scores.get(row, 0.0) + weight * times / (times + norms[row & _LOW])
        if among is not None:
            scores = {row: score for row, score in scores.items() if row >> _BITS in among}
        return [(row >> _BITS, score) for row, score in _choose_best(scores, most)]

    def _count_in_rows(self, stems: Iterable[str]) -> Counter[int]:
        times: Counter[int] = Counter()
        for stem in stems:
            rows = self._link.execute(_ROWS_WITH_STEM, (stem,)).fetchone()[0]
            times.update(_decode_numbers(rows))
        return times

    def _make_stems(self, words: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Have FTS5 make the stems of words. It may split a word, so that it has several."""
        self._link.executemany("INSERT INTO stemmed (rowid, body) VALUES (?, ?)", enumerate(words))
        stems: dict[str, tuple[str, ...]] = dict.fromkeys(words, ())
        for number, stem in self._link.execute("SELECT doc, term FROM stems"):
            stems[words[number]] += (stem,)
        self._link.execute("INSERT INTO stemmed (stemmed) VALUES ('delete-all')")
        return stems


def _nearest_size(size: int) -> int:
    """The low bits of a row's number: the index of the nearest of `_SIZES`."""
    return min(round(math.log(max(size, 1), _STEP)), _LOW)


def _choose_best(scores: Mapping[int, float], most: int) -> list[tuple[int, float]]:
    """The highest scores. Of equal scores the older row comes first."""
    least = min(heapq.nlargest(most, scores.values()), default=0.0)
    high = [(row, score) for row, score in scores.items() if score >= least]
    return sorted(high, key=lambda pair: (-pair[1], pair[0]))[:most]
