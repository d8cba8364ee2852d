"""Ranks the chunks for a question: scores of words and vectors, fused, then spread over a conversation.

    words, vectors ──each to 0..1──▶ fused ──▶ neighbouring turns ──▶ speaker and date ──▶ best first

Scores are fused by their size, not by their rank: one strong match must outweigh many weak ones. In a
conversation the answer is often next to the turn that has the words of the question, so a turn lends a part
of its score to its neighbours. Everything here is synchronous. It reads the index and changes nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence

import msgspec

from lamina.context.search import mentions
from lamina.context.search.chunk_tables import Candidate, ChunkTables
from lamina.context.search.words import find_terms, is_code

DEPTH = 200
"""How many chunks words may propose, and how many vectors may."""

POSTINGS = 8_000
"""Matches that are scored. With more, the most common words of a query are left out: they say least."""

LENT = (0.4, 0.2)
"""The share of its score that a turn lends to turns that are one and two away."""

LENDERS = 200
"""How many turns lend, the best by their own score. A weak turn has nothing to lend that would matter."""

ALONE = 400
"""Characters from which a turn is understood by itself. A longer turn borrows less, in proportion."""

SPEAKER_BONUS = 0.1
DATE_BONUS = 0.2
"""What is added if the question names the speaker, or the date."""

WORD_SHARES = {"turn": 0.5, "text": 0.5, "code": 0.2}
"""The share of words beside vectors, by sort of chunk. A question in plain words shares few with code."""

WORD_SHARE_OF_CODE_QUERY = 0.7
"""The same, if the question itself names an identifier."""


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk's number, its score, and its scores by words and by vectors, each from 0 to 1."""

    id: int
    score: float
    words: float = 0.0
    vectors: float = 0.0


def score_words(
    tables: ChunkTables,
    query: str,
    *,
    without: Collection[str] = (),
    sources: Collection[str] | None = None,
) -> dict[int, float]:
    """The chunks that have words of the query, from 0 to 1.

    The best one has 1, so that scores of words and of vectors can be added.
    """
    query_terms = find_terms(query, without=without)
    if not query_terms:
        return {}
    matches = tables.matches(_choose_rarest(tables, query_terms), DEPTH, sources)
    best = max((score for _, score in matches), default=0.0)
    if not best:
        return {number: 1.0 for number, _ in matches}
    return {number: score / best for number, score in matches}


def _choose_rarest(tables: ChunkTables, query_terms: Sequence[str]) -> dict[str, int]:
    """The rarest words, as long as all their matches together are few enough; at least one."""
    counts = tables.counts(query_terms, POSTINGS + 1)
    chosen: dict[str, int] = {}
    total = 0
    # a word that half of all chunks have says little, and costs the most to look up
    for word, amount in sorted(counts.items(), key=lambda pair: pair[1]):
        total += amount
        if chosen and total > POSTINGS:
            break
        if amount:
            chosen[word] = amount
    return chosen or counts


def rank_chunks(
    tables: ChunkTables,
    query: str,
    words: Mapping[int, float],
    vectors: Mapping[int, float] | None,
    *,
    people: Collection[str],
    most: int,
) -> list[Scored]:
    """The best of the chunks that were proposed and of the turns next to them. Equal scores: older first."""
    vector_scores = vectors or {}
    candidates = {one.id: one for one in tables.candidates({*words, *vector_scores})}
    fused = _fuse_scores(query, candidates, words, vectors)
    lent = _lend_to_neighbours(tables, fused, candidates)
    bonuses = _add_bonuses(query, people, candidates)
    scores = {}
    for number in candidates:
        scores[number] = fused.get(number, 0.0) + lent.get(number, 0.0) + bonuses.get(number, 0.0)
    best = heapq.nsmallest(most, scores, key=lambda number: (-scores[number], number))
    return [
        Scored(
            id=number,
            score=scores[number],
            words=words.get(number, 0.0),
            vectors=vector_scores.get(number, 0.0),
        )
        for number in best
    ]


def _fuse_scores(
    query: str,
    candidates: Mapping[int, Candidate],
    words: Mapping[int, float],
    vectors: Mapping[int, float] | None,
) -> dict[int, float]:
    """One score for each candidate. Without vectors it is the score by words."""
    if vectors is None:
        return {number: words[number] for number in candidates}
    # an identifier is found by its letters, not by its meaning
    names_code = is_code(query)
    fused: dict[int, float] = {}
    for number, candidate in candidates.items():
        word_share = WORD_SHARE_OF_CODE_QUERY if names_code else WORD_SHARES[candidate.sort]
        word_score = word_share * words.get(number, 0.0)
        fused[number] = word_score + (1 - word_share) * vectors.get(number, 0.0)
    return fused


def _lend_to_neighbours(
    tables: ChunkTables, fused: Mapping[int, float], candidates: dict[int, Candidate]
) -> dict[int, float]:
    """What each turn gets from its neighbours. The neighbours are added to the candidates."""
    turns = [number for number, candidate in candidates.items() if candidate.sort == "turn"]
    lenders = heapq.nsmallest(LENDERS, turns, key=lambda number: (-fused[number], number))
    if not lenders:
        return {}
    lent: dict[int, float] = {}
    # an answer often shares no word with its question, but stands next to it
    for neighbour in tables.neighbours(lenders, len(LENT)):
        number = neighbour.one.id
        candidates.setdefault(number, neighbour.one)
        share = LENT[abs(neighbour.away) - 1] * min(1.0, ALONE / max(neighbour.size, 1))
        lent[number] = lent.get(number, 0.0) + share * fused[neighbour.of]
    return lent


def _add_bonuses(
    query: str, people: Collection[str], candidates: Mapping[int, Candidate]
) -> dict[int, float]:
    """What is added for the speaker and the date that the query names. Two names do not count."""
    days = mentions.find_dates(query)
    if len(people) != 1:
        people = ()
    if not people and not days:
        return {}
    # a name or a date in a question is rarely a word of the answer, so words do not find it
    bonuses: dict[int, float] = {}
    for number, candidate in candidates.items():
        bonus = 0.0
        if candidate.speaker in people:
            bonus += SPEAKER_BONUS
        if any(mentions.falls_on(candidate.at, day) for day in days):
            bonus += DATE_BONUS
        bonuses[number] = bonus
    return bonuses
