"""The tables of an index in one SQLite database: chunks as they are, their vectors, and their words for FTS5.

Synchronous, for one thread at a time. Everything in it can be made again from its sources, so a file of
another version is emptied, not migrated (but see `WITHOUT_PLACE_SUMS`). What has many rows is read as one
JSON value: each row by itself costs more than what is in it. What is given out of it is what was put in:
each chunk is checked against its digest. It knows nothing of fused scores or embedders.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from lamina.context.search import postings
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
from lamina.context.search.vectors import Vectors
from lamina.errors import BadInput, KeyNeeded

VERSION = 3
WITHOUT_PLACE_SUMS = 2
"""A version whose tables are read and written as they are; its older rows lack the sum of their place."""

MEMORY = ":memory:"
STORE = 0x6C616D69
"""What a store of lamina says in the place where SQLite files name their application."""

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
_TABLES = """
CREATE TABLE chunks (
    id INTEGER PRIMARY KEY, source TEXT NOT NULL, nth INTEGER NOT NULL, digest BLOB NOT NULL,
    text TEXT NOT NULL, place TEXT NOT NULL, head TEXT NOT NULL, section TEXT NOT NULL,
    speaker TEXT NOT NULL, at TEXT NOT NULL, sort TEXT NOT NULL
);
CREATE TABLE vectors (id INTEGER PRIMARY KEY, vector BLOB NOT NULL);
CREATE INDEX chunks_by_source ON chunks (source, nth);
CREATE INDEX chunks_by_speaker ON chunks (speaker);
CREATE INDEX chunks_by_time ON chunks (at) WHERE at != '';
"""
_MAKE_AGAIN = "an index can be made again: remove its file"
_DIGEST = 16
"""Bytes of the digest of a chunk. Behind it stands the sum of its place, but for rows of an older release."""

_EMPTY = " ".join(f"DROP TABLE IF EXISTS {name};" for name in ("words", "chunks", "vectors", "totals"))

_numbers = msgspec.json.Decoder(set[int])
_candidates = msgspec.json.Decoder(list[Candidate])
_neighbours = msgspec.json.Decoder(list[Beside])


class SqliteShelf:
    """Chunks in the file at `path`, or in memory; their vectors in memory too, once they are asked for."""

    def __init__(self, path: str) -> None:
        self._link = _connected(path)
        self._in_file = path != MEMORY
        self._vectors: Vectors | None = None
        try:
            self._postings = postings.Postings(self._link)
        except BaseException:
            self._link.close()
            raise

    @property
    def notes(self) -> tuple[str, ...]:
        return ()

    @contextmanager
    def guarded(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise BadInput(str(error), place="index", hint=_MAKE_AGAIN) from error
        except (TypeError, KeyError, ValueError, ArithmeticError, msgspec.MsgspecError) as error:
            problem = f"what stands in it makes no sense ({type(error).__name__}: {error})"
            raise BadInput(problem, place="index", hint=_MAKE_AGAIN) from error

    def planned(self, source: str, chunks: Sequence[Chunk], *, after: bool) -> ChunkChanges:
        if after:
            last = self._link.execute("SELECT max(nth) FROM chunks WHERE source = ?", (source,)).fetchone()[0]
            return plan_after(last, chunks)
        query = "SELECT digest, id, nth, place FROM chunks WHERE source = ? ORDER BY nth"
        there = self._link.execute(query, (source,))
        return plan_of(((bytes(digest)[:_DIGEST], *rest) for digest, *rest in there), chunks)

    def write(self, source: str, plan: ChunkChanges, vectors: Sequence[bytes | None]) -> bool:
        """Always True: one process has the file, and one call at a time."""
        given = [one for one in vectors if one is not None]
        compared = self._loaded() if given or self._vectors is not None else None
        if compared is not None:
            compared.check(given)
        made = self._written(source, plan, vectors)
        if compared is not None:
            compared.drop(plan.gone)
            pairs = [(number, blob) for number, blob in zip(made, vectors, strict=True) if blob is not None]
            compared.add([number for number, _ in pairs], [blob for _, blob in pairs])
        return True

    def remove(self, source: str) -> int:
        """Forgets a source, and leaves no byte of it in the file."""
        found = self._link.execute("SELECT id FROM chunks WHERE source = ?", (source,))
        gone = [number for (number,) in found]
        self.write(source, ChunkChanges(gone, [], []), [])
        if gone and self._in_file:
            self._postings.merge()
            self._link.execute("VACUUM")
            self._link.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return len(gone)

    def sources(self) -> dict[str, int]:
        query = "SELECT source, count(*) FROM chunks GROUP BY source ORDER BY source"
        return dict(self._link.execute(query).fetchall())

    def speakers(self) -> list[str]:
        return [name for (name,) in self._link.execute(_SPEAKERS)]

    def rows(self, numbers: Sequence[int]) -> dict[int, ChunkRow]:
        found = self._link.execute(_BY_NUMBER, (_listed(numbers),))
        return {row[0]: _row(row) for row in found}

    def beside(self, row: ChunkRow, reach: int) -> list[ChunkRow]:
        asked = (row.source, row.nth - reach, row.nth + reach, row.chunk.section)
        return [_row(one) for one in self._link.execute(_BY_PLACE, asked)]

    def candidates(self, numbers: Collection[int]) -> list[Candidate]:
        return _candidates.decode(self._value(_CANDIDATES, _listed(numbers)))

    def neighbours(self, numbers: Collection[int], reach: int) -> list[Beside]:
        return _neighbours.decode(self._value(_NEIGHBOURS, _listed(numbers), reach, reach))

    def counts(self, words: Sequence[str], most: int) -> dict[str, int]:
        return self._postings.counts(words, most)

    def matches(
        self, words: Mapping[str, int], most: int, sources: Collection[str] | None
    ) -> list[tuple[int, float]]:
        return self._postings.matches(words, most, self._among(sources))

    def near(
        self, wanted: bytes, most: int, sources: Collection[str] | None, also: Collection[int]
    ) -> dict[int, float]:
        return self._loaded().near(wanted, most, self._among(sources), also)

    def close(self) -> None:
        self._link.close()

    def _among(self, sources: Collection[str] | None) -> set[int] | None:
        return None if sources is None else _numbers.decode(self._value(_NUMBERS_IN, _listed(sources)))

    def _value(self, query: str, *given: str | int) -> str:
        found: str = self._link.execute(query, given).fetchone()[0]
        return found

    def _loaded(self) -> Vectors:
        """The vectors, read from the database the first time."""
        if self._vectors is None:
            vectors = Vectors()
            rows = self._link.execute("SELECT id, vector FROM vectors").fetchall()
            vectors.add([number for number, _ in rows], [blob for _, blob in rows])
            self._vectors = vectors
        return self._vectors

    def _written(self, source: str, plan: ChunkChanges, vectors: Sequence[bytes | None]) -> list[int]:
        self._link.execute("BEGIN IMMEDIATE")
        try:
            self._drop(plan.gone)
            for number, nth, place in plan.moved:
                self._move(number, source, nth, place)
            pairs = zip(plan.new, vectors, strict=True)
            made = [self._insert(source, nth, chunk, blob) for (nth, chunk), blob in pairs]
            self._link.execute("COMMIT")
        except BaseException:
            self._link.execute("ROLLBACK")
            raise
        return made

    def _insert(self, source: str, nth: int, chunk: Chunk, vector: bytes | None) -> int:
        summed = digest_of(chunk) + _place_sum(source, nth, chunk.place)
        values = (source, nth, summed, *values_of(chunk))
        number = self._link.execute(_INSERT, values).lastrowid or 0
        self._postings.add(number, searched(chunk))
        if vector is not None:
            self._link.execute("INSERT INTO vectors VALUES (?, ?)", (number, vector))
        return number

    def _move(self, number: int, source: str, nth: int, place: str) -> None:
        """A chunk that stands elsewhere now; what it says has not changed."""
        [digest] = self._link.execute("SELECT digest FROM chunks WHERE id = ?", (number,)).fetchone()
        summed = bytes(digest)[:_DIGEST] + _place_sum(source, nth, place)
        sql = "UPDATE chunks SET nth = ?, place = ?, digest = ? WHERE id = ?"
        self._link.execute(sql, (nth, place, summed, number))

    def _drop(self, numbers: Sequence[int]) -> None:
        rows = [(number,) for number in numbers]
        self._postings.drop(numbers)
        self._link.executemany("DELETE FROM vectors WHERE id = ?", rows)
        self._link.executemany("DELETE FROM chunks WHERE id = ?", rows)


def _connected(path: str) -> sqlite3.Connection:
    """A connection to the index at `path`, or in memory, with its tables in place."""
    if path != MEMORY:
        _make_private(path)
    link = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        link.execute("PRAGMA journal_mode = WAL")
        link.execute("PRAGMA secure_delete = ON")
        link.execute("PRAGMA synchronous = NORMAL")
        link.execute("PRAGMA cache_size = -65536")
        _bring_up(link)
    except sqlite3.DatabaseError as error:
        link.close()
        hint = "give a path of its own to an index"
        raise BadInput(f"{path!r}: {error}", place="index", hint=hint) from error
    except BaseException:
        link.close()
        raise
    return link


def _make_private(path: str) -> None:
    """A file for its owner alone, since it holds what was said: a new one, or one that others could read."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        for each in (path, f"{path}-wal", f"{path}-shm"):
            with suppress(FileNotFoundError, PermissionError):
                Path(each).chmod(0o600)
    except OSError as error:
        problem = f"{path!r}: {error.strerror}"
        raise BadInput(problem, place="index", hint="check the folder and its permissions") from error


def _check_no_store(link: sqlite3.Connection) -> None:
    """Refuses a store of conversations, in which an index would be plain text beside them."""
    if link.execute("PRAGMA application_id").fetchone()[0] != STORE:
        return
    sealed = "SELECT 1 FROM conversation WHERE workspace = 'lamina.sealed' AND name = 'header'"
    if link.execute(sealed).fetchone():
        raise KeyNeeded(
            "this is a sealed store", hint="open its index with its key: open_search(Sealed(...))"
        )
    hint = "give a path of its own to an index, or keep it in the store: lamina.sessions.search.open_search"
    raise BadInput("it is a store of conversations", place="index", hint=hint)


def _bring_up(link: sqlite3.Connection) -> None:
    _check_no_store(link)
    version = link.execute("PRAGMA user_version").fetchone()[0]
    names = [name for (name,) in link.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    if version in (VERSION, WITHOUT_PLACE_SUMS):
        return
    if names and not {"chunks", "words"} <= set(names):
        raise BadInput("it holds something else", place="index", hint="give a path of its own to an index")
    link.executescript(
        f"BEGIN IMMEDIATE; {_EMPTY} {_TABLES} {postings.TABLES} PRAGMA user_version = {VERSION}; COMMIT;"
    )


def _row(values: Sequence[Any]) -> ChunkRow:
    """A chunk as it was put in; BadInput if it is not, since its text goes to a model."""
    number, source, nth, digest, *rest = values
    row = row_of(number, source, nth, rest)
    whole = digest_of(row.chunk) + _place_sum(source, nth, row.chunk.place)
    if digest not in (whole, whole[:_DIGEST]):
        raise BadInput(f"chunk {number} is not what was put in", place="index", hint=_MAKE_AGAIN)
    return row


def _place_sum(source: str, nth: int, place: str) -> bytes:
    """Four bytes by which a chunk that stands under another name or place is noticed."""
    return zlib.crc32(msgspec.msgpack.encode((source, nth, place))).to_bytes(4)


def _listed(values: Collection[int] | Collection[str]) -> str:
    """Many values as one of a statement: `IN (SELECT value FROM json_each(?))`."""
    return msgspec.json.encode(sorted(values)).decode()
