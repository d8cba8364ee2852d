"""The tables of indexes in PostgreSQL, and the connection to them.

Rows begin with the number of their workspace. Words stand in a `tsvector`, each behind that number, so that
one GIN index serves all workspaces and none can see or count another's words. Texts, words and vectors have
tables of their own: together they would not fit on a page, and every scan would fetch them from elsewhere.

Vectors are pgvector's where the server has it, and else plain bytes. Nothing in these tables is a record:
they can be dropped and made again from their sources.
"""

from __future__ import annotations

import psycopg
from psycopg import sql

from lamina.errors import BadInput, StoreError

Link = psycopg.Connection[tuple[object, ...]]

VERSION = 1
CONNECTING = 15
"""Seconds."""

SETTINGS = {"synchronous_commit": "on", "statement_timeout": "60s", "lock_timeout": "30s"}
"""What was acknowledged is kept; a lock is waited for while another writes to the same workspace."""

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


def connected(url: str, schema: str) -> Link:
    """A connection to the tables in `schema`, which are made if they are not there."""
    link = _connected(url)
    try:
        for name, value in SETTINGS.items():
            link.execute("SELECT set_config(%s, %s, false)", [name, value])
        with link.transaction():
            link.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"lamina {schema}"])
            _bring_up(link, schema)
        _see(link, schema)
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


def number_of(link: Link, workspace: str) -> int:
    """The number of a workspace, which has one from now on."""
    link.execute("INSERT INTO space (workspace) VALUES (%s) ON CONFLICT DO NOTHING", [workspace])
    row = link.execute("SELECT number FROM space WHERE workspace = %s", [workspace]).fetchone()
    return int(str(row[0])) if row else 0


def _connected(url: str) -> Link:
    try:
        return psycopg.connect(url, autocommit=True, connect_timeout=CONNECTING, prepare_threshold=None)
    except psycopg.ProgrammingError:  # without repeating it: there may be a password in it
        hint = "give it as postgresql://user@host/database"
        raise BadInput("not an address of a PostgreSQL server", place="url", hint=hint) from None


def _bring_up(link: Link, schema: str) -> None:
    if not link.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [schema]).fetchone():
        link.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    _see(link, schema)
    there = {
        row[0] for row in link.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema])
    }
    if not there:
        kind = "vector" if _extended(link) else "bytea"
        _see(link, schema)
        link.execute(sql.SQL(_TABLES.replace("{kind}", kind)))
        link.execute("INSERT INTO version VALUES (%s)", [VERSION])
        return
    found = link.execute("SELECT number FROM version").fetchone() if "version" in there else None
    if found != (VERSION,):
        hint = "give a schema of its own to search; an index can be made again from its sources"
        raise StoreError(f"the schema {schema!r} holds something else", hint=hint)


def _extended(link: Link) -> bool:
    """Whether pgvector is there now: created if the server has it and this user may."""
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


def _see(link: Link, schema: str) -> None:
    """Names are looked up in the schema, and in the one where pgvector is."""
    found = link.execute(
        "SELECT nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace "
        "WHERE extname = 'vector'"
    )
    names = [schema, *(str(name) for (name,) in found)]
    path = ", ".join(f'"{name.replace(chr(34), chr(34) * 2)}"' for name in names)
    link.execute("SELECT set_config('search_path', %s, false)", [path])
