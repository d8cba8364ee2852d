"""Words by BM25 from FTS5's lists: the scores are FTS5's own, and what is dropped is gone from all of it."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from lamina.context.search.sqlite import TABLES, Postings
from lamina.context.search.words import match_any

VOCABULARY = "running cats harbour Größe naïve ships painted the green boat 2023 fairly".split()


@pytest.fixture
def link() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as link:
        for statement in TABLES:
            link.execute(statement)
        yield link


@pytest.fixture
def postings(link: sqlite3.Connection) -> Postings:
    return Postings(link)


def filled(postings: Postings, amount: int) -> None:
    dice = random.Random(5)  # noqa: S311 - made-up text
    for number in range(1, amount + 1):
        words = dice.choices(VOCABULARY, weights=range(1, len(VOCABULARY) + 1), k=dice.randint(1, 60))
        postings.add(number, " ".join(words))


def ranked(postings: Postings, *words: str, most: int = 1_000) -> dict[int, float]:
    return dict(postings.matches(postings.counts(words, 10_000), most, None))


@pytest.mark.parametrize(
    "words", [("cat",), ("runs", "harbour"), ("größe", "naive", "cats"), ("2023", "missing")]
)
def test_scores_are_those_of_fts5_but_for_the_rounding_of_lengths(
    link: sqlite3.Connection, postings: Postings, words: tuple[str, ...]
) -> None:
    filled(postings, 300)
    query = "SELECT rowid >> 8, -bm25(words) FROM words WHERE words MATCH ?"
    expected = dict(link.execute(query, (match_any(words),)).fetchall())
    scores = ranked(postings, *words)
    assert scores.keys() == expected.keys()
    assert all(scores[one] == pytest.approx(score, rel=0.03, abs=1e-5) for one, score in expected.items())


def test_the_best_come_first_and_equal_ones_by_age(postings: Postings) -> None:
    for number, text in (
        (3, "green boat"),
        (1, "green boat"),
        (2, "green boat boat"),
        (4, "a green one here"),
    ):
        postings.add(number, text)
    for number in range(5, 12):
        postings.add(number, "something else")
    assert list(ranked(postings, "boat")) == [2, 1, 3]
    assert list(ranked(postings, "boat", most=2)) == [2, 1]


def test_equal_scores_of_different_words_come_by_age(postings: Postings) -> None:
    for number, text in ((5, "boat"), (2, "ship"), (3, "tree"), (4, "tree")):
        postings.add(number, text)
    assert list(ranked(postings, "boat", "ship")) == [2, 5]


def test_matches_can_be_limited_to_some_chunks(postings: Postings) -> None:
    filled(postings, 50)
    scores = postings.matches({"boat": 30}, 5, {7, 9, 49})
    assert scores
    assert {number for number, _ in scores} <= {7, 9, 49}


def test_what_is_dropped_is_not_found_counted_or_weighed(
    link: sqlite3.Connection, postings: Postings
) -> None:
    postings.add(1, "green boat")
    before = link.execute("SELECT * FROM totals").fetchone()
    postings.add(2, "boat " * 40)
    postings.drop([2, 99])
    assert postings.counts(["boat"], 10) == {"boat": 1}
    assert list(ranked(postings, "boat")) == [1]
    assert link.execute("SELECT * FROM totals").fetchone() == before


def test_a_count_stops_where_it_is_told_to(postings: Postings) -> None:
    for number in range(20):
        postings.add(number, "boat")
    assert postings.counts(["boats", "none"], 7) == {"boats": 7, "none": 0}
