"""Keeps an index in one SQLite database: chunks as they are, their vectors, and their words for FTS5.

Everything is synchronous, for one thread at a time. Many rows are read as one JSON value, since each row by
itself costs more than what is in it. Each chunk is checked against its digest when it is read. This module
knows nothing of fused scores or embedders.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

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
from lamina.context.search.vectors import Vectors
from lamina.context.search.words import match_any
from lamina.errors import BadInput

VERSION = 4
MEMORY = ":memory:"
STORE = 0x6C616D69
"""The application id in the SQLite files of lamina's store of conversations."""

_SELECT = "SELECT id, source, nth, digest, text, place, head, section, speaker, at, sort FROM chunks"
_BY_NUMBER = f"{_SELECT} WHERE id IN (SELECT value FROM json_each(?))"  # noqa: S608 - no value is in it
_BY_PLACE = f"{_SELECT} WHERE source = ? AND nth BETWEEN ? AND ? AND section = ? ORDER BY nth"
_INSERT = (
    "INSERT INTO chunks (source, nth, digest, text, place, head, section, speaker, at, sort) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_NUMBERS_IN = "SELECT json_group_array(id) FROM chunks WHERE source IN (SELECT value FROM json_each(?))"
_CANDIDATES = (
    "SELECT json_group_array(json_array(id, speaker, at, sort)) FROM chunks "
    "WHERE id IN (SELECT value FROM json_each(?))"
)
_NEIGHBOURS = (
    "SELECT json_group_array(json_array(c.id, n.nth - c.nth, length(n.text), "
    "json_array(n.id, n.speaker, n.at, n.sort))) "
    "FROM json_each(?) CROSS JOIN chunks c ON c.id = value CROSS JOIN chunks n ON n.source = c.source "
    "AND n.nth BETWEEN c.nth - ? AND c.nth + ? AND n.nth != c.nth AND n.section = c.section"
)
_SPEAKERS = (  # one step through the index for each
    "WITH RECURSIVE people (name) AS (SELECT min(speaker) FROM chunks UNION ALL "
    "SELECT (SELECT min(speaker) FROM chunks WHERE speaker > name) FROM people WHERE name IS NOT NULL) "
    "SELECT name FROM people WHERE name != '' LIMIT 1000"
)
_TABLES = (
    """CREATE TABLE chunks (
    id INTEGER PRIMARY KEY, source TEXT NOT NULL, nth INTEGER NOT NULL, digest BLOB NOT NULL,
    text TEXT NOT NULL, place TEXT NOT NULL, head TEXT NOT NULL, section TEXT NOT NULL,
    speaker TEXT NOT NULL, at TEXT NOT NULL, sort TEXT NOT NULL
)""",
    "CREATE TABLE vectors (id INTEGER PRIMARY KEY, vector BLOB NOT NULL)",
    "CREATE INDEX chunks_by_source ON chunks (source, nth)",
    "CREATE INDEX chunks_by_speaker ON chunks (speaker)",
    "CREATE INDEX chunks_by_time ON chunks (at) WHERE at != ''",
    "CREATE VIRTUAL TABLE words USING fts5 (body, tokenize = 'porter unicode61')",
)
_COUNT_MATCHES = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)"
_MATCHES = "SELECT rowid, -bm25(words) AS score FROM words WHERE words MATCH ? ORDER BY score DESC, rowid"
_MAKE_AGAIN = "an index can be made again: remove its file"
_DIGEST = 16
"""Bytes of the digest of a chunk. The checksum of its place follows."""

_decode_numbers = msgspec.json.Decoder(set[int]).decode
_decode_candidates = msgspec.json.Decoder(list[Candidate]).decode
_decode_neighbours = msgspec.json.Decoder(list[Neighbour]).decode


class SqliteChunkTables:
    """Chunks in the file at `path`, or in memory. Vectors are loaded into memory when they are first used."""

    def __init__(self, path: str) -> None:
        self._link = _connect(path)
        self._in_file = path != MEMORY
        self._vectors: Vectors | None = None

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Errors of SQLite, and what a damaged file leads to, as BadInput: the index can be made again."""
        try:
            yield
        except sqlite3.Error as error:
            raise BadInput(str(error), place="index", hint=_MAKE_AGAIN) from error
        except (TypeError, KeyError, ValueError, ArithmeticError, msgspec.MsgspecError) as error:
            problem = f"what stands in it makes no sense ({type(error).__name__}: {error})"
            raise BadInput(problem, place="index", hint=_MAKE_AGAIN) from error

    def planned(self, source: str, chunks: Sequence[Chunk], *, after: bool) -> ChunkChanges:
        """What has to be written so that a source has these chunks, besides what is there."""
        if after:
            query = "SELECT max(nth) FROM chunks WHERE source = ?"
            last = self._link.execute(query, (source,)).fetchone()[0]
            return plan_addition(last, chunks)
        query = "SELECT digest, id, nth, place FROM chunks WHERE source = ? ORDER BY nth"
        stored = []
        for digest, number, nth, place in self._link.execute(query, (source,)):
            stored.append((bytes(digest)[:_DIGEST], number, nth, place))
        return plan_replacement(stored, chunks)

    def write(self, source: str, plan: ChunkChanges, vectors: Sequence[bytes | None]) -> None:
        """Carry out a plan. Vectors are checked before anything is written, and loaded only if needed."""
        new_vectors = [vector for vector in vectors if vector is not None]
        if not new_vectors and self._vectors is None:
            self._write_rows(source, plan, vectors)
            return
        loaded = self._load_vectors()
        loaded.check(new_vectors)
        numbers = self._write_rows(source, plan, vectors)
        loaded.drop(plan.gone)
        pairs = zip(numbers, vectors, strict=True)
        numbers_with_vector = [number for number, vector in pairs if vector is not None]
        loaded.add(numbers_with_vector, new_vectors)

    def remove(self, source: str) -> int:
        """Remove a source, and leave no byte of it in the file."""
        rows = self._link.execute("SELECT id FROM chunks WHERE source = ?", (source,))
        gone = [number for (number,) in rows]
        self.write(source, ChunkChanges(gone, [], []), [])
        if gone and self._in_file:
            self._link.execute("INSERT INTO words (words) VALUES ('optimize')")  # its lists hold old words
            self._link.execute("VACUUM")
            self._link.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return len(gone)

    def sources(self) -> dict[str, int]:
        query = "SELECT source, count(*) FROM chunks GROUP BY source ORDER BY source"
        return dict(self._link.execute(query).fetchall())

    def speakers(self) -> list[str]:
        return [name for (name,) in self._link.execute(_SPEAKERS)]

    def rows(self, numbers: Sequence[int]) -> dict[int, ChunkRow]:
        rows = self._link.execute(_BY_NUMBER, (_encode_list(numbers),))
        return {row[0]: _read_row(row) for row in rows}

    def beside(self, row: ChunkRow, reach: int) -> list[ChunkRow]:
        values = (row.source, row.nth - reach, row.nth + reach, row.chunk.section)
        return [_read_row(one) for one in self._link.execute(_BY_PLACE, values)]

    def candidates(self, numbers: Collection[int]) -> list[Candidate]:
        return _decode_candidates(self._fetch_value(_CANDIDATES, _encode_list(numbers)))

    def neighbours(self, numbers: Collection[int], reach: int) -> list[Neighbour]:
        return _decode_neighbours(self._fetch_value(_NEIGHBOURS, _encode_list(numbers), reach, reach))

    def counts(self, words: Sequence[str], most: int) -> dict[str, int]:
        """How many chunks have each word, counted up to `most`."""
        counts = {}
        for word in words:
            row = self._link.execute(_COUNT_MATCHES, (match_any([word]), most)).fetchone()
            counts[word] = row[0]
        return counts

    def matches(
        self, words: Collection[str], most: int, sources: Collection[str] | None
    ) -> list[tuple[int, float]]:
        """The best chunks with any of the words, by FTS5's BM25; more is better."""
        among = self._numbers_of(sources)
        best: list[tuple[int, float]] = []
        for number, score in self._link.execute(_MATCHES, (match_any(words),)):
            if among is None or number in among:
                best.append((number, score))
            if len(best) == most:
                break
        return best

    def near(
        self, vector: bytes, most: int, sources: Collection[str] | None, also: Collection[int]
    ) -> dict[int, float]:
        return self._load_vectors().near(vector, most, self._numbers_of(sources), also)

    def close(self) -> None:
        self._link.close()

    def _numbers_of(self, sources: Collection[str] | None) -> set[int] | None:
        """The numbers of all chunks of these sources; None if the search is not limited to some."""
        if sources is None:
            return None
        return _decode_numbers(self._fetch_value(_NUMBERS_IN, _encode_list(sources)))

    def _fetch_value(self, query: str, *values: str | int) -> str:
        value: str = self._link.execute(query, values).fetchone()[0]
        return value

    def _load_vectors(self) -> Vectors:
        """The vectors, read from the database the first time."""
        if self._vectors is None:
            vectors = Vectors()
            rows = self._link.execute("SELECT id, vector FROM vectors").fetchall()
            vectors.add([number for number, _ in rows], [blob for _, blob in rows])
            self._vectors = vectors
        return self._vectors

    def _write_rows(self, source: str, plan: ChunkChanges, vectors: Sequence[bytes | None]) -> list[int]:
        """Carry out a plan in one transaction, and return the numbers of the new chunks."""
        numbers = []
        self._link.execute("BEGIN IMMEDIATE")
        try:
            self._drop(plan.gone)
            for number, nth, place in plan.moved:
                self._move(number, source, nth, place)
            for (nth, chunk), vector in zip(plan.new, vectors, strict=True):
                numbers.append(self._insert(source, nth, chunk, vector))
            self._link.execute("COMMIT")
        finally:
            # SQLite itself has ended it if the disk is full. An error of ROLLBACK would then hide that one.
            if self._link.in_transaction:
                self._link.execute("ROLLBACK")
        return numbers

    def _insert(self, source: str, nth: int, chunk: Chunk, vector: bytes | None) -> int:
        """Store a chunk with its words and vector, and return its number."""
        checked_digest = digest_of(chunk) + _checksum_place(source, nth, chunk.place)
        values = (source, nth, checked_digest, *chunk_values(chunk))
        number = self._link.execute(_INSERT, values).lastrowid or 0
        self._link.execute("INSERT INTO words (rowid, body) VALUES (?, ?)", (number, index_text(chunk)))
        if vector is not None:
            self._link.execute("INSERT INTO vectors VALUES (?, ?)", (number, vector))
        return number

    def _move(self, number: int, source: str, nth: int, place: str) -> None:
        """Give a chunk another place. Its text has not changed."""
        [digest] = self._link.execute("SELECT digest FROM chunks WHERE id = ?", (number,)).fetchone()
        checked_digest = bytes(digest)[:_DIGEST] + _checksum_place(source, nth, place)
        sql = "UPDATE chunks SET nth = ?, place = ?, digest = ? WHERE id = ?"
        self._link.execute(sql, (nth, place, checked_digest, number))

    def _drop(self, numbers: Sequence[int]) -> None:
        """Remove chunks with their words and vectors."""
        rows = [(number,) for number in numbers]
        self._link.executemany("DELETE FROM words WHERE rowid = ?", rows)
        self._link.executemany("DELETE FROM vectors WHERE id = ?", rows)
        self._link.executemany("DELETE FROM chunks WHERE id = ?", rows)


def _connect(path: str) -> sqlite3.Connection:
    """A connection to the index at `path`, or in memory, with its tables in place."""
    if path != MEMORY:
        _make_private(path)
    link = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        link.execute("PRAGMA journal_mode = WAL")
        link.execute("PRAGMA secure_delete = ON")
        link.execute("PRAGMA synchronous = NORMAL")
        link.execute("PRAGMA cache_size = -65536")
        _create_or_check(link)
    except sqlite3.DatabaseError as error:
        link.close()
        hint = "give a path of its own to an index"
        raise BadInput(f"{path!r}: {error}", place="index", hint=hint) from error
    except BaseException:
        link.close()
        raise
    return link


def _make_private(path: str) -> None:
    """Make the file readable for its owner only, since it holds what was said. It is created if missing."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        for name in (path, f"{path}-wal", f"{path}-shm"):
            with suppress(FileNotFoundError, PermissionError):
                Path(name).chmod(0o600)
    except OSError as error:
        problem = f"{path!r}: {error.strerror}"
        raise BadInput(problem, place="index", hint="check the folder and its permissions") from error


def _check_no_store(link: sqlite3.Connection) -> None:
    """Refuse a store of conversations: an index in it would put their text there in the clear."""
    if link.execute("PRAGMA application_id").fetchone()[0] != STORE:
        return
    hint = "give a path of its own to an index, or none: then it is in memory"
    raise BadInput("it is a store of conversations", place="index", hint=hint)


def _create_or_check(link: sqlite3.Connection) -> None:
    """Create the tables, unless they are there. Raises BadInput for a file that holds something else."""
    _check_no_store(link)
    if _has_tables(link):
        return
    link.execute("BEGIN IMMEDIATE")
    try:
        if not _has_tables(link):  # another process may have been first
            for statement in _TABLES:
                link.execute(statement)
            link.execute(f"PRAGMA user_version = {VERSION}")
        link.execute("COMMIT")
    finally:
        if link.in_transaction:
            link.execute("ROLLBACK")


def _has_tables(link: sqlite3.Connection) -> bool:
    """Whether the tables were made. Raises BadInput if they are of another version, or not of an index."""
    version = link.execute("PRAGMA user_version").fetchone()[0]
    if version == VERSION:
        return True
    rows = link.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    names = {name for (name,) in rows}
    if {"chunks", "words"} <= names:
        problem = f"it has version {version}, and this lamina reads version {VERSION}"
        raise BadInput(problem, place="index", hint=_MAKE_AGAIN)
    if names:
        raise BadInput("it holds something else", place="index", hint="give a path of its own to an index")
    return False


def _read_row(values: Sequence[Any]) -> ChunkRow:
    """A chunk as it was stored. Raises BadInput if it was changed since, because its text goes to a model."""
    number, source, nth, digest, *rest = values
    row = make_row(number, source, nth, rest)
    checked_digest = digest_of(row.chunk) + _checksum_place(source, nth, row.chunk.place)
    if digest != checked_digest:
        raise BadInput(f"chunk {number} is not what was put in", place="index", hint=_MAKE_AGAIN)
    return row


def _checksum_place(source: str, nth: int, place: str) -> bytes:
    """Four bytes that differ if a chunk was moved to another source or place behind lamina's back."""
    return zlib.crc32(msgspec.msgpack.encode((source, nth, place))).to_bytes(4)


def _encode_list(values: Collection[int] | Collection[str]) -> str:
    """Many values as one argument of a statement: `IN (SELECT value FROM json_each(?))`."""
    return msgspec.json.encode(sorted(values)).decode()
