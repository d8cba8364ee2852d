"""Which chunks answer a question: scores of words and of vectors, fused, then spread over a conversation.

    words, vectors ──each to 0..1──▶ fused ──▶ neighbouring turns ──▶ speaker and date ──▶ best first

Scores are fused by their size, not by their rank: one strong match must outweigh many weak ones. In a
conversation the answer often stands next to the turn that has the words of the question, so a turn lends a
part of its score to its neighbours. Synchronous; it reads the index and changes nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from lamina.sources.search import mentions
from lamina.sources.search.schema import numbers_text
from lamina.sources.search.words import expression, is_code, terms

DEPTH = 200
"""How many chunks each of the two, words and vectors, may propose."""

POSTINGS = 8_000
"""Matches that are scored: with more, the commonest words of a query are left out, which say least."""

LENT = (0.4, 0.2)
"""What a turn lends to those one and two beside it: halved with each step."""

ALONE = 400
"""Characters from which a turn is understood by itself: a longer one borrows less, in proportion."""

SPOKE, SAID_THEN = 0.1, 0.2
"""What is added where the question names the speaker, or the date."""

WORDS = {"turn": 0.5, "text": 0.5, "code": 0.2}
"""The share of words, where there are vectors: a question in plain words shares few with code."""

WORDS_NAMED = 0.7
"""The same, where the question itself names an identifier."""

_MATCHES = "SELECT rowid, rank FROM words WHERE words MATCH ?1 ORDER BY rank LIMIT ?2"
_MATCHES_IN = (
    "SELECT rowid, rank FROM words WHERE words MATCH ?1 AND rowid IN (SELECT id FROM chunks WHERE source IN "
    "(SELECT value FROM json_each(?3))) ORDER BY rank LIMIT ?2"
)
_COUNT = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)"
_CANDIDATES = (
    "SELECT id, source, nth, speaker, at, sort FROM chunks WHERE id IN (SELECT value FROM json_each(?))"
)
_NEIGHBOURS = (
    "SELECT c.id, n.nth - c.nth, length(n.text), n.id, n.source, n.nth, n.speaker, n.at, n.sort "
    "FROM json_each(?1) JOIN chunks c ON c.id = value JOIN chunks n ON n.source = c.source "
    "AND n.nth BETWEEN c.nth - ?2 AND c.nth + ?2 AND n.nth != c.nth AND n.section = c.section"
)


class Candidate(msgspec.Struct, frozen=True):
    """What ranking has to know of a chunk."""

    id: int
    source: str
    nth: int
    speaker: str
    at: str
    sort: str


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk's number, its score, and what words and vectors said of it, each from 0 to 1."""

    id: int
    score: float
    words: float = 0.0
    vectors: float = 0.0


def by_words(
    link: sqlite3.Connection, query: str, *, without: Collection[str] = (), sources: str | None = None
) -> dict[int, float]:
    """The chunks that have words of the query, from 0 to 1."""
    wanted = terms(query, without=without)
    if not wanted:
        return {}
    asked = (expression(_rarest(link, wanted)), DEPTH)
    found = link.execute(_MATCHES, asked) if sources is None else link.execute(_MATCHES_IN, (*asked, sources))
    rows = found.fetchall()
    best = min((rank for _, rank in rows), default=0.0)
    return {number: rank / best if best else 1.0 for number, rank in rows}


def _rarest(link: sqlite3.Connection, wanted: Sequence[str]) -> list[str]:
    """The words, rarest first, as long as all their matches together are few enough; the rarest always."""
    counted = [
        (link.execute(_COUNT, (expression([word]), POSTINGS + 1)).fetchone()[0], word) for word in wanted
    ]
    kept: list[str] = []
    total = 0
    for amount, word in sorted(counted, key=lambda pair: pair[0]):
        total += amount
        if kept and total > POSTINGS:
            break
        kept += [word] if amount else []
    return kept or list(wanted)


def ranked(
    link: sqlite3.Connection, query: str, words: Mapping[int, float], vectors: Mapping[int, float] | None
) -> list[Scored]:
    """Every chunk that was proposed, and the turns beside them, best first; equal scores by age."""
    fused = _fused(link, query, words, vectors)
    lent, known = _lent(link, fused)
    extra = _mentioned(link, query, known)
    scored = [
        Scored(
            id=one,
            score=fused.get(one, 0.0) + lent.get(one, 0.0) + extra.get(one, 0.0),
            words=words.get(one, 0.0),
            vectors=(vectors or {}).get(one, 0.0),
        )
        for one in known
    ]
    return sorted(scored, key=lambda one: (-one.score, one.id))


def speakers(link: sqlite3.Connection) -> list[str]:
    """Everybody who speaks in the index, one step through its index for each."""
    steps = link.execute(
        "WITH RECURSIVE people (name) AS (SELECT min(speaker) FROM chunks UNION ALL "
        "SELECT (SELECT min(speaker) FROM chunks WHERE speaker > name) FROM people WHERE name IS NOT NULL) "
        "SELECT name FROM people WHERE name != '' LIMIT 1000"
    )
    return [name for (name,) in steps]


def _fused(
    link: sqlite3.Connection, query: str, words: Mapping[int, float], vectors: Mapping[int, float] | None
) -> dict[int, float]:
    if vectors is None:
        return dict(words)
    numbers = sorted({*words, *vectors})
    sorts = {one.id: one.sort for one in _candidates(link, numbers)}
    named = is_code(query)
    fused: dict[int, float] = {}
    for one, sort in sorts.items():
        share = WORDS_NAMED if named else WORDS[sort]
        fused[one] = share * words.get(one, 0.0) + (1 - share) * vectors.get(one, 0.0)
    return fused


def _candidates(link: sqlite3.Connection, numbers: Iterable[int]) -> list[Candidate]:
    return [Candidate(*row) for row in link.execute(_CANDIDATES, (numbers_text(numbers),))]


def _lent(
    link: sqlite3.Connection, fused: Mapping[int, float]
) -> tuple[dict[int, float], dict[int, Candidate]]:
    """What each turn has from its neighbours, and everything that ranking knows by now."""
    known = {one.id: one for one in _candidates(link, sorted(fused))}
    turns = numbers_text(number for number, one in known.items() if one.sort == "turn")
    lent: dict[int, float] = {}
    for lender, away, size, *beside in link.execute(_NEIGHBOURS, (turns, len(LENT))):
        one = Candidate(*beside)
        known.setdefault(one.id, one)
        lent[one.id] = lent.get(one.id, 0.0) + LENT[abs(away) - 1] * fused[lender] * min(
            1.0, ALONE / max(size, 1)
        )
    return lent, known


def _mentioned(link: sqlite3.Connection, query: str, known: Mapping[int, Candidate]) -> dict[int, float]:
    """What is added for the speaker and the date that the query names; two speakers name neither."""
    people = mentions.named(query, speakers(link))
    days = mentions.dates(query)
    extra = dict.fromkeys(known, 0.0)
    for one in known.values():
        if len(people) == 1 and one.speaker in people:
            extra[one.id] += SPOKE
        if one.at and any(mentions.falls_on(one.at, day) for day in days):
            extra[one.id] += SAID_THEN
    return extra
