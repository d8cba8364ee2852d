"""The tables of indexes in PostgreSQL, and the connection to them.

Rows begin with the number of their workspace. In a `tsvector` each word follows that number, so one GIN index
serves all workspaces and none can see or count another's words. Texts, words and vectors have tables of their
own: together they would not fit on a page, and every scan would fetch them from elsewhere.

Vectors are pgvector's if the server has it, else plain bytes. Nothing in these tables is a record: they can
be dropped and made again from their sources.
"""

from __future__ import annotations

import psycopg
from psycopg import sql

from lamina.errors import BadInput, StoreError

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
