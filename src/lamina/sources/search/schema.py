"""The tables of an index, in one SQLite database: chunks as they are, and their words for FTS5.

Synchronous, for one thread at a time. Everything in it can be made again from its sources, so a file of
another version is emptied, not migrated. It knows nothing of scores or embedders.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from lamina.errors import BadInput
from lamina.sources.search.chunks import Chunk
from lamina.sources.search.words import folded

VERSION = 1

_SELECT = "SELECT id, source, nth, text, place, head, section, speaker, at, sort FROM chunks"
_BY_NUMBER = f"{_SELECT} WHERE id IN (SELECT value FROM json_each(?))"  # noqa: S608 - no value is in it
_BY_PLACE = f"{_SELECT} WHERE source = ? AND nth BETWEEN ? AND ? ORDER BY nth"
_INSERT = (
    "INSERT INTO chunks (source, nth, digest, text, place, head, section, speaker, at, sort, vector) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_TABLES = """
CREATE TABLE chunks (
    id INTEGER PRIMARY KEY, source TEXT NOT NULL, nth INTEGER NOT NULL, digest BLOB NOT NULL,
    text TEXT NOT NULL, place TEXT NOT NULL, head TEXT NOT NULL, section TEXT NOT NULL,
    speaker TEXT NOT NULL, at TEXT NOT NULL, sort TEXT NOT NULL, vector BLOB
);
CREATE INDEX chunks_by_source ON chunks (source, nth);
CREATE INDEX chunks_by_speaker ON chunks (speaker);
CREATE INDEX chunks_by_time ON chunks (at) WHERE at != '';
CREATE VIRTUAL TABLE words USING fts5 (body, tokenize = 'porter unicode61');
"""


class Row(msgspec.Struct, frozen=True):
    """A chunk with its number in the index, its source and its place among the source's chunks."""

    id: int
    source: str
    nth: int
    chunk: Chunk


class Plan(msgspec.Struct, frozen=True):
    """What a source's chunks change in the index."""

    gone: list[int]
    moved: list[tuple[int, int, str]]
    new: list[tuple[int, Chunk]]


def connect(path: str) -> sqlite3.Connection:
    """A connection to the index at `path`, or in memory, with its tables in place."""
    link = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        link.execute("PRAGMA journal_mode = WAL")
        link.execute("PRAGMA synchronous = NORMAL")
        link.execute("PRAGMA cache_size = -65536")
        _bring_up(link)
    except sqlite3.DatabaseError as error:
        link.close()
        raise BadInput(
            f"{path!r}: {error}", place="index", hint="give a path of its own to an index"
        ) from error
    return link


def _bring_up(link: sqlite3.Connection) -> None:
    version = link.execute("PRAGMA user_version").fetchone()[0]
    names = [name for (name,) in link.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    if version == VERSION:
        return
    if names and not {"chunks", "words"} <= set(names):
        raise BadInput("it holds something else", place="index", hint="give a path of its own to an index")
    link.executescript(
        f"BEGIN IMMEDIATE; DROP TABLE IF EXISTS words; DROP TABLE IF EXISTS chunks; {_TABLES} "
        f"PRAGMA user_version = {VERSION}; COMMIT;"
    )


def planned(link: sqlite3.Connection, source: str, chunks: Sequence[Chunk], *, after: bool) -> Plan:
    """What to change so that a source has these chunks; one that is already there keeps its number."""
    if after:
        last = link.execute("SELECT max(nth) FROM chunks WHERE source = ?", (source,)).fetchone()[0]
        return Plan([], [], list(enumerate(chunks, start=0 if last is None else last + 1)))
    there: dict[bytes, list[tuple[int, int, str]]] = {}
    rows = link.execute(
        "SELECT digest, id, nth, place FROM chunks WHERE source = ? ORDER BY nth DESC", (source,)
    )
    for digest, number, nth, place in rows:
        there.setdefault(digest, []).append((number, nth, place))
    moved: list[tuple[int, int, str]] = []
    new: list[tuple[int, Chunk]] = []
    for nth, chunk in enumerate(chunks):
        same = there.get(_digest(chunk))
        if not same:
            new.append((nth, chunk))
            continue
        number, was, place = same.pop()
        if (was, place) != (nth, chunk.place):
            moved.append((number, nth, chunk.place))
    return Plan([number for rest in there.values() for number, _, _ in rest], moved, new)


def write(link: sqlite3.Connection, source: str, plan: Plan, vectors: Sequence[bytes | None]) -> list[int]:
    """Carries out a plan in one transaction, and gives the numbers of what is new."""
    link.execute("BEGIN IMMEDIATE")
    try:
        _drop(link, plan.gone)
        link.executemany("UPDATE chunks SET nth = ?2, place = ?3 WHERE id = ?1", plan.moved)
        made = [_insert(link, source, nth, one, it) for (nth, one), it in zip(plan.new, vectors, strict=True)]
        link.execute("COMMIT")
    except BaseException:
        link.execute("ROLLBACK")
        raise
    return made


def _insert(link: sqlite3.Connection, source: str, nth: int, chunk: Chunk, vector: bytes | None) -> int:
    values = (source, nth, _digest(chunk), *_values(chunk), vector)
    number = link.execute(_INSERT, values).lastrowid or 0
    words = folded(f"{chunk.head}\n{chunk.text}" if chunk.head else chunk.text)
    link.execute("INSERT INTO words (rowid, body) VALUES (?, ?)", (number, words))
    return number


def _drop(link: sqlite3.Connection, numbers: Iterable[int]) -> None:
    rows = [(number,) for number in numbers]
    link.executemany("DELETE FROM words WHERE rowid = ?", rows)
    link.executemany("DELETE FROM chunks WHERE id = ?", rows)


def numbers_of(link: sqlite3.Connection, source: str) -> list[int]:
    return [number for (number,) in link.execute("SELECT id FROM chunks WHERE source = ?", (source,))]


def rows_of(link: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, Row]:
    """The chunks with these numbers."""
    found = link.execute(_BY_NUMBER, (numbers_text(numbers),))
    return {row[0]: _row(row) for row in found}


def numbers_text(numbers: Iterable[int]) -> str:
    """Numbers as one value of a statement: `IN (SELECT value FROM json_each(?))`."""
    return f"[{','.join(map(str, numbers))}]"


def beside(link: sqlite3.Connection, row: Row, reach: int) -> list[Row]:
    """The chunks at most so far from one, in its source and section, in order; itself among them."""
    found = link.execute(_BY_PLACE, (row.source, row.nth - reach, row.nth + reach))
    return [one for one in map(_row, found) if one.chunk.section == row.chunk.section]


def _row(values: Sequence[str]) -> Row:
    number, source, nth, text, place, head, section, speaker, at, sort = values
    chunk = msgspec.convert(
        {"text": text, "place": place, "head": head, "section": section, "speaker": speaker, "at": at,
         "sort": sort},
        Chunk,
    )  # fmt: skip
    return Row(int(number), source, int(nth), chunk)


def _values(chunk: Chunk) -> tuple[str, ...]:
    return chunk.text, chunk.place, chunk.head, chunk.section, chunk.speaker, chunk.at, chunk.sort


def _digest(chunk: Chunk) -> bytes:
    """Of everything but the place: a chunk that only moved is the same."""
    parts = (chunk.text, chunk.head, chunk.section, chunk.speaker, chunk.at, chunk.sort)
    return hashlib.sha256(msgspec.msgpack.encode(parts)).digest()[:16]
