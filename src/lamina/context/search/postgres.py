"""An index in PostgreSQL, for many processes on many machines: text search for words, pgvector for meaning.

    async with open_postgres_index("postgresql://lamina@db/chats", workspace="team") as index:
        await index.replace("docs/spec.md", chunks_of("docs/spec.md", text))

It finds what SQLite finds: words are split here, stemmed by the server, and scored by BM25. pgvector compares
every vector. If the server has no pgvector, vectors are bytes that are compared in this process, and
`index.notes` says so. PostgreSQL cannot store a NUL, so it becomes U+FFFD. Needs the extra "postgres".

Rows begin with the number of their workspace. In a `tsvector` each word follows that number, so one GIN index
serves all workspaces and none can see or count another's words.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import chain
from typing import Any

import psycopg
from psycopg import sql

from lamina.context.search.chunk_tables import (
    Candidate,
    ChunkChanges,
    ChunkRow,
    Neighbour,
    chunk_values,
    digest_of,
    index_text,
    make_row,
    plan_addition,
    plan_replacement,
)
from lamina.context.search.chunks import Chunk
from lamina.context.search.index import TRIES, Embedder, Index, open_with_tables, source_is_busy
from lamina.context.search.vectors import Vectors, common_length
from lamina.context.search.words import RememberedStems, split_folded
from lamina.errors import BadInput, Broken, StoreError

__all__ = ["open_postgres_index"]

NO_PGVECTOR = "the server has no pgvector: vectors are compared in this process"
LONGEST_WORD = 200
"""Characters of a word that are looked at."""

ROW = "SELECT id, source, nth, text, place, head, section, speaker, at, sort FROM chunk WHERE space = %s"
COUNTS = (
    "SELECT word, (SELECT count(*) FROM (SELECT FROM term WHERE words @@ query LIMIT %s) AS matching) "
    "FROM unnest(%s::text[], %s::tsquery[]) AS given (word, query)"
)
TOTALS = "SELECT chunks, words::float8 / greatest(chunks, 1) FROM space WHERE number = %s"
MATCHES = """
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
# ts_rank of one word that occurs n times is (1 + 1/4 + … + 1/n²) · 6/π². The difference to 1, times π²/6, is
# about 1 / (n + ½). So n, which is `times`, is about 1 / (π²/6 · (1 - ts_rank)) - ½.
NEAR = """
WITH scored AS MATERIALIZED (
    SELECT id, -(vector <#> %(wanted)s::vector) AS near FROM vec
    WHERE space = %(space)s AND (%(only)s::text[] IS NULL OR id IN (
        SELECT id FROM chunk WHERE space = %(space)s AND source = ANY(%(only)s::text[])))
), ends AS (SELECT min(near) AS low, max(near) AS high FROM scored),
best AS (SELECT id, near FROM scored ORDER BY near DESC LIMIT %(most)s)
SELECT id, near, low, high FROM ends,
    (SELECT id, near FROM best UNION SELECT id, near FROM scored WHERE id = ANY(%(also)s::bigint[])) AS found
"""
CANDIDATES = "SELECT id, speaker, at, sort FROM chunk WHERE space = %s AND id = ANY(%s)"
NEIGHBOURS = (  # the limit keeps the server from reading all chunks, however few it takes them for
    "SELECT c.id, n.nth - c.nth, length(n.text), n.id, n.speaker, n.at, n.sort "
    "FROM chunk c CROSS JOIN LATERAL (SELECT * FROM chunk WHERE space = c.space AND source = c.source "
    "AND nth BETWEEN c.nth - %(reach)s AND c.nth + %(reach)s LIMIT 2 * %(reach)s + 1) AS n "
    "WHERE c.space = %(space)s AND c.id = ANY(%(ids)s) AND n.nth != c.nth AND n.section = c.section"
)
SPEAKERS = (  # one step through the index for each
    "WITH RECURSIVE people (name) AS (SELECT min(speaker) FROM chunk WHERE space = %(space)s UNION ALL "
    "SELECT (SELECT min(speaker) FROM chunk WHERE space = %(space)s AND speaker > name) FROM people "
    "WHERE name IS NOT NULL) SELECT name FROM people WHERE name != '' LIMIT 1000"
)

Link = psycopg.Connection[tuple[object, ...]]

VERSION = 1
CONNECT_TIMEOUT = 15
"""Seconds."""

SETTINGS = {"synchronous_commit": "on", "statement_timeout": "60s", "lock_timeout": "30s"}
"""What was acknowledged is durable. A writer waits for the lock while another writes to the workspace."""

_TABLES = """
CREATE TEXT SEARCH DICTIONARY lamina_stem (TEMPLATE = snowball, Language = english);
CREATE TABLE space (
    number bigint GENERATED ALWAYS AS IDENTITY, workspace text COLLATE "C" PRIMARY KEY,
    next bigint NOT NULL DEFAULT 1, chunks bigint NOT NULL DEFAULT 0, words bigint NOT NULL DEFAULT 0,
    width integer NOT NULL DEFAULT 0, stamp bigint NOT NULL DEFAULT 0
);
CREATE TABLE chunk (
    space bigint, id bigint, source text COLLATE "C" NOT NULL, nth integer NOT NULL, digest bytea NOT NULL,
    text text NOT NULL, place text NOT NULL, head text NOT NULL, section text NOT NULL,
    speaker text COLLATE "C" NOT NULL, at text NOT NULL, sort text NOT NULL, PRIMARY KEY (space, id)
);
CREATE INDEX chunk_by_source ON chunk (space, source, nth);
CREATE INDEX chunk_by_speaker ON chunk (space, speaker);
CREATE TABLE term (
    space bigint, id bigint, size integer NOT NULL, words tsvector NOT NULL, PRIMARY KEY (space, id)
);
CREATE INDEX term_by_word ON term USING gin (words) WITH (fastupdate = off);
CREATE TABLE vec (space bigint, id bigint, vector {kind} NOT NULL, PRIMARY KEY (space, id));
CREATE TABLE version (number integer NOT NULL);
"""


@asynccontextmanager
async def open_postgres_index(
    url: str, *, workspace: str, schema: str = "lamina_search", embedder: Embedder | None = None
) -> AsyncIterator[Index]:
    """The index of a workspace in this database. The tables are created if they are missing."""
    for name, value in (("workspace", workspace), ("schema", schema)):
        if not value or "\x00" in value:
            raise BadInput(f"{value!r}", place=name, hint="give it a name")
    async with open_with_tables(partial(PostgresChunkTables, url, workspace, schema), embedder) as index:
        yield index


class PostgresChunkTables:
    """The chunks of one workspace. If the connection was lost, the next call opens a new one."""

    def __init__(self, url: str, workspace: str, schema: str) -> None:
        self._url = url
        self._workspace = workspace
        self._schema = schema
        self._stems = RememberedStems(self._make_stems)
        self._vectors: Vectors | None = None
        self._stamp = -1
        with self.guarded():
            self._connect()

    @property
    def notes(self) -> tuple[str, ...]:
        """Say so if the server has no pgvector: then all vectors are compared in this process."""
        if self._pgvector:
            return ()
        return (NO_PGVECTOR,)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Errors of the server as errors of lamina, each with what to do."""
        try:
            yield
        except (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable) as error:
            problem = f"the search index: it took too long: {_one_line(error)}"
            raise StoreError(problem, hint="nothing was written; try again") from error
        except psycopg.OperationalError as error:
            hint = "is the server running, the address right?"
            raise Broken(f"the search index: {_one_line(error)}", hint=hint) from None
        except psycopg.Error as error:
            raise StoreError(f"the search index: {_one_line(error)}") from error

    def planned(self, source: str, chunks: Sequence[Chunk], *, after: bool) -> ChunkChanges:
        if after:  # their places are decided when they are written
            return plan_addition(None, chunks)
        query = "SELECT digest, id, nth, place FROM chunk WHERE space = %s AND source = %s ORDER BY nth"
        return plan_replacement(self._fetch(query, self._space, _clean(source)), chunks)

    def write(self, source: str, plan: ChunkChanges, vectors: Sequence[bytes | None]) -> bool:
        """Carry out a plan. Its row is locked first, so a workspace has one writer at a time.

        If the chunks of the source are not those that the plan was made for, nothing is written and the
        answer is False: the caller plans again.
        """
        link = self._connection()
        source = _clean(source)
        with link.transaction():
            lock = "SELECT next, width FROM space WHERE number = %s FOR UPDATE"
            first, width = self._fetch(lock, self._space)[0]
            if plan.seen is not None and plan.seen != self._numbers(source):
                return False
            width = common_length([vector for vector in vectors if vector is not None], width)
            sizes = self._insert(source, self._place_new(source, plan), vectors, first)
            self._move(plan.moved)
            dropped_words = self._drop(plan.gone)
            more_chunks = len(plan.new) - len(plan.gone)
            more_words = sum(sizes) - dropped_words
            link.execute(
                "UPDATE space SET next = next + %s, chunks = chunks + %s, words = words + %s, width = %s, "
                "stamp = stamp + 1 WHERE number = %s",
                [len(plan.new), more_chunks, more_words, width, self._space],
            )
        return True

    def remove(self, source: str) -> int:
        """Remove all chunks of a source. Others may add some meanwhile, so it is tried again."""
        for _ in range(TRIES):
            gone = self._numbers(_clean(source))
            if self.write(source, ChunkChanges(gone, [], [], gone), []):
                return len(gone)
        raise source_is_busy(source)

    def sources(self) -> dict[str, int]:
        query = "SELECT source, count(*) FROM chunk WHERE space = %s GROUP BY source ORDER BY source"
        return dict(self._fetch(query, self._space))

    def speakers(self) -> list[str]:
        rows = self._connection().execute(SPEAKERS, {"space": self._space})
        return [str(name) for (name,) in rows]

    def rows(self, numbers: Sequence[int]) -> dict[int, ChunkRow]:
        rows = self._fetch(f"{ROW} AND id = ANY(%s)", self._space, list(numbers))
        return {row[0]: _read_row(row) for row in rows}

    def beside(self, row: ChunkRow, reach: int) -> list[ChunkRow]:
        where = "AND source = %s AND nth BETWEEN %s AND %s AND section = %s ORDER BY nth"
        rows = self._fetch(
            f"{ROW} {where}",
            self._space,
            row.source,
            row.nth - reach,
            row.nth + reach,
            row.chunk.section,
        )
        return [_read_row(one) for one in rows]

    def candidates(self, numbers: Collection[int]) -> list[Candidate]:
        return [Candidate(*row) for row in self._fetch(CANDIDATES, self._space, list(numbers))]

    def neighbours(self, numbers: Collection[int], reach: int) -> list[Neighbour]:
        values = {"reach": reach, "space": self._space, "ids": list(numbers)}
        rows: list[Any] = self._connection().execute(NEIGHBOURS, values).fetchall()
        return [Neighbour(of, away, size, Candidate(*rest)) for of, away, size, *rest in rows]

    def counts(self, words: Sequence[str], most: int) -> dict[str, int]:
        return dict(self._fetch(COUNTS, most, list(words), self._stem_queries(words)))

    def matches(
        self, words: Mapping[str, int], most: int, sources: Collection[str] | None
    ) -> list[tuple[int, float]]:
        """The best chunks with any of the words, weighed as BM25 does. The server counts and sorts."""
        total, mean = self._fetch(TOTALS, self._space)[0]
        # a word that most chunks have would weigh less than nothing
        weights = [max(math.log((total - count + 0.5) / (count + 0.5)), 1e-6) for count in words.values()]
        values = {
            "queries": self._stem_queries(words),
            "weights": weights,
            "mean": max(mean, 1.0),
            "space": self._space,
            "only": _clean_all(sources),
            "most": most,
        }
        return self._connection().execute(MATCHES, values).fetchall()  # type: ignore[return-value]

    def near(
        self, vector: bytes, most: int, sources: Collection[str] | None, also: Collection[int]
    ) -> dict[int, float]:
        """The nearest chunks, with scores from 0 to 1: the best has 1, the worst of all 0.

        Without pgvector the vectors are compared in this process.
        """
        width = self._fetch("SELECT width FROM space WHERE number = %s", self._space)[0][0]
        common_length([vector], width)
        if not self._pgvector:
            return self._near_in_process(vector, most, sources, also)
        values = {
            "wanted": _vector_text(vector),
            "space": self._space,
            "only": _clean_all(sources),
            "most": most,
            "also": list(also),
        }
        rows: list[Any] = self._connection().execute(NEAR, values).fetchall()
        scores = {}
        for number, near, low, high in rows:
            # if all are equally near, each is the nearest
            scores[number] = (near - low) / (high - low) if high > low else 1.0
        return scores

    def close(self) -> None:
        self._link.close()

    def _connect(self) -> None:
        """Connect, and read the number of the workspace."""
        self._link = connect(self._url, self._schema)
        self._space = number_workspace(self._link, self._workspace)
        self._pgvector = has_pgvector(self._link)

    def _connection(self) -> Link:
        """The connection; a new one if the server has ended the last."""
        if self._link.closed:
            self._connect()
        return self._link

    def _fetch(self, query: str, *values: object) -> list[Any]:
        return self._connection().execute(query, values).fetchall()

    def _numbers(self, source: str) -> list[int]:
        """The numbers of the chunks of a source, in order."""
        query = "SELECT id FROM chunk WHERE space = %s AND source = %s ORDER BY nth"
        return [number for (number,) in self._fetch(query, self._space, source)]

    def _place_new(self, source: str, plan: ChunkChanges) -> list[tuple[int, Chunk]]:
        """The new chunks with their places. If they are only added, they follow the last of the source."""
        if plan.seen is not None:
            return plan.new
        query = "SELECT coalesce(max(nth), -1) FROM chunk WHERE space = %s AND source = %s"
        last = self._fetch(query, self._space, source)[0][0]
        return [(last + 1 + nth, chunk) for nth, chunk in plan.new]

    def _insert(
        self, source: str, new: Sequence[tuple[int, Chunk]], vectors: Sequence[bytes | None], first: int
    ) -> list[int]:
        """Add chunks with the numbers from `first` on, and say how many words each has."""
        words_of_chunks = [_list_words(chunk) for _, chunk in new]
        # all stems in one call of the server, before rows are copied in bulk
        self._stems.learn(set(chain.from_iterable(words_of_chunks)))
        cursor = self._connection().cursor()
        with cursor.copy("COPY chunk FROM STDIN") as copy:
            for number, (nth, chunk) in enumerate(new, first):
                values = map(_clean, chunk_values(chunk))
                copy.write_row((self._space, number, source, nth, digest_of(chunk), *values))
        with cursor.copy("COPY term FROM STDIN") as copy:
            for number, words in enumerate(words_of_chunks, first):
                copy.write_row((self._space, number, len(words), self._tsvector(words)))
        pack = _pgvector_bytes if self._pgvector else bytes
        with cursor.copy("COPY vec FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int8", "int8", "bytea"])
            for number, vector in enumerate(vectors, first):
                if vector is not None:
                    copy.write_row((self._space, number, pack(vector)))
        return [len(words) for words in words_of_chunks]

    def _move(self, moved: Sequence[tuple[int, int, str]]) -> None:
        """Give chunks other places. Their text has not changed."""
        if not moved:
            return
        query = (
            "UPDATE chunk SET nth = given.nth, place = given.place FROM "
            "unnest(%s::bigint[], %s::integer[], %s::text[]) AS given (id, nth, place) "
            "WHERE space = %s AND chunk.id = given.id"
        )
        numbers = [number for number, _, _ in moved]
        nths = [nth for _, nth, _ in moved]
        places = [_clean(place) for _, _, place in moved]
        self._connection().execute(query, [numbers, nths, places, self._space])

    def _drop(self, numbers: Sequence[int]) -> int:
        """Delete chunks, and say how many words they had."""
        where = "WHERE space = %s AND id = ANY(%s)"
        values = [self._space, list(numbers)]
        words = self._fetch(f"SELECT coalesce(sum(size), 0) FROM term {where}", *values)[0][0]  # noqa: S608
        if numbers:
            for table in ("chunk", "term", "vec"):
                self._connection().execute(f"DELETE FROM {table} {where}", values)  # noqa: S608
        return int(words)

    def _make_stems(self, words: Sequence[str]) -> dict[str, str]:
        """Ask the server for the stems of words. A word without one is its own stem."""
        query = "SELECT word, (ts_lexize('lamina_stem', word))[1] FROM unnest(%s::text[]) AS given (word)"
        return {word: stem or word for word, stem in self._fetch(query, words)}

    def _tsvector(self, words: Sequence[str]) -> str:
        """Each stem after the number of its workspace, at as many positions as it occurs: `'7:retri':1,2`."""
        lexemes = []
        for stem, amount in Counter(self._stems[word] for word in words).items():
            positions = ",".join(map(str, range(1, min(amount, 255) + 1)))
            lexemes.append(f"'{self._space}:{stem}':{positions}")
        return " ".join(lexemes)

    def _stem_queries(self, words: Collection[str]) -> list[str]:
        """The query for each word: its stem after the number of its workspace, `'7:retri'`."""
        shortened = [word[:LONGEST_WORD] for word in words]
        self._stems.learn(shortened)
        return [f"'{self._space}:{self._stems[word]}'" for word in shortened]

    def _near_in_process(
        self, vector: bytes, most: int, sources: Collection[str] | None, also: Collection[int]
    ) -> dict[int, float]:
        """The nearest chunks, for a server without pgvector."""
        if sources is None:
            return self._load_vectors().near(vector, most, None, also)
        among: list[int] = []
        for source in sources:
            among += self._numbers(_clean(source))
        return self._load_vectors().near(vector, most, among, also)

    def _load_vectors(self) -> Vectors:
        """All vectors in this process, brought up to date if somebody has written since."""
        stamp = self._fetch("SELECT stamp FROM space WHERE number = %s", self._space)[0][0]
        vectors = Vectors() if self._vectors is None else self._vectors
        # only what is new is fetched
        if stamp != self._stamp:
            stored = {number for (number,) in self._fetch("SELECT id FROM vec WHERE space = %s", self._space)}
            vectors.drop(vectors.numbers - stored)
            query = "SELECT id, vector FROM vec WHERE space = %s AND id = ANY(%s)"
            rows = self._fetch(query, self._space, sorted(stored - vectors.numbers))
            vectors.add([number for number, _ in rows], [blob for _, blob in rows])
            self._vectors = vectors
            self._stamp = stamp
        return vectors


def _list_words(chunk: Chunk) -> list[str]:
    """The words of a chunk as they are indexed, long ones cut off."""
    return [word[:LONGEST_WORD] for word in split_folded(index_text(chunk))]


def _read_row(values: Sequence[Any]) -> ChunkRow:
    number, source, nth, *rest = values
    return make_row(number, source, nth, rest)


def _clean_all(sources: Collection[str] | None) -> list[str] | None:
    """The sources as the database can store them; None means all sources."""
    if sources is None:
        return None
    return [_clean(source) for source in sources]


def _clean(text: str) -> str:
    """A text that PostgreSQL can store: it has no character 0."""
    return text.replace("\x00", "\ufffd")


def _pgvector_bytes(vector: bytes) -> bytes:
    """A packed vector as pgvector reads it: its length, two zero bytes, and its numbers, big-endian."""
    width = len(vector) // 4
    return struct.pack(f">HH{width}f", width, 0, *struct.unpack(f"={width}f", vector))


def _vector_text(vector: bytes) -> str:
    """A packed vector as text: `[0.6,0.8]`."""
    width = len(vector) // 4
    numbers = struct.unpack(f"={width}f", vector)
    return f"[{','.join(map(repr, numbers))}]"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def connect(url: str, schema: str) -> Link:
    """A connection to the tables in `schema`. They are created if they are missing."""
    link = _open_connection(url)
    try:
        for name, value in SETTINGS.items():
            link.execute("SELECT set_config(%s, %s, false)", [name, value])
        with link.transaction():
            link.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"lamina {schema}"])
            _create_or_check(link, schema)
        _set_search_path(link, schema)
    except BaseException:
        link.close()
        raise
    return link


def has_pgvector(link: Link) -> bool:
    """Whether the vectors of these tables are pgvector's."""
    row = link.execute(
        "SELECT atttypid::regtype::text FROM pg_attribute "
        "WHERE attrelid = 'vec'::regclass AND attname = 'vector'"
    ).fetchone()
    return bool(row) and row != ("bytea",)


def number_workspace(link: Link, workspace: str) -> int:
    """The number of a workspace. It gets one if it has none."""
    link.execute("INSERT INTO space (workspace) VALUES (%s) ON CONFLICT DO NOTHING", [workspace])
    row = link.execute("SELECT number FROM space WHERE workspace = %s", [workspace]).fetchone()
    if row is None:
        return 0
    return int(str(row[0]))


def _open_connection(url: str) -> Link:
    """Connect to the server. No message repeats the address, which may have a password."""
    try:
        return psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_TIMEOUT, prepare_threshold=None)
    except psycopg.ProgrammingError:  # the message does not repeat the address: it may have a password
        hint = "give it as postgresql://user@host/database"
        raise BadInput("not an address of a PostgreSQL server", place="url", hint=hint) from None


def _create_or_check(link: Link, schema: str) -> None:
    """Create the tables, or check that they are of this version.

    An empty schema is a new one. Tables of something else are never touched.
    """
    if not link.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [schema]).fetchone():
        link.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    _set_search_path(link, schema)
    rows = link.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema])
    table_names = {row[0] for row in rows}
    if not table_names:
        kind = "vector" if _create_pgvector(link) else "bytea"
        _set_search_path(link, schema)
        link.execute(sql.SQL(_TABLES.replace("{kind}", kind)))
        link.execute("INSERT INTO version VALUES (%s)", [VERSION])
        return
    version = None
    if "version" in table_names:
        version = link.execute("SELECT number FROM version").fetchone()
    if version != (VERSION,):
        hint = "give a schema of its own to search; an index can be made again from its sources"
        raise StoreError(f"the schema {schema!r} holds something else", hint=hint)


def _create_pgvector(link: Link) -> bool:
    """Create the extension if the server has it and this user may. False if it does not exist afterwards."""
    try:
        with link.transaction():
            link.execute("CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public")
    except (
        psycopg.errors.FeatureNotSupported,
        psycopg.errors.InsufficientPrivilege,
        psycopg.errors.UndefinedFile,
        psycopg.errors.InvalidSchemaName,
    ):
        return False
    return True


def _set_search_path(link: Link, schema: str) -> None:
    """Look names up in the schema, and in the one where pgvector is."""
    rows = link.execute(
        "SELECT nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace "
        "WHERE extname = 'vector'"
    )
    quoted_names = [_quote_name(schema)]
    for (name,) in rows:
        quoted_names.append(_quote_name(str(name)))
    path = ", ".join(quoted_names)
    link.execute("SELECT set_config('search_path', %s, false)", [path])


def _quote_name(name: str) -> str:
    """A name as PostgreSQL quotes it: in double quotes, with its own quotes doubled."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
