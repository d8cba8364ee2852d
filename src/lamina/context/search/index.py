"""The index: what can be searched, in memory or in a file of its own.

    async with open_index("search.db") as index:
        await index.replace("docs/spec.md", chunks_of("docs/spec.md", text))
        hits = await index.query("how many retries?")

One index belongs to one workspace: whoever may query it may see everything in it. It can be made again from
its sources, so nothing in it is a record. It runs in a worker thread, one call at a time.

Scores of words and vectors are fused by their size, not by their rank: one strong match must outweigh many
weak ones. In a conversation the answer is often next to the turn that has the words of the question, so a
turn lends a part of its score to its neighbours.

A question may mention speakers and dates: "What did Ana say in May 2023?". Days are ISO text, and so are
months (`2023-05`) and years. A mention fits every time that begins with it. A month or a day without a year
fits every year. Words such as "yesterday" and "last spring" are not understood.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from os import PathLike, fspath
from typing import TypeVar

import anyio
import msgspec
from anyio.to_thread import run_sync

from lamina.context.search.chunk_tables import Candidate, ChunkChanges, ChunkRow
from lamina.context.search.chunks import Chunk
from lamina.context.search.sqlite import MEMORY, SqliteChunkTables
from lamina.context.search.vectors import pack_vectors
from lamina.context.search.words import find_terms, is_code
from lamina.core.text.characters import ALPHANUMERIC, fold_case, is_blank, is_digits, lower_ascii, split_words
from lamina.errors import BadInput

Embedder = Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]]
"""Texts to vectors, one for each, all of one length."""

T = TypeVar("T")

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

_MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_MONTH_NUMBERS = {month: number for number, month in enumerate(_MONTHS, 1)}


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk that answers a query. `score` ranks it; `words` and `vectors` say why, each from 0 to 1."""

    id: int
    source: str
    nth: int
    chunk: Chunk
    score: float
    words: float = 0.0
    vectors: float = 0.0


class Index:
    """Chunks by their source. Opened by `open_index`."""

    def __init__(self, tables: SqliteChunkTables, embedder: Embedder | None) -> None:
        self._tables = tables
        self._embedder = embedder
        self._lock = anyio.Lock()

    async def replace(self, source: str, chunks: Sequence[Chunk]) -> int:
        """Make these the chunks of a source, and say how many are new. Unchanged chunks stay."""
        return await self._put(source, chunks, after=False)

    async def add(self, source: str, chunks: Sequence[Chunk]) -> int:
        """Add chunks after those that a source has."""
        return await self._put(source, chunks, after=True)

    async def remove(self, source: str) -> int:
        """Remove a source, and say how many chunks it had."""
        async with self._lock:
            return await self._threaded(lambda: self._tables.remove(source))

    async def query(
        self, text: str, *, most: int = 10, sources: Collection[str] | None = None
    ) -> tuple[Hit, ...]:
        """The chunks that answer a text best, best first, of all sources or only of these."""
        vector = None
        if self._embedder is not None and not is_blank(text):
            (vector,) = pack_vectors(await _embed(self._embedder, [text]))
        async with self._lock:
            return await self._threaded(lambda: self._query(text, vector, most, sources))

    async def beside(self, hit: Hit, reach: int = 1) -> tuple[Hit, ...]:
        """A hit with its neighbours, at most `reach` away from it, in their order."""
        row = ChunkRow(hit.id, hit.source, hit.nth, hit.chunk)
        async with self._lock:
            rows = await self._threaded(lambda: self._tables.beside(row, reach))
        return tuple(_make_hit(one, Scored(id=one.id, score=hit.score)) for one in rows)

    async def sources(self) -> dict[str, int]:
        """Every source, and how many chunks it has."""
        async with self._lock:
            return await self._threaded(self._tables.sources)

    async def _put(self, source: str, chunks: Sequence[Chunk], *, after: bool) -> int:
        """Write chunks of a source, and say how many are new."""
        async with self._lock:
            plan = await self._threaded(lambda: self._tables.planned(source, chunks, after=after))
            vectors = await self._embed_new(plan)
            await self._threaded(lambda: self._tables.write(source, plan, vectors))
            return len(plan.new)

    async def _embed_new(self, plan: ChunkChanges) -> Sequence[bytes | None]:
        """The vectors of new chunks, each text embedded once. Without an embedder there are none."""
        if self._embedder is None:
            return [None] * len(plan.new)
        if not plan.new:  # an embedder may cost money, or refuse a request without a text
            return []
        texts = [text_to_embed(chunk) for _, chunk in plan.new]
        unique = list(dict.fromkeys(texts))
        vectors = dict(zip(unique, pack_vectors(await _embed(self._embedder, unique)), strict=True))
        return [vectors[text] for text in texts]

    def _query(
        self, text: str, vector: bytes | None, most: int, sources: Collection[str] | None
    ) -> tuple[Hit, ...]:
        """Score words and vectors, and fetch the chunks that rank best."""
        people = find_speakers(text, self._tables.speakers())
        words = score_words(self._tables, text, without=people, sources=sources)
        near = None
        if vector is not None:
            near = self._tables.near(vector, DEPTH, sources, words)
        ranked = rank_chunks(self._tables, text, words, near, people=people, most=max(most, 0))
        rows = self._tables.rows([scored.id for scored in ranked])
        return tuple(_make_hit(rows[scored.id], scored) for scored in ranked if scored.id in rows)

    async def _threaded(self, use_tables: Callable[[], T]) -> T:
        """Run a call of the tables in a worker thread."""

        def use_guarded() -> T:
            with self._tables.guarded():
                return use_tables()

        return await run_sync(use_guarded)


@asynccontextmanager
async def open_index(
    path: str | PathLike[str] | None = None, *, embedder: Embedder | None = None
) -> AsyncIterator[Index]:
    """An index in the file at `path`, or in memory. With an embedder it compares meaning besides words."""
    tables = await run_sync(SqliteChunkTables, fspath(path or MEMORY))
    try:
        yield Index(tables, embedder)
    finally:
        with anyio.CancelScope(shield=True):
            await run_sync(tables.close)


def text_to_embed(chunk: Chunk) -> str:
    """The text of a chunk that is embedded: who says it or its head, and its text."""
    if chunk.speaker and chunk.speaker not in ROLES:
        return f"{chunk.speaker}: {chunk.text}"
    if chunk.head:
        return f"{chunk.head}\n{chunk.text}"
    return chunk.text


async def _embed(embedder: Embedder, texts: Sequence[str]) -> Sequence[Sequence[float]]:
    """The vectors of some texts. Raises BadInput if the embedder leaves one out."""
    vectors = await embedder(texts)
    if len(vectors) != len(texts):
        problem = f"{len(vectors)} vectors for {len(texts)} texts"
        raise BadInput(problem, place="embedder", hint="it must give one vector for each text, in order")
    return vectors


def _make_hit(row: ChunkRow, scored: Scored) -> Hit:
    return Hit(
        id=row.id,
        source=row.source,
        nth=row.nth,
        chunk=row.chunk,
        score=scored.score,
        words=scored.words,
        vectors=scored.vectors,
    )


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk's number, its score, and its scores by words and by vectors, each from 0 to 1."""

    id: int
    score: float
    words: float = 0.0
    vectors: float = 0.0


def score_words(
    tables: SqliteChunkTables,
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


def _choose_rarest(tables: SqliteChunkTables, query_terms: Sequence[str]) -> dict[str, int]:
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
    tables: SqliteChunkTables,
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
        word_share = WORD_SHARES[candidate.sort]
        if names_code:
            word_share = WORD_SHARE_OF_CODE_QUERY
        word_score = word_share * words.get(number, 0.0)
        fused[number] = word_score + (1 - word_share) * vectors.get(number, 0.0)
    return fused


def _lend_to_neighbours(
    tables: SqliteChunkTables, fused: Mapping[int, float], candidates: dict[int, Candidate]
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
    days = find_dates(query)
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
        if any(falls_on(candidate.at, day) for day in days):
            bonus += DATE_BONUS
        bonuses[number] = bonus
    return bonuses


_MONTH_NUMBERS |= {month[:3]: number for number, month in enumerate(_MONTHS, 1)}
_MONTH_NUMBERS["sept"] = 9
_MONTH = rf"(?P<month>{'|'.join(sorted(_MONTH_NUMBERS, key=len, reverse=True))})"
_DAY = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_FORMS = [
    re.compile(form, re.IGNORECASE | re.ASCII)
    for form in (
        rf"\b{_YEAR}-(?P<number>[01]\d)(?:-(?P<day>[0-3]\d))?(?!\d)",  # 2023-05-08, 2023-05
        rf"\b{_DAY}(?: of)? {_MONTH}\b(?:,? {_YEAR}\b)?",  # 8th of May 2023, 8 May
        rf"\b{_MONTH}[ -]{_DAY}\b(?:(?:, ?| |-){_YEAR}\b)?",  # May 8, 2023
        rf"\b{_MONTH},? {_YEAR}\b",  # May 2023
        rf"\b(?:in|of|since|during) {_MONTH}\b",  # in May
        rf"\b(?:in|of|since|during) {_YEAR}\b",  # since 2023
    )
]
_SELF = re.compile(r"\b(?:i|i'm|i've|my|me|mine)\b", re.IGNORECASE | re.ASCII)
_WORD = re.compile(f"[{ALPHANUMERIC}]+")

USER = "user"
ROLES = frozenset((USER, "assistant", "system", "tool"))
"""Speakers without a name. A question that has the word "user" does not mean one of them."""


def find_dates(text: str) -> tuple[str, ...]:
    """The dates in a text: `2023-05-08`, `2023-05`, `2023`, or `-05-08` and `-05` without a year."""
    mentioned: list[str] = []
    for form in _FORMS:
        for match in form.finditer(text):
            # blanked out, so that a later form does not find a part of the same date
            text = text[: match.start()] + " " * len(match[0]) + text[match.end() :]
            mentioned.append(_write_iso(match.groupdict()))
    return tuple(dict.fromkeys(mentioned))


def _write_iso(groups: dict[str, str | None]) -> str:
    """The date of a match, with those of year, month and day that it has.

    `2024-05` is a month, and `2024-05-03` a day of it: the longer a date, the fewer days it means.
    """
    parts = [groups.get("year") or ""]
    month = groups.get("number") or groups.get("month")
    if month:
        parts.append(f"{_month_number(month):02}")
    day = groups.get("day")
    if day:
        parts.append(f"{int(day):02}")
    return "-".join(parts)


def _month_number(month: str) -> int:
    """The number of a month that was written as a number or as a name, `05` or `May`."""
    if is_digits(month):
        return int(month)
    return _MONTH_NUMBERS[lower_ascii(month)]


def falls_on(at: str, mentioned: str) -> bool:
    """Whether an ISO time is in the day, month or year that was mentioned."""
    if mentioned.startswith("-"):
        return at[len("2023") :].startswith(mentioned)
    return at.startswith(mentioned)


def find_speakers(text: str, speakers: Collection[str]) -> frozenset[str]:
    """The speakers whose name a text mentions, by any word of it. "I" and "my" mention the user."""
    words = set(_WORD.findall(fold_case(text)))
    people: set[str] = set()
    for speaker in speakers:
        # roles such as "assistant" are ordinary words, and mention nobody
        if speaker in ROLES:
            continue
        names = split_words(fold_case(speaker))
        if not words.isdisjoint(names):
            people.add(speaker)
    if people or USER not in speakers:
        return frozenset(people)
    if _SELF.search(text):
        return frozenset((USER,))
    return frozenset()
