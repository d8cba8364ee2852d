"""The index: what is found, what is kept when a source changes, and what is refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from lamina.context.search import Chunk, Index, chunks_of, open_index, sqlite, turns_of
from lamina.context.search.index import LENDERS
from lamina.context.search.sqlite import SqliteChunkTables
from lamina.context.search.vectors import Vectors, pack_vectors
from lamina.errors import BadInput
from lamina.segments import assistant, result, user

pytestmark = pytest.mark.anyio
WORDS = ("cat", "dog", "ship")


async def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
    """A vector by which of a few words, or their synonyms, a text has."""
    same = {"kitten": "cat", "puppy": "dog", "vessel": "ship"}
    words_of_texts = [[same.get(word, word) for word in text.lower().split()] for text in texts]
    return [[0.1, *(float(one.count(word)) for word in WORDS)] for one in words_of_texts]


def turns(*texts: str, speakers: Sequence[str] = ("Ana", "Ben"), at: str = "") -> list[Chunk]:
    return [
        Chunk(text=text, speaker=speakers[number % len(speakers)], at=at, sort="turn", place=f"t{number}")
        for number, text in enumerate(texts)
    ]


async def search_texts(index: Index, query: str, **options: int) -> list[str]:
    return [hit.chunk.text for hit in await index.query(query, **options)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("def getUserName(): ...", "user name"),
        ("call get_user_name here", "getUserName"),
        ("running tests", "test runs"),
        ("HTTPServer starts", "http server"),
    ],
)
async def test_identifiers_and_word_forms_are_found_by_their_pieces(text: str, query: str) -> None:
    async with open_index() as index:
        await index.replace("a", [Chunk(text=text), Chunk(text="something else entirely")])
        assert await search_texts(index, query) == [text]


@pytest.mark.parametrize(
    "query", ["", "   ", '"', "NEAR(", "* OR -", "'; DROP TABLE chunks", "a:b^2", "\x00", "💥"]
)
async def test_no_query_is_an_operator_or_an_error(query: str) -> None:
    async with open_index() as index:
        await index.replace("a", [Chunk(text="plain words")])
        assert await search_texts(index, query) == []
        assert await search_texts(index, "plain") == ["plain words"]


async def test_a_replaced_source_has_only_its_new_chunks_and_keeps_the_unchanged() -> None:
    async with open_index() as index:
        first = [Chunk(text=f"chapter {word}", place=f"p{nth}") for nth, word in enumerate(("one", "two"))]
        assert await index.replace("book", first) == 2
        before = {hit.chunk.text: hit.id for hit in await index.query("chapter")}
        changed = [Chunk(text="chapter zero", place="p0"), Chunk(text="chapter two", place="p9")]
        assert await index.replace("book", changed) == 1
        after = {hit.chunk.text: hit for hit in await index.query("chapter")}
        assert set(after) == {"chapter zero", "chapter two"}
        assert after["chapter two"].id == before["chapter two"]
        assert (after["chapter two"].chunk.place, after["chapter two"].nth) == ("p9", 1)


async def test_a_removed_source_is_not_found_by_words_or_by_vectors() -> None:
    async with open_index(embedder=embed) as index:
        await index.replace("a", [Chunk(text="a cat")])
        await index.replace("b", [Chunk(text="a dog")])
        assert await index.remove("a") == 1
        assert await search_texts(index, "kitten cat") == ["a dog"]
        assert await index.sources() == {"b": 1}


async def test_a_removed_vector_is_gone_from_the_file_too(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    async with open_index(path, embedder=embed) as index:
        await index.add("a", [Chunk(text="a cat")])
        await index.remove("a")
        await index.add("b", [Chunk(text="a dog")])
    async with open_index(path, embedder=embed) as index:
        await index.remove("b")
        assert await index.query("cat") == ()


@pytest.mark.parametrize("version", [3, 5])
async def test_an_index_of_another_version_is_refused_and_not_touched(tmp_path: Path, version: int) -> None:
    path = tmp_path / "index.db"
    async with open_index(path) as index:
        await index.add("a", [Chunk(text="a cat")])
    with closing(sqlite3.connect(path)) as link:
        link.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    with pytest.raises(BadInput, match=f"version {version}, .*remove its file"):
        async with open_index(path):
            pass
    assert path.read_bytes() == before


async def test_a_new_index_that_another_process_fills_meanwhile_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "index.db"
    look = sqlite._has_tables  # noqa: SLF001

    def look_before_another_writes(link: sqlite3.Connection) -> bool:
        monkeypatch.setattr(sqlite, "_has_tables", look)
        has_tables = look(link)
        other = sqlite.SqliteChunkTables(str(path))
        other.write("a", other.planned("a", [Chunk(text="a cat")], after=False), [None])
        other.close()
        return has_tables

    monkeypatch.setattr(sqlite, "_has_tables", look_before_another_writes)
    async with open_index(path) as index:
        assert await index.sources() == {"a": 1}


async def test_what_is_added_is_found_at_once_and_after_opening_again(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    async with open_index(path, embedder=embed) as index:
        await index.add("log", turns("we saw a ship"))
        await index.add("log", turns("and a dog"))
        assert (await search_texts(index, "vessel"))[0] == "we saw a ship"
    async with open_index(path, embedder=embed) as index:
        hit, *_ = await index.query("puppy")
        assert (hit.chunk.text, hit.nth) == ("and a dog", 1)


async def test_vectors_find_what_shares_no_word() -> None:
    chunks = [Chunk(text="a dog barked"), Chunk(text="the cat slept")]
    async with open_index() as words, open_index(embedder=embed) as both:
        for index in (words, both):
            await index.replace("a", chunks)
        assert await search_texts(words, "kitten") == []
        assert (await search_texts(both, "kitten"))[0] == "the cat slept"


async def test_a_search_can_be_limited_to_sources() -> None:
    async with open_index(embedder=embed) as index:
        await index.replace("mine", [Chunk(text="my cat")])
        await index.replace("other", [Chunk(text="other cat cat")])
        hits = await index.query("cat", sources=["mine"])
        assert [hit.source for hit in hits] == ["mine"]


async def test_the_answer_beside_the_question_is_found() -> None:
    async with open_index() as index:
        await index.add("log", turns("Which pet?", "A hamster.", *(f"Filler {n}." for n in range(9))))
        assert (await search_texts(index, "pet", most=3)) == ["Which pet?", "A hamster.", "Filler 0."]


async def test_only_the_best_turns_lend_to_those_beside_them() -> None:
    turns_said = [
        turns("pet " * (1 if number == LENDERS else 2), f"Beside {number}.") for number in range(LENDERS + 1)
    ]
    async with open_index() as index:
        for number, pair in enumerate(turns_said):
            await index.add(f"log {number}", pair)
        texts = await search_texts(index, "pet", most=1_000)
    assert f"Beside {LENDERS - 1}." in texts
    assert f"Beside {LENDERS}." not in texts


async def test_turns_of_another_section_are_no_neighbours() -> None:
    turns_said = [
        Chunk(text="Which pet?", section="1", sort="turn"),
        Chunk(text="Bye.", section="2", sort="turn"),
    ]
    async with open_index() as index:
        await index.add("log", turns_said)
        assert await search_texts(index, "pet") == ["Which pet?"]


async def test_the_speaker_that_a_question_names_comes_first() -> None:
    async with open_index() as index:
        turns_said = [
            Chunk(text="I like tea", speaker=who, sort="turn", section=who) for who in ("Ana", "Ben")
        ]
        await index.add("log", turns_said)
        assert [hit.chunk.speaker for hit in await index.query("Does Ben like tea?")] == ["Ben", "Ana"]
        assert [hit.chunk.speaker for hit in await index.query("Does Ana like tea?")] == ["Ana", "Ben"]


async def test_the_date_that_a_question_names_comes_first() -> None:
    async with open_index() as index:
        for day in ("2023-05-08", "2024-06-09"):
            await index.add(day, turns("we went hiking", at=f"{day}T10:00:00"))
        for query, day in (("hiking in June 2024", "2024-06-09"), ("hiking on 8 May", "2023-05-08")):
            assert (await index.query(query))[0].source == day


async def test_many_tasks_may_add_and_ask_at_once() -> None:
    async with open_index(embedder=embed) as index:
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(index.add, "log", turns(f"cat {number}", "dog"))
                tasks.start_soon(index.query, "cat")
        assert await index.sources() == {"log": 16}


async def test_a_file_that_is_no_index_is_refused_and_left_alone(tmp_path: Path) -> None:
    text, other = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("not a database, but long enough to look like something else" * 20)
    with sqlite3.connect(other) as link:
        link.execute("CREATE TABLE mine (a)")
    link.close()
    before = text.read_bytes()
    for path in (text, other):
        with pytest.raises(BadInput, match="path of its own"):
            async with open_index(path):
                pass
    assert text.read_bytes() == before


DAMAGE = {
    "text": "UPDATE chunks SET text = replace(text, 'twenty', 'twelve')",
    "head": "UPDATE chunks SET head = 'Other'",
    "speaker": "UPDATE chunks SET speaker = 'Eve'",
    "time": "UPDATE chunks SET at = '1999-01-01'",
    "source": "UPDATE chunks SET source = 'b.md'",
    "place": "UPDATE chunks SET place = 'elsewhere'",
    "order": "UPDATE chunks SET nth = nth + 1",
    "a text that is a number": "UPDATE chunks SET text = 7",
    "a digest that is text": "UPDATE chunks SET digest = 'none'",
    "a vector that is text": "UPDATE vectors SET vector = 'none'",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
async def test_a_damaged_index_gives_no_other_text(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "search.db"
    async with open_index(path, embedder=embed) as index:
        await index.replace("a.md", turns("at most twenty requests", "a cat on a ship", at="2026-01-01"))
        await index.replace("a.md", turns("new first", "at most twenty requests", "a cat on a ship"))
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute(damage)
    async with open_index(path, embedder=embed) as index:
        with pytest.raises(BadInput, match="made again"):
            await index.query("how many requests?")


async def test_a_chunk_that_moved_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "search.db"
    async with open_index(path) as index:
        await index.replace("a.md", turns("at most twenty requests", speakers=["Ana"]))
        more = turns("new first", "at most twenty requests", speakers=["Ana"])
        assert await index.replace("a.md", more) == 1
    async with open_index(path) as index:
        best, *_ = await index.query("requests")
        assert (best.nth, best.chunk.place) == (1, "t1")


async def test_an_embedder_that_does_not_answer_for_each_text_is_refused_and_nothing_is_added() -> None:
    async def short(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return [[1.0]] * (len(texts) - 1)

    async with open_index(embedder=short) as index:
        with pytest.raises(BadInput, match="1 vectors for 2 texts"):
            await index.add("a", turns("one", "two"))
        assert await index.sources() == {}


async def test_vectors_without_direction_or_of_other_lengths_are_refused() -> None:
    sizes = iter((2, 3))

    async def changing(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return [[1.0] * next(sizes) for _ in texts]

    async def nothing(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return [[0.0, 0.0] for _ in texts]

    async with open_index(embedder=changing) as index:
        await index.add("a", turns("one"))
        with pytest.raises(BadInput, match="length"):
            await index.add("a", turns("two"))
    async with open_index(embedder=nothing) as index:
        with pytest.raises(BadInput, match="no direction"):
            await index.add("a", turns("one"))


async def test_markdown_code_and_a_log_can_be_searched_together() -> None:
    spec = (
        "# Limits\n\nTwenty a minute."
        + "\n\nMore." * 60
        + "\n\n# Retries\n\nThree, with a pause."
        + " Yes." * 60
    )
    log = [user("How do I deploy?", key="k1"), assistant("Run make deploy."), result("ok", id="1", key="k2")]
    async with open_index() as index:
        await index.replace("spec.md", chunks_of("spec.md", spec))
        await index.replace("app.py", chunks_of("app.py", "def parse_config(path):\n    return path\n"))
        await index.replace("log", turns_of(log))
        assert (await index.query("retries"))[0].chunk.head == "spec.md Retries"
        assert (await index.query("config parsing"))[0].source == "app.py"
        assert (await index.query("deploy"))[0].chunk.speaker in {"user", "assistant"}


def test_a_dropped_vector_is_gone_and_the_others_keep_their_numbers() -> None:
    vectors = Vectors()
    vectors.add([7, 8, 9], pack_vectors([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    vectors.drop([7, 5])
    (question,) = pack_vectors([[0.0, 2.0]])
    assert vectors.near(question, 10) == {8: 1.0, 9: 0.0}
    vectors.add([7], pack_vectors([[-1.0, 0.0]]))
    assert len(vectors) == 3
    assert vectors.near(question, 1) == {8: 1.0}


def test_a_full_disk_is_named_and_the_index_goes_on(tmp_path: Path) -> None:
    async def trial() -> None:
        async with open_index(tmp_path / "index.db") as index:
            await index.replace("a", [Chunk(text="one")])
            link = index._tables._link  # noqa: SLF001
            [pages] = link.execute("PRAGMA page_count").fetchone()
            link.execute(f"PRAGMA max_page_count = {pages + 20}")
            link.execute("PRAGMA cache_size = 5")
            many = [Chunk(text=f"words {number} " + "lorem ipsum " * 60) for number in range(2000)]
            with pytest.raises(BadInput, match="full"):
                await index.replace("b", many)
            assert await index.sources() == {"a": 1}
            assert [hit.chunk.text for hit in await index.query("one")] == ["one"]

    anyio.run(trial)


@pytest.fixture
def tables() -> Iterator[SqliteChunkTables]:
    with closing(SqliteChunkTables(":memory:")) as tables:
        yield tables


def put(tables: SqliteChunkTables, source: str, *texts: str) -> None:
    chunks = [Chunk(text=text, sort="turn") for text in texts]
    plan = tables.planned(source, chunks, after=False)
    tables.write(source, plan, [None] * len(plan.new))


def test_the_best_come_first_and_equal_ones_by_age(tables: SqliteChunkTables) -> None:
    put(tables, "a", "green boat", "green boat boat", "a green one here", "green boat", *["something"] * 7)
    assert [number for number, _ in tables.matches(["boat"], 9, None)] == [2, 1, 4]
    assert [number for number, _ in tables.matches(["boats"], 2, None)] == [2, 1]


def test_words_are_searched_in_some_sources_and_counted_up_to_a_number(tables: SqliteChunkTables) -> None:
    put(tables, "a", *["boat"] * 20)
    put(tables, "b", "boat and ship", "tree")
    assert [number for number, _ in tables.matches(["boat", "tree"], 5, {"b"})] == [22, 21]
    assert tables.counts(["boats", "none"], 7) == {"boats": 7, "none": 0}
    put(tables, "a", "boat")
    assert tables.counts(["boats"], 7) == {"boats": 2}
