"""Which chunks answer a question: scores of words and of vectors, fused, then spread over a conversation.

    words, vectors ──each to 0..1──▶ fused ──▶ neighbouring turns ──▶ speaker and date ──▶ best first

Scores are fused by their size, not by their rank: one strong match must outweigh many weak ones. In a
conversation the answer often stands next to the turn that has the words of the question, so a turn lends a
part of its score to its neighbours. Synchronous; it reads the index and changes nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence

import msgspec

from lamina.context.search import mentions
from lamina.context.search.chunk_tables import Candidate, ChunkTables
from lamina.context.search.words import is_code, terms

DEPTH = 200
"""How many chunks each of the two, words and vectors, may propose."""

POSTINGS = 8_000
"""Matches that are scored: with more, the commonest words of a query are left out, which say least."""

LENT = (0.4, 0.2)
"""What a turn lends to those one and two beside it: halved with each step."""

LENDERS = 200
"""How many turns lend, the best by their own score: a weak one has nothing to lend that would be seen."""

ALONE = 400
"""Characters from which a turn is understood by itself: a longer one borrows less, in proportion."""

SPOKE, SAID_THEN = 0.1, 0.2
"""What is added where the question names the speaker, or the date."""

WORDS = {"turn": 0.5, "text": 0.5, "code": 0.2}
"""The share of words, where there are vectors: a question in plain words shares few with code."""

WORDS_NAMED = 0.7
"""The same, where the question itself names an identifier."""


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk's number, its score, and what words and vectors said of it, each from 0 to 1."""

    id: int
    score: float
    words: float = 0.0
    vectors: float = 0.0


def by_words(
    shelf: ChunkTables, query: str, *, without: Collection[str] = (), sources: Collection[str] | None = None
) -> dict[int, float]:
    """The chunks that have words of the query, from 0 to 1."""
    wanted = terms(query, without=without)
    if not wanted:
        return {}
    found = shelf.matches(_rarest(shelf, wanted), DEPTH, sources)
    best = max((score for _, score in found), default=0.0)
    return {number: score / best if best else 1.0 for number, score in found}


def _rarest(shelf: ChunkTables, wanted: Sequence[str]) -> dict[str, int]:
    """The words, rarest first, as long as all their matches together are few enough; the rarest always."""
    counted = shelf.counts(wanted, POSTINGS + 1)
    kept: dict[str, int] = {}
    total = 0
    for word, amount in sorted(counted.items(), key=lambda pair: pair[1]):
        total += amount
        if kept and total > POSTINGS:
            break
        kept |= {word: amount} if amount else {}
    return kept or counted


def ranked(
    shelf: ChunkTables,
    query: str,
    words: Mapping[int, float],
    vectors: Mapping[int, float] | None,
    *,
    people: Collection[str],
    most: int,
) -> list[Scored]:
    """The best of the chunks that were proposed and of the turns beside them; equal scores by age."""
    known = {one.id: one for one in shelf.candidates({*words, *(vectors or ())})}
    fused = _fused(query, known, words, vectors)
    lent = _lent(shelf, fused, known)
    extra = _mentioned(query, people, known)
    scores = {one: fused.get(one, 0.0) + lent.get(one, 0.0) + extra.get(one, 0.0) for one in known}
    best = heapq.nsmallest(most, scores, key=lambda one: (-scores[one], one))
    near = vectors or {}
    return [
        Scored(id=one, score=scores[one], words=words.get(one, 0.0), vectors=near.get(one, 0.0))
        for one in best
    ]


def _fused(
    query: str,
    known: Mapping[int, Candidate],
    words: Mapping[int, float],
    vectors: Mapping[int, float] | None,
) -> dict[int, float]:
    if vectors is None:
        return {one: words[one] for one in known}
    named = is_code(query)
    fused: dict[int, float] = {}
    for one, it in known.items():
        share = WORDS_NAMED if named else WORDS[it.sort]
        fused[one] = share * words.get(one, 0.0) + (1 - share) * vectors.get(one, 0.0)
    return fused


def _lent(shelf: ChunkTables, fused: Mapping[int, float], known: dict[int, Candidate]) -> dict[int, float]:
    """What each turn has from its neighbours, which are known from now on."""
    turns = [number for number, one in known.items() if one.sort == "turn"]
    lenders = heapq.nsmallest(LENDERS, turns, key=lambda one: (-fused[one], one))
    lent: dict[int, float] = {}
    for beside in shelf.neighbours(lenders, len(LENT)) if lenders else ():
        one = beside.one
        known.setdefault(one.id, one)
        part = LENT[abs(beside.away) - 1] * min(1.0, ALONE / max(beside.size, 1))
        lent[one.id] = lent.get(one.id, 0.0) + part * fused[beside.of]
    return lent


def _mentioned(query: str, people: Collection[str], known: Mapping[int, Candidate]) -> dict[int, float]:
    """What is added for the speaker and the date that the query names; two speakers name neither."""
    days = mentions.dates(query)
    extra: dict[int, float] = {}
    if len(people) != 1 and not days:
        return extra
    for one in known.values():
        if len(people) == 1 and one.speaker in people:
            extra[one.id] = SPOKE
        if one.at and any(mentions.falls_on(one.at, day) for day in days):
            extra[one.id] = extra.get(one.id, 0.0) + SAID_THEN
    return extra
