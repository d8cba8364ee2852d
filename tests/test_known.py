"""Known answers: a file of every format on disk, read by today's code, and written by it to the byte.

`tools.known` makes the files. What a format is bound to is computed here a second time, by hand: a sealed
record from AES-GCM and HKDF alone.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from lamina.context.search import open_index
from lamina.core.values import Ledger
from lamina.formats.codec import decode
from lamina.sessions.records import Fork, read_records
from lamina.sessions.stored_conversation import load_state
from lamina.stores import MemoryStore, Once, Record, Store, Where, open_files, open_postgres, open_sqlite
from lamina.stores.port import Within
from lamina.stores.postgres.store import VERSION
from lamina.stores.sealed import Key, Sealed
from lamina.testing.conformance import gallery
from tests.servers.postgres import shared
from tests.sessions.talking import awaited
from tools.known import (
    CHUNKS,
    CONVERSATIONS,
    DATABASES,
    FOLDER,
    KEYS,
    RANDOM,
    TEXTS,
    rows,
    rows_of,
)


def known(name: str) -> Path:
    """The file of one format."""
    [path] = [path for path in FOLDER.glob(f"{name}-*") if "vectors" not in path.name]
    return path


def test_every_kept_file_has_its_place() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*TEXTS, *DATABASES, *RANDOM}


@pytest.mark.parametrize("name", TEXTS)
def test_today_writes_the_known_bytes(name: str) -> None:
    assert TEXTS[name]() == (FOLDER / name).read_bytes()


@pytest.mark.parametrize("name", DATABASES)
def test_today_writes_the_known_rows(name: str) -> None:
    assert rows_of(DATABASES[name]) == rows(FOLDER / name)


async def holds_what_is_known(store: Store) -> None:
    """Every record, state and idempotency key; and an append behind them."""
    await reads_what_is_known(store)
    for where, groups in CONVERSATIONS.items():
        count = 0
        for group in groups:
            count += len(group.records)
            if group.key:
                once = Once(key=group.key, digest=group.key.encode())
                head = await store.append(where, [b"not again"], once=once)
                assert (head.count, head.state) == (count, groups[-1].state)
        assert (await store.append(where, [b"later"], expect=count)).count == count + 1
        page = await store.read(where)
        assert [record.body for record in page.records][count:] == [b"later"]


async def reads_what_is_known(store: Store) -> None:
    for where, groups in CONVERSATIONS.items():
        bodies = [body for group in groups for body in group.records]
        page = await store.read(where)
        assert page.records == tuple(Record(seq=seq, body=body) for seq, body in enumerate(bodies))
        assert (page.head.count, page.head.state) == (len(bodies), groups[-1].state)
    listed = {each.conversation: each.count for each in await store.list("team")}
    assert listed["support-42"] == 4
    assert listed["nothing yet"] == 0


def test_a_known_sqlite_file_is_read(tmp_path: Path) -> None:
    shutil.copy(known("sqlite"), tmp_path / "chats.db")

    async def trial() -> None:
        async with open_sqlite(tmp_path / "chats.db") as store:
            await holds_what_is_known(store)

    anyio.run(trial)


def test_a_known_folder_is_read(tmp_path: Path) -> None:
    unpack_files(known("files"), tmp_path)

    async def trial() -> None:
        async with open_files(tmp_path) as store:
            await holds_what_is_known(store)

    anyio.run(trial)


def unpack_files(path: Path, folder: Path) -> None:
    (folder / ".locks").mkdir()
    for name, text in json.loads(path.read_bytes()).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")


def test_known_tables_are_read() -> None:
    with postgres_tables(known("postgres")) as schema:

        async def trial() -> None:
            async with open_postgres(shared().url, schema=schema) as store:
                await holds_what_is_known(store)

        anyio.run(trial)


@contextmanager
def postgres_tables(path: Path) -> Iterator[str]:
    """The tables of a known file in a schema of their own."""
    tables = json.loads(path.read_bytes())
    assert tables.pop("lamina") == [[VERSION]]
    schema = f"known_{uuid.uuid4().hex}"

    async def make() -> None:
        async with open_postgres(shared().url, schema=schema):
            pass

    anyio.run(make)
    with psycopg.connect(shared().url, autocommit=True) as link:
        link.execute(f'SET search_path TO "{schema}"')
        for name, table in tables.items():
            for row in table:
                values = [_from_json(value) for value in row.values()]
                marks = ", ".join(["%s"] * len(values))
                link.execute(f"INSERT INTO {name} ({', '.join(row)}) VALUES ({marks})", values)  # noqa: S608
        yield schema
        link.execute(f'DROP SCHEMA "{schema}" CASCADE')


def _from_json(value: Any) -> Any:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else value


async def sealed_image(within: list[Any]) -> MemoryStore:
    """The store within, as a known file shows it."""
    store = MemoryStore()
    for each in within:
        where = Where(Within(each["workspace"]), each["conversation"])
        bodies = [base64.b64decode(body) for body in each["bodies"]]
        await store.append(where, bodies, state=base64.b64decode(each["state"]))
        kept = store._conversations[where]  # noqa: SLF001 - what only the store itself could have written
        kept.once = {key: (base64.b64decode(one), count) for key, (one, count) in each["once"].items()}
    return store


@awaited
async def test_a_known_sealed_store_is_read() -> None:
    within = json.loads(known("sealed").read_bytes())
    await holds_what_is_known(Sealed(await sealed_image(within), KEYS[0]))


def test_a_sealed_record_is_what_the_documents_say() -> None:
    """Opened without lamina: HKDF, then version, two ids, nonce, and AES-256-GCM."""
    found = json.loads((FOLDER / "sealed-2-vectors.json").read_bytes())
    vectors = {name: bytes.fromhex(piece) for name, piece in found.items()}
    assert Key(hashlib.sha256(b"lamina known key 1").digest()).id.encode() == vectors["id of a key"]
    store = base64.b64decode(json.loads(vectors["header"])["store"])
    info = _framed(b"lamina/sealed/2", b"conversation", b"team", b"support-42")
    key = HKDF(hashes.SHA256(), 32, salt=store, info=info).derive(KEYS[0].secret)
    for name, bound, head in (
        ("record", b"record 7 ", b"\x02" + bytes(16) + bytes(range(16))),
        ("state", b"state ", b"\x02" + (8).to_bytes(8) + bytes(range(16))),
    ):
        piece = vectors[name]
        assert piece[: len(head)] == head
        nonce, sealed = piece[len(head) : len(head) + 12], piece[len(head) + 12 :]
        plain = AESGCM(key).decrypt(nonce, sealed, bound + head)
        assert plain == {"record": b"what was said", "state": b"the ledger"}[name]


def _framed(*fields: bytes) -> bytes:
    return b"".join(len(field).to_bytes(8) + field for field in fields)


def test_known_records_are_read() -> None:
    lines = known("codec").read_bytes().split(b"\n")[:-1]
    controls, segments = lines[:4], lines[4:]
    assert tuple(decode(segments)) == gallery()
    read = read_records(controls)
    assert read.parent == Fork(conversation="first", at=3)
    assert read.setup is not None
    assert (read.setup.model, read.setup.recall) == ("gpt-5", True)


def test_a_known_ledger_is_read() -> None:
    plain = json.loads(known("ledger").read_bytes())
    ledger = Ledger.load(plain["ledger"])
    assert ledger.cuts
    assert ledger.lines
    assert ledger.folds
    state, note = load_state(json.dumps(plain["state"]).encode(), count=9)
    assert (state.ledger, note) == (ledger, "")


def test_a_known_index_is_read(tmp_path: Path) -> None:
    shutil.copy(known("search"), tmp_path / "search.db")

    async def embed(texts: Any) -> Any:
        return [(0.0, 1.0, 0.0) for _ in texts]

    async def trial() -> None:
        async with open_index(tmp_path / "search.db") as index:
            assert await index.sources() == {"docs/spec.md": 2}
            hits = await index.query("how often does it retry?")
            assert [hit.chunk for hit in hits] == [CHUNKS[0]]
        async with open_index(tmp_path / "search.db", embedder=embed) as index:
            hits = await index.query("nothing of these words")
            assert [(hit.chunk, hit.vectors) for hit in hits[:1]] == [(CHUNKS[1], 1.0)]

    anyio.run(trial)
