"""An index in PostgreSQL, for many processes on many machines: text search for words, pgvector for meaning.

    async with open_postgres_index("postgresql://lamina@db/chats", workspace="team") as index:
        await index.replace("docs/spec.md", chunks_of("docs/spec.md", text))

What is found is what SQLite finds: words are split here and stemmed by the server, and scored by BM25, for
which `ts_rank` of a single word tells how often it occurs. pgvector compares every vector. Where the
server has none, vectors are bytes that are compared in this process, and `index.notes` says so. A NUL, which
PostgreSQL cannot keep, is kept as U+FFFD. Needs the extra "postgres".
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import psycopg

from lamina.context.search import postgres_tables as tables
from lamina.context.search.chunk_tables import (
    Beside,
    Candidate,
    ChunkChanges,
    ChunkRow,
    digest_of,
    plan_after,
    plan_of,
    row_of,
    searched,
    values_of,
)
from lamina.context.search.chunks import Chunk
from lamina.context.search.index import TRIES, Embedder, Index, opened, too_busy
from lamina.context.search.vectors import Vectors, same_length
from lamina.context.search.words import split
from lamina.errors import BadInput, Broken, StoreError

NO_PGVECTOR = "the server has no pgvector: vectors are compared in this process"
STEMS, LONGEST = 100_000, 200
"""Stems that are remembered, and the characters of a word that are looked at."""

_ROW = "SELECT id, source, nth, text, place, head, section, speaker, at, sort FROM chunk WHERE space = %s"
_COUNTS = (
    "SELECT word, (SELECT count(*) FROM (SELECT FROM term WHERE words @@ query LIMIT %s) AS matching) "
    "FROM unnest(%s::text[], %s::tsquery[]) AS given (word, query)"
)
_TOTALS = "SELECT chunks, words::float8 / greatest(chunks, 1) FROM space WHERE number = %s"
_MATCHES = """
SELECT id, sum(weight * 2.2 * times / (times + 1.2 * (0.25 + 0.75 * size / %(mean)s))) AS score
FROM (
    SELECT id, size, weight,
        1 / (1.6449340668 * (1 - ts_rank('{1, 1, 1, 1}', words, query))::float8) - 0.5 AS times
    FROM unnest(%(queries)s::tsquery[], %(weights)s::float8[]) AS given (query, weight)
    JOIN term ON words @@ query
    WHERE space = %(space)s AND (%(only)s::text[] IS NULL OR id IN (
        SELECT id FROM chunk WHERE space = %(space)s AND source = ANY(%(only)s::text[])))
) AS found GROUP BY id ORDER BY score DESC, id LIMIT %(most)s
"""
# ts_rank of one word that occurs n times is (1 + 1/4 + … + 1/n²) · 6/π², and what is missing to 1 is, times
# π²/6, about 1 / (n + ½).
_NEAR = """
WITH scored AS MATERIALIZED (
    SELECT id, -(vector <#> %(wanted)s::vector) AS near FROM vec
    WHERE space = %(space)s AND (%(only)s::text[] IS NULL OR id IN (
        SELECT id FROM chunk WHERE space = %(space)s AND source = ANY(%(only)s::text[])))
), ends AS (SELECT min(near) AS low, max(near) AS high FROM scored),
best AS (SELECT id, near FROM scored ORDER BY near DESC LIMIT %(most)s)
SELECT id, near, low, high FROM ends,
    (SELECT id, near FROM best UNION SELECT id, near FROM scored WHERE id = ANY(%(also)s::bigint[])) AS found
"""
_CANDIDATES = "SELECT id, speaker, at, sort FROM chunk WHERE space = %s AND id = ANY(%s)"
_NEIGHBOURS = (  # the limit keeps the server from reading all chunks, however few it takes them for
    "SELECT c.id, n.nth - c.nth, length(n.text), n.id, n.speaker, n.at, n.sort "
    "FROM chunk c CROSS JOIN LATERAL (SELECT * FROM chunk WHERE space = c.space AND source = c.source "
    "AND nth BETWEEN c.nth - %(reach)s AND c.nth + %(reach)s LIMIT 2 * %(reach)s + 1) AS n "
    "WHERE c.space = %(space)s AND c.id = ANY(%(ids)s) AND n.nth != c.nth AND n.section = c.section"
)
_SPEAKERS = (  # one step through the index for each
    "WITH RECURSIVE people (name) AS (SELECT min(speaker) FROM chunk WHERE space = %(space)s UNION ALL "
    "SELECT (SELECT min(speaker) FROM chunk WHERE space = %(space)s AND speaker > name) FROM people "
    "WHERE name IS NOT NULL) SELECT name FROM people WHERE name != '' LIMIT 1000"
)


@asynccontextmanager
async def open_postgres_index(
    url: str, *, workspace: str, schema: str = "lamina_search", embedder: Embedder | None = None
) -> AsyncIterator[Index]:
    """The index of a workspace in this database, whose tables are made if they are not there."""
    for name, value in (("workspace", workspace), ("schema", schema)):
        if not value or "\x00" in value:
            raise BadInput(f"{value!r}", place=name, hint="give it a name")
    async with opened(partial(PostgresShelf, url, workspace, schema), embedder) as index:
        yield index


class PostgresShelf:
    """The chunks of one workspace. A connection that was lost is made anew by the next call."""

    def __init__(self, url: str, workspace: str, schema: str) -> None:
        self._url, self._workspace, self._schema = url, workspace, schema
        self._stems: dict[str, str] = {}
        self._vectors: Vectors | None = None
        self._stamp = -1
        with self.guarded():
            self._connect()

    @property
    def notes(self) -> tuple[str, ...]:
        return () if self._pgvector else (NO_PGVECTOR,)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable) as error:
            problem = f"the search index: it took too long: {_words(error)}"
            raise StoreError(problem, hint="nothing was written; try again") from error
        except psycopg.OperationalError as error:
            hint = "is the server running, the address right?"
            raise Broken(f"the search index: {_words(error)}", hint=hint) from None
        except psycopg.Error as error:
            raise StoreError(f"the search index: {_words(error)}") from error

    def planned(self, source: str, chunks: Sequence[Chunk], *, after: bool) -> ChunkChanges:
        if after:  # where they stand is decided when they are written
            return plan_after(None, chunks)
        query = "SELECT digest, id, nth, place FROM chunk WHERE space = %s AND source = %s ORDER BY nth"
        return plan_of(self._asked(query, self._space, _clean(source)), chunks)

    def write(self, source: str, plan: ChunkChanges, vectors: Sequence[bytes | None]) -> bool:
        """One writer of a workspace at a time: its row is locked first."""
        link, source = self._linked(), _clean(source)
        with link.transaction():
            lock = "SELECT next, width FROM space WHERE number = %s FOR UPDATE"
            first, width = self._asked(lock, self._space)[0]
            if plan.seen is not None and plan.seen != self._numbers(source):
                return False
            width = same_length([one for one in vectors if one is not None], width)
            sizes = self._insert(source, self._placed(source, plan), vectors, first)
            self._move(plan.moved)
            dropped = self._drop(plan.gone)
            grown = (len(plan.new) - len(plan.gone), sum(sizes) - dropped)
            link.execute(
                "UPDATE space SET next = next + %s, chunks = chunks + %s, words = words + %s, width = %s, "
                "stamp = stamp + 1 WHERE number = %s",
                [len(plan.new), *grown, width, self._space],
            )
        return True

    def remove(self, source: str) -> int:
        for _ in range(TRIES):
            gone = self._numbers(_clean(source))
            if self.write(source, ChunkChanges(gone, [], [], gone), []):
                return len(gone)
        raise too_busy(source)

    def sources(self) -> dict[str, int]:
        query = "SELECT source, count(*) FROM chunk WHERE space = %s GROUP BY source ORDER BY source"
        return dict(self._asked(query, self._space))

    def speakers(self) -> list[str]:
        found = self._linked().execute(_SPEAKERS, {"space": self._space})
        return [str(name) for (name,) in found]

    def rows(self, numbers: Sequence[int]) -> dict[int, ChunkRow]:
        found = self._asked(f"{_ROW} AND id = ANY(%s)", self._space, list(numbers))
        return {row[0]: _row(row) for row in found}

    def beside(self, row: ChunkRow, reach: int) -> list[ChunkRow]:
        where = "AND source = %s AND nth BETWEEN %s AND %s AND section = %s ORDER BY nth"
        asked = (self._space, row.source, row.nth - reach, row.nth + reach, row.chunk.section)
        return [_row(one) for one in self._asked(f"{_ROW} {where}", *asked)]

    def candidates(self, numbers: Collection[int]) -> list[Candidate]:
        return [Candidate(*row) for row in self._asked(_CANDIDATES, self._space, list(numbers))]

    def neighbours(self, numbers: Collection[int], reach: int) -> list[Beside]:
        given = {"reach": reach, "space": self._space, "ids": list(numbers)}
        found: list[Any] = self._linked().execute(_NEIGHBOURS, given).fetchall()
        return [Beside(of, away, size, Candidate(*rest)) for of, away, size, *rest in found]

    def counts(self, words: Sequence[str], most: int) -> dict[str, int]:
        return dict(self._asked(_COUNTS, most, list(words), self._queries(words)))

    def matches(
        self, words: Mapping[str, int], most: int, sources: Collection[str] | None
    ) -> list[tuple[int, float]]:
        total, mean = self._asked(_TOTALS, self._space)[0]
        weights = [max(math.log((total - n + 0.5) / (n + 0.5)), 1e-6) for n in words.values()]
        given = {
            "queries": self._queries(words),
            "weights": weights,
            "mean": max(mean, 1.0),
            "space": self._space,
            "only": _only(sources),
            "most": most,
        }
        return self._linked().execute(_MATCHES, given).fetchall()  # type: ignore[return-value]

    def near(
        self, wanted: bytes, most: int, sources: Collection[str] | None, also: Collection[int]
    ) -> dict[int, float]:
        self._check(wanted)
        if not self._pgvector:
            among = None if sources is None else [n for one in sources for n in self._numbers(_clean(one))]
            return self._compared().near(wanted, most, among, also)
        given = {
            "wanted": _as_text(wanted),
            "space": self._space,
            "only": _only(sources),
            "most": most,
            "also": list(also),
        }
        found: list[Any] = self._linked().execute(_NEAR, given).fetchall()
        return {one: (near - low) / (high - low) if high > low else 1.0 for one, near, low, high in found}

    def close(self) -> None:
        self._link.close()

    def _connect(self) -> None:
        self._link = tables.connected(self._url, self._schema)
        self._space = tables.number_of(self._link, self._workspace)
        self._pgvector = tables.has_pgvector(self._link)

    def _linked(self) -> tables.Link:
        if self._link.closed:
            self._connect()
        return self._link

    def _asked(self, query: str, *values: object) -> list[Any]:
        return self._linked().execute(query, values).fetchall()

    def _numbers(self, source: str) -> list[int]:
        query = "SELECT id FROM chunk WHERE space = %s AND source = %s ORDER BY nth"
        return [number for (number,) in self._asked(query, self._space, source)]

    def _placed(self, source: str, plan: ChunkChanges) -> list[tuple[int, Chunk]]:
        """What is new, in its places: behind the last one of the source where it is only added."""
        if plan.seen is not None:
            return plan.new
        query = "SELECT coalesce(max(nth), -1) FROM chunk WHERE space = %s AND source = %s"
        last = self._asked(query, self._space, source)[0][0]
        return [(last + 1 + nth, chunk) for nth, chunk in plan.new]

    def _insert(
        self, source: str, new: Sequence[tuple[int, Chunk]], vectors: Sequence[bytes | None], first: int
    ) -> list[int]:
        """Adds chunks with the numbers from `first` on, and says how many words each has."""
        said = [[word[:LONGEST] for word in split(searched(chunk))] for _, chunk in new]
        self._learn({word for words in said for word in words})
        cursor = self._linked().cursor()
        with cursor.copy("COPY chunk FROM STDIN") as copy:
            for number, (nth, chunk) in enumerate(new, first):
                values = map(_clean, values_of(chunk))
                copy.write_row((self._space, number, source, nth, digest_of(chunk), *values))
        with cursor.copy("COPY term FROM STDIN") as copy:
            for number, words in enumerate(said, first):
                copy.write_row((self._space, number, len(words), self._tsvector(words)))
        with cursor.copy("COPY vec FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int8", "int8", "bytea"])
            for number, blob in enumerate(vectors, first):
                if blob is not None:
                    copy.write_row((self._space, number, _as_vector(blob) if self._pgvector else blob))
        return list(map(len, said))

    def _move(self, moved: Sequence[tuple[int, int, str]]) -> None:
        query = (
            "UPDATE chunk SET nth = given.nth, place = given.place FROM "
            "unnest(%s::bigint[], %s::integer[], %s::text[]) AS given (id, nth, place) "
            "WHERE space = %s AND chunk.id = given.id"
        )
        if moved:
            numbers, places, names = zip(*moved, strict=True)
            self._linked().execute(
                query, [list(numbers), list(places), list(map(_clean, names)), self._space]
            )

    def _drop(self, numbers: Sequence[int]) -> int:
        """Deletes chunks, and says how many words they had."""
        where = "WHERE space = %s AND id = ANY(%s)"
        found = self._asked(f"SELECT coalesce(sum(size), 0) FROM term {where}", self._space, list(numbers))  # noqa: S608
        for table in ("chunk", "term", "vec") if numbers else ():
            self._linked().execute(f"DELETE FROM {table} {where}", [self._space, list(numbers)])  # noqa: S608
        return int(found[0][0])

    def _learn(self, words: Collection[str]) -> None:
        """Asks the server for the stems that are not known yet."""
        if len(self._stems) > STEMS:
            self._stems.clear()
        missing = [word for word in words if word not in self._stems]
        query = "SELECT word, (ts_lexize('lamina_stem', word))[1] FROM unnest(%s::text[]) AS given (word)"
        for word, stem in self._asked(query, missing) if missing else ():
            self._stems[word] = stem or word

    def _tsvector(self, words: Sequence[str]) -> str:
        """Each stem behind the number of its workspace, at as many positions as it occurs."""
        times = Counter(self._stems[word] for word in words)
        return " ".join(
            f"'{self._space}:{stem}':{','.join(map(str, range(1, min(amount, 255) + 1)))}"
            for stem, amount in times.items()
        )

    def _queries(self, words: Collection[str]) -> list[str]:
        cut = [word[:LONGEST] for word in words]
        self._learn(cut)
        return [f"'{self._space}:{self._stems[word]}'" for word in cut]

    def _check(self, wanted: bytes) -> None:
        same_length([wanted], self._asked("SELECT width FROM space WHERE number = %s", self._space)[0][0])

    def _compared(self) -> Vectors:
        """All vectors in this process, brought up to date where somebody has written since."""
        stamp = self._asked("SELECT stamp FROM space WHERE number = %s", self._space)[0][0]
        vectors = self._vectors if self._vectors is not None else Vectors()
        if stamp != self._stamp:
            there = {number for (number,) in self._asked("SELECT id FROM vec WHERE space = %s", self._space)}
            vectors.drop(vectors.numbers - there)
            query = "SELECT id, vector FROM vec WHERE space = %s AND id = ANY(%s)"
            found = self._asked(query, self._space, sorted(there - vectors.numbers))
            vectors.add([number for number, _ in found], [blob for _, blob in found])
            self._vectors, self._stamp = vectors, stamp
        return vectors


def _row(values: Sequence[Any]) -> ChunkRow:
    number, source, nth, *rest = values
    return row_of(number, source, nth, rest)


def _only(sources: Collection[str] | None) -> list[str] | None:
    return None if sources is None else list(map(_clean, sources))


def _clean(text: str) -> str:
    return text.replace("\x00", "\ufffd")


def _as_vector(blob: bytes) -> bytes:
    """A packed vector as pgvector reads it: its length, two bytes, and its numbers the other way round."""
    width = len(blob) // 4
    return struct.pack(f">HH{width}f", width, 0, *struct.unpack(f"={width}f", blob))


def _as_text(blob: bytes) -> str:
    return f"[{','.join(map(repr, struct.unpack(f'={len(blob) // 4}f', blob)))}]"


def _words(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
