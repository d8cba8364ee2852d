"""Keeps one small file of every format on disk in tests/known, with what today's code has to read from it.

    python -m tools.known            names the files that differ from what lamina writes now
    python -m tools.known --write    writes them anew; read the difference before you commit it

A file is named after its format and the version of it. A format that changes gets a new version. Where a
format holds random or machine-dependent bytes, the difference is looked for in what is fixed: the rows of a
database, and single sealed records under a fixed nonce. A changed file is named in the changelog.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import msgspec
import psycopg

from lamina.context.search import Chunk, open_index
from lamina.context.search.sqlite import VERSION as SEARCH
from lamina.core.build import build
from lamina.core.values import Ledger, Ref
from lamina.formats.codec import VERSION as CODEC
from lamina.sessions import Setup
from lamina.sessions.records import Fork, Pin, Rewind, encode_records
from lamina.sessions.stored_conversation import SessionState
from lamina.stores import MemoryStore, Once, Store, StoredHead, Where, open_files, open_postgres, open_sqlite
from lamina.stores.files.store import VERSION as FILES
from lamina.stores.postgres.store import VERSION as POSTGRES
from lamina.stores.sealed import Key, Passphrase, Sealed
from lamina.stores.sealed.ciphers import FORMAT as SEALED
from lamina.stores.sealed.ciphers import new_header, open_header
from lamina.stores.sqlite.schema import VERSION as SQLITE
from lamina.testing.conformance import gallery
from tests.fixtures.golden import sessions
from tests.servers.postgres import shared

FOLDER = Path(__file__).parent.parent / "tests" / "known"
AT = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)

SUPPORT = Where("team", "support-42")
GUEST = Where("", "Gäste/\U0001f989")
EMPTY = Where("team", "nothing yet")


class Group(msgspec.Struct, frozen=True):
    """One append: its records, the state after it, and its idempotency key."""

    records: tuple[bytes, ...]
    state: bytes
    key: str = ""


CONVERSATIONS: Mapping[Where, tuple[Group, ...]] = {
    SUPPORT: (
        Group((b'{"v":1,"segment":{"role":"user"}}', b"\x00\xff\x80 bytes"), b'{"version":1}', "turn-1"),
        Group((b"", "Ünïcode ✓".encode()), b'{"version":1,"cuts":[]}', "turn-2"),
    ),
    GUEST: (Group((b"a guest",), b"state of a guest"),),
    EMPTY: (Group((), b"only a state"),),
}
"""What every store of tests/known holds."""

CHUNKS = (
    Chunk(text="Three retries, with a growing pause.", place="lines 1 to 3", head="Retries"),
    Chunk(text="getUserName asks the parcel service.", place="line 9", section="code", sort="code"),
)
VECTORS = ((0.6, 0.8, 0.0), (0.0, 1.0, 0.0))


_OWN_TO_FTS5 = re.compile('"words_(config|data|docsize|idx)"')
"""Tables in which FTS5 keeps its lists, as its own version likes them."""


async def fill(store: Store) -> None:
    """Keep the known conversations in a store."""
    for where, groups in CONVERSATIONS.items():
        for group in groups:
            once = Once(key=group.key, digest=group.key.encode()) if group.key else None
            await store.append(where, group.records, once=once, state=group.state)


def rows(path: Path) -> str:
    """Tables and rows of a SQLite file as SQL: what does not depend on the version of SQLite."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as link:
        version = link.execute("PRAGMA user_version").fetchone()[0]
        owner = link.execute("PRAGMA application_id").fetchone()[0]
        lines = [line for line in link.iterdump() if not _OWN_TO_FTS5.search(line)]
    return "\n".join((f"PRAGMA application_id={owner};", f"PRAGMA user_version={version};", *lines, ""))


def written_codec() -> bytes:
    """A segment of every kind, and every control record."""
    controls = (
        Rewind(to=7),
        Fork(conversation="first", at=3),
        Pin(key=Ref("a.md@0123456789ab#1"), on=True),
        Setup(model="gpt-5", recall=True, agent={"name": "reviewer"}),
    )
    return b"".join(line + b"\n" for line in encode_records(controls, gallery()))


def written_ledger() -> bytes:
    """The ledger after a session with cuts, and what a session keeps beside it."""
    golden = next(each for each in sessions() if each.name == "cut")
    state = SessionState()
    for log in golden.logs:
        state = state.built(build(log, budget=golden.budget, ledger=state.ledger), len(log))
    plain = {"ledger": state.ledger.dump(), "state": json.loads(state.dump())}
    return json.dumps(plain, indent=1, ensure_ascii=False).encode() + b"\n"


def written_files() -> bytes:
    """Every file of a store of files, by its path."""

    async def make(folder: str) -> None:
        async with open_files(Path(folder) / "store", now=lambda: AT) as store:
            await fill(store)

    with tempfile.TemporaryDirectory() as folder:
        anyio.run(make, folder)
        root = Path(folder) / "store"
        files = sorted(path for path in root.rglob("*") if path.is_file() and ".locks" not in path.parts)
        tree = {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in files}
    return _pretty(tree)


def make_sqlite(path: Path) -> None:
    async def make() -> None:
        async with open_sqlite(path) as store:
            await fill(store)

    anyio.run(make)


def written_postgres() -> bytes:
    """The rows of every table, as JSON."""
    schema = f"known_{os.getpid()}"

    async def make(url: str) -> None:
        async with open_postgres(url, schema=schema) as store:
            await fill(store)

    server = shared()
    anyio.run(make, server.url)
    with psycopg.connect(server.url, autocommit=True) as link:
        link.execute(f'SET search_path TO "{schema}"')
        tables: dict[str, Any] = {name: _table(link, name) for name in ("conversation", "record", "once")}
        tables["lamina"] = link.execute("SELECT version FROM lamina").fetchall()
        link.execute(f'DROP SCHEMA "{schema}" CASCADE')
    return _pretty(tables)


def _table(link: psycopg.Connection[Any], name: str) -> list[dict[str, Any]]:
    cursor = link.execute(f"SELECT * FROM {name} ORDER BY 1, 2, 3")  # noqa: S608
    columns = [column.name for column in cursor.description or ()]
    return [dict(zip(columns, map(_as_json, row), strict=True)) for row in cursor]


def _as_json(value: Any) -> Any:
    return {"base64": _base64(value)} if isinstance(value, bytes) else value


async def embed(texts: Any) -> Any:
    """The vectors of the known chunks."""
    vectors = {chunk.text: vector for chunk, vector in zip(CHUNKS, VECTORS, strict=True)}
    return [next(vectors[known] for known in vectors if known in text) for text in texts]


def make_search(path: Path) -> None:
    async def make() -> None:
        async with open_index(path, embedder=embed) as index:
            await index.replace("docs/spec.md", CHUNKS)

    anyio.run(make)


KEYS = tuple(Key(hashlib.sha256(b"lamina known key %d" % number).digest()) for number in (1, 2))
PASSPHRASE = Passphrase("seven known badgers under a lamp")


def made_sealed() -> bytes:
    """A sealed store as the store within sees it."""

    async def filled() -> MemoryStore:
        kept = MemoryStore()
        await fill(Sealed(kept, KEYS[0], create=True))
        return kept

    return _pretty(_image(anyio.run(filled)))


def _image(kept: MemoryStore) -> list[dict[str, Any]]:
    inside = kept._conversations.items()  # noqa: SLF001 - everything that a store within would have on its disk
    return [
        {
            "workspace": where.workspace,
            "conversation": where.conversation,
            "bodies": [_base64(body) for body in conversation.bodies],
            "state": _base64(conversation.state),
            "once": {key: [_base64(digest), count] for key, (digest, count) in conversation.once.items()},
        }
        for where, conversation in sorted(inside)
    ]


def written_vectors() -> bytes:
    """Single pieces of the sealed format under fixed keys, ids and nonces."""
    with fixed_random():
        header = new_header(KEYS[0])
        cipher = open_header(header, KEYS[0]).conversation(SUPPORT)
        pieces = {
            "header": header,
            "header of a passphrase": new_header(PASSPHRASE),
            "record": cipher.seal_record(7, bytes(16), bytes(range(16)), b"what was said"),
            "state": cipher.seal_state(StoredHead(count=8, state=b"the ledger"), bytes(range(16))),
            "workspace": cipher.inner.workspace.encode(),
            "conversation": cipher.inner.conversation.encode(),
            "idempotency key": cipher.hide(b"retry"),
            "id of a key": KEYS[0].id.encode(),
        }
    return _pretty({name: piece.hex() for name, piece in pieces.items()})


@contextmanager
def fixed_random() -> Iterator[None]:
    """Random bytes that are the same each time, for as long as the block runs."""
    real = os.urandom
    os.urandom = lambda size: hashlib.shake_256(b"lamina %d" % size).digest(size)
    try:
        yield
    finally:
        os.urandom = real


TEXTS: Mapping[str, Callable[[], bytes]] = {
    f"codec-{CODEC}.jsonl": written_codec,
    f"ledger-{Ledger().version}.json": written_ledger,
    f"files-{FILES}.json": written_files,
    f"postgres-{POSTGRES}.json": written_postgres,
    f"sealed-{SEALED}-vectors.json": written_vectors,
}
"""Files that today's code writes to the byte."""

DATABASES: Mapping[str, Callable[[Path], None]] = {
    f"sqlite-{SQLITE}.db": make_sqlite,
    f"search-{SEARCH}.db": make_search,
}
"""SQLite files, whose rows today's code writes."""

RANDOM: Mapping[str, Callable[[], bytes]] = {f"sealed-{SEALED}.json": made_sealed}
"""Files that can be read and never be written the same again: made only where there is none."""


def differing() -> Iterator[tuple[str, Callable[[Path], object]]]:
    """The files that are not what lamina writes now, each with what writes it."""
    for name, text in TEXTS.items():
        content = text()
        if not (FOLDER / name).exists() or (FOLDER / name).read_bytes() != content:
            yield name, lambda path, content=content: path.write_bytes(content)  # type: ignore[misc]
    for name, make in DATABASES.items():
        if not (FOLDER / name).exists() or rows(FOLDER / name) != rows_of(make):
            yield name, lambda path, make=make: make_database(make, path)  # type: ignore[misc]
    for name, made in RANDOM.items():
        if not (FOLDER / name).exists():
            yield name, lambda path, made=made: path.write_bytes(made())  # type: ignore[misc]


def rows_of(make: Callable[[Path], None]) -> str:
    """The rows of the database that this makes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.db"
        make(path)
        return rows(path)


def make_database(make: Callable[[Path], None], path: Path) -> None:
    """Make a database elsewhere, since a file for its lock may stay beside it."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made.db"
        make(made)
        shutil.copyfile(made, path)


def _pretty(value: Any) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def main() -> int:
    writes = "--write" in sys.argv[1:]
    found = list(differing())
    for name, write in found:
        print(name)
        if writes:
            (FOLDER / name).unlink(missing_ok=True)
            write(FOLDER / name)
    return int(bool(found) and not writes)


if __name__ == "__main__":
    sys.exit(main())
