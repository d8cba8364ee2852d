"""An index of what is sealed: no word of it is on the disk, and it goes with its conversation."""

from __future__ import annotations

import base64
import sqlite3
import stat
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from functools import partial
from pathlib import Path

import anyio
import psycopg
import pytest

from lamina.context.search import Chunk, Index, chunks_of, open_index, turns_of
from lamina.errors import BadInput, KeyNeeded, WrongKey
from lamina.segments import assistant, user
from lamina.sessions import Session, open_search
from lamina.sessions.search import StoredIndex
from lamina.settings import Settings
from lamina.stores import MemoryStore, Store, Where, open_files, open_postgres, open_sqlite
from lamina.stores.port import OwnName, search_place
from lamina.stores.sealed import Sealed, generate
from tests.servers.postgres import shared
from tests.sessions.talking import awaited

KEY = generate()
CHAT, OTHER = Where("team", "chat"), Where("team", "other")
WORDS = ("xylophone", "harpsichord", "glockenspiel", "dulcimer")
"""Each stands in one place only: a message, an answer, a file, the name of a speaker."""

Opening = Callable[[], AbstractAsyncContextManager[Store]]


@pytest.fixture
def schema() -> Iterator[str]:
    name = f"sealed_search_{uuid.uuid4().hex}"
    yield name
    with psycopg.connect(shared().url, autocommit=True) as link:
        link.execute(f'DROP SCHEMA IF EXISTS "{name}" CASCADE')


@pytest.fixture(params=["sqlite", "files", "postgres", "memory"])
def within(request: pytest.FixtureRequest, tmp_path: Path, schema: str) -> Opening:
    store_within = MemoryStore()

    @asynccontextmanager
    async def in_memory() -> AsyncIterator[Store]:
        yield store_within

    kinds: dict[str, Opening] = {
        "sqlite": partial(open_sqlite, tmp_path / "chats.db"),
        "files": partial(open_files, tmp_path / "chats"),
        "postgres": partial(open_postgres, shared().url, schema=schema),
        "memory": in_memory,
    }
    return kinds[request.param]


@asynccontextmanager
async def sealed_in(within: Opening) -> AsyncIterator[Sealed]:
    async with within() as store:
        yield Sealed(store, KEY, create=True)


async def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
    return [[0.1, *(float(text.count(word)) for word in WORDS)] for text in texts]


async def stored_chunks(store: Store, where: Where) -> list[Chunk]:
    """A conversation that is kept, and what an index takes from it."""
    async with Session.open(
        store, where.conversation, workspace=where.workspace, model="gpt-5", settings=Settings()
    ) as session:
        await session.ask("Where is the xylophone? " * 20)
        await session.record("Behind the harpsichord. " * 20)
        turns = list(turns_of(session.log))
    text = "# Instruments\n\nThe glockenspiel was sold.\n" * 30
    named = Chunk(text="It sounds well.", speaker="dulcimer", sort="turn", place="m9")
    return [*turns, *chunks_of("notes.md", text), named]


def shapes(word: str) -> Iterator[bytes]:
    """How a word may stand in a file: as it is, in base64 wherever it begins, in hex."""
    plain = word.encode()
    yield plain
    yield plain.hex().encode()
    for shift in range(3):
        coded = base64.b64encode(b"\0" * shift + plain)
        yield coded[4 if shift else 0 : -4]


def found_on_disk(folder: Path, schema: str) -> set[str]:
    """The words that stand in any file below a folder, or in any row of a schema."""
    contents = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    with psycopg.connect(shared().url) as link:
        tables = link.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema]).fetchall()
        for (table,) in tables:
            rows = link.execute(f'SELECT "{table}"::text FROM "{schema}"."{table}"').fetchall()  # noqa: S608
            contents += [row.encode() for (row,) in rows]
    return {word for word in WORDS for content in contents for shape in shapes(word) if shape in content}


async def texts(index: Index, query: str) -> list[str]:
    return [hit.chunk.text for hit in await index.query(query, most=50)]


def test_no_word_is_on_the_disk_and_what_is_gone_is_not_found(
    within: Opening, tmp_path: Path, schema: str
) -> None:
    async def trial() -> None:
        async with sealed_in(within) as store:
            chunks = await stored_chunks(store, CHAT)
            async with open_search(store, workspace="team", embedder=embed) as index:
                assert await index.replace("chat", chunks) == len(chunks)
                await index.replace("other", [Chunk(text="a dulcimer elsewhere")])
                for word in WORDS:
                    assert await texts(index, word), word
                assert found_on_disk(tmp_path, schema) == set()
            assert found_on_disk(tmp_path, schema) == set()
        async with sealed_in(within) as store, open_search(store, workspace="team", embedder=embed) as index:
            assert await index.sources() == {"chat": len(chunks), "other": 1}
            for word in WORDS:
                assert await texts(index, word), word
            async with sealed_in(within) as second:
                assert await second.delete(CHAT)
            assert await index.sources() == {"other": 1}
            assert await texts(index, "xylophone harpsichord glockenspiel dulcimer") == [
                "a dulcimer elsewhere"
            ]
            assert found_on_disk(tmp_path, schema) == set()
        async with sealed_in(within) as store, open_search(store, workspace="team", embedder=embed) as index:
            assert await index.sources() == {"other": 1}
            page = await store.read(search_place(CHAT) or CHAT)
            assert (page.head.count, page.head.state) == (0, b"")

    anyio.run(trial)
    assert found_on_disk(tmp_path, schema) == set()


def test_a_plain_store_forgets_the_index_of_a_deleted_conversation(
    within: Opening, tmp_path: Path, schema: str
) -> None:
    async def trial() -> None:
        async with within() as store:
            chunks = await stored_chunks(store, CHAT)
            async with open_search(store, workspace="team") as index:
                await index.replace("chat", chunks)
                await index.replace("docs/a.md", [Chunk(text="stays")])
                assert await store.delete(CHAT)
                assert await texts(index, "xylophone harpsichord") == []
                assert await index.sources() == {"docs/a.md": 1}

    anyio.run(trial)
    assert found_on_disk(tmp_path, schema) == set()


@awaited
async def test_without_the_key_there_is_no_index(tmp_path: Path) -> None:
    within = partial(open_sqlite, tmp_path / "chats.db")
    async with sealed_in(within) as store, open_search(store, workspace="team") as index:
        await index.replace("chat", [Chunk(text="xylophone")])
    async with within() as closed:
        with pytest.raises(KeyNeeded):
            await open_search(closed, workspace="team").__aenter__()
        with pytest.raises(WrongKey):
            await open_search(Sealed(closed, generate()), workspace="team").__aenter__()


@pytest.mark.parametrize("address", ["{}/chats.db", "files:{}/chats"])
def test_an_address_and_a_key_are_enough(address: str, tmp_path: Path) -> None:
    address = address.format(tmp_path)

    async def trial() -> None:
        async with open_search(address, workspace="team", key=KEY) as index:
            await index.replace("chat", [Chunk(text="xylophone")])
        async with open_search(address, workspace="team", key=KEY) as index:
            assert await texts(index, "xylophone") == ["xylophone"]
        with pytest.raises(KeyNeeded):
            await open_search(address, workspace="team").__aenter__()

    anyio.run(trial)
    assert found_on_disk(tmp_path, "none") == set()


# What it does as an index, on any store.


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator[StoredIndex]:
    async with open_search(store, workspace="team", embedder=embed) as index:
        assert isinstance(index, StoredIndex)
        yield index


async def ranked(index: Index, query: str) -> list[tuple[str, int, Chunk, float]]:
    return [(hit.source, hit.nth, hit.chunk, round(hit.score, 6)) for hit in await index.query(query)]


@pytest.mark.anyio
async def test_it_answers_as_an_index_in_memory_does() -> None:
    log = [user("the xylophone is red"), assistant("the harpsichord is blue"), user("and a dulcimer")]
    files = {"a.md": "# One\n\nglockenspiel\n\n# Two\n\nxylophone and more\n", "b.md": "dulcimer dulcimer\n"}
    async with open_index(embedder=embed) as plain, opened(MemoryStore()) as store_within:
        for index in (plain, store_within):
            await index.replace("chat", turns_of(log))
            for name, text in files.items():
                await index.replace(name, chunks_of(name, text))
            await index.add("chat", [Chunk(text="one more xylophone", sort="turn", place="m4")])
            assert await index.replace("b.md", chunks_of("b.md", files["b.md"])) == 0
        assert await plain.sources() == await store_within.sources()
        for query in ("xylophone", "dulcimer", "blue", "nothing of it", "", "one more"):
            assert await ranked(plain, query) == await ranked(store_within, query), query
        hit = (await store_within.query("blue"))[0]
        assert [near.nth for near in await store_within.beside(hit)] == [0, 1, 2]
        assert await plain.remove("a.md") == await store_within.remove("a.md") == 1
        assert await plain.sources() == await store_within.sources()


@pytest.mark.anyio
async def test_only_what_changed_is_kept_anew_and_vectors_are_not_made_twice() -> None:
    embedded_texts: list[str] = []

    async def counting(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        embedded_texts.extend(texts)
        return await embed(texts)

    store = MemoryStore()
    where = Where(OwnName("lamina.search/team"), "a")
    async with open_search(store, workspace="team", embedder=counting) as index:
        await index.replace("a", [Chunk(text=f"text {n}", place=f"{n}") for n in range(10)])
        assert (await store.read(where)).head.count == 10
        changed = [Chunk(text=f"text {n}" if n != 3 else "dulcimer", place=f"{n}") for n in range(11)]
        assert await index.replace("a", changed) == 2
        assert (await store.read(where)).head.count == 12
    assert len(embedded_texts) == 12
    async with open_search(store, workspace="team", embedder=counting) as index:
        assert (await texts(index, "dulcimer"))[0] == "dulcimer"
        assert await index.replace("a", changed[:4]) == 0
        assert await index.sources() == {"a": 4}
    assert len(embedded_texts) == 13, "one more for the question"


@pytest.mark.anyio
async def test_what_is_out_of_date_is_written_anew_in_the_end() -> None:
    store = MemoryStore()
    where = Where(OwnName("lamina.search/team"), "a")
    async with opened(store) as index:
        for number in range(400):
            await index.replace("a", [Chunk(text=f"version {number}"), Chunk(text="same")])
            assert (await store.read(where)).head.count <= 2 * 2 + 64
        assert (await texts(index, "version 399"))[0] == "version 399"
    async with opened(store) as index:
        assert await index.sources() == {"a": 2}
        await index.replace("a", [])
        assert await index.sources() == {}
    assert (await store.read(where)).head.count == 0


@pytest.mark.anyio
async def test_two_processes_see_each_others_changes() -> None:
    store = MemoryStore()
    async with opened(store) as one, opened(store) as two:
        await one.replace("a", [Chunk(text="red xylophone")])
        assert await texts(two, "xylophone") == ["red xylophone"]
        await two.add("a", [Chunk(text="blue xylophone")])
        assert sorted(await texts(one, "xylophone")) == ["blue xylophone", "red xylophone"]
        await one.remove("a")
        await one.replace("a", [Chunk(text="a xylophone"), Chunk(text="new xylophone")])  # as many as before
        assert sorted(await texts(two, "xylophone")) == ["a xylophone", "new xylophone"]
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(one.add, "b", [Chunk(text=f"one {number}")])
                tasks.start_soon(two.add, "b", [Chunk(text=f"two {number}")])
        assert (await one.sources())["b"] == (await two.sources())["b"] == 8


@pytest.mark.anyio
async def test_what_cannot_be_read_is_told() -> None:
    store = MemoryStore()
    await store.append(
        Where(OwnName("lamina.search/team"), "a"), [b"{}"], state=b'{"v":1,"id":"x","length":1}'
    )
    with pytest.raises(BadInput, match="cannot be read"):
        await open_search(store, workspace="team").__aenter__()
    for workspace in ("lamina.search/team", "lamina.sealed", "w" * 1020):
        with pytest.raises(BadInput):
            await open_search(store, workspace=workspace).__aenter__()


@pytest.mark.anyio
async def test_vectors_of_another_length_are_refused_and_leave_nothing() -> None:
    async def longer(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return [[1.0] * 9 for _ in texts]

    store = MemoryStore()
    async with opened(store) as index:
        await index.replace("a", [Chunk(text="xylophone")])
    async with open_search(store, workspace="team", embedder=longer) as other:
        with pytest.raises(BadInput):
            await other.replace("b", [Chunk(text="dulcimer")])
        assert await other.sources() == {"a": 1}
    assert (await store.read(Where(OwnName("lamina.search/team"), "b"))).head.count == 0


# The index in a file of its own, which is plain text.


def modes_in(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


@pytest.mark.anyio
async def test_the_file_of_a_plain_index_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "search.db"
    async with open_index(path) as index:
        await index.replace("a", [Chunk(text="xylophone")])
        assert modes_in(tmp_path) == {0o600}
    path.chmod(0o644)
    async with open_index(path) as index:
        await index.replace("b", [Chunk(text="dulcimer")])
        assert modes_in(tmp_path) == {0o600}
    with pytest.raises(BadInput, match="nowhere"):
        await open_index(tmp_path / "nowhere" / "search.db").__aenter__()


@pytest.mark.anyio
async def test_what_is_removed_from_a_plain_index_leaves_no_byte(tmp_path: Path) -> None:
    path = tmp_path / "search.db"
    async with open_index(path, embedder=embed) as index:
        for number in range(50):
            await index.replace(f"{number}", [Chunk(text=f"text {number} of many", head=f"head {number}")])
        await index.replace(
            "a", [Chunk(text=f"{WORDS[0]} {n}", speaker=WORDS[1], head=WORDS[2]) for n in range(40)]
        )
        assert await index.remove("a") == 40
        assert found_on_disk(tmp_path, "none") == set()
        assert await texts(index, "text 7") != []
    assert all(word.encode() not in path.read_bytes() for word in WORDS)


@pytest.mark.parametrize("key", [KEY, None])
def test_a_store_is_not_taken_for_an_index(tmp_path: Path, key: object) -> None:
    path = tmp_path / "chats.db"

    async def fill() -> None:
        async with open_sqlite(path) as store:
            store_within: Store = Sealed(store, KEY, create=True) if key else store
            await store_within.append(CHAT, [b"x"])

    async def index() -> None:
        async with open_index(path):
            pass

    anyio.run(fill)
    with pytest.raises(KeyNeeded if key else BadInput):
        anyio.run(index)
    with closing(sqlite3.connect(path)) as link:
        tables = link.execute("SELECT name FROM sqlite_master WHERE name = 'chunks'").fetchall()
    assert tables == []
