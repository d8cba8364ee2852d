"""How texts are cut, words split, and dates read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.context.search import chunks_of, turns_of
from lamina.context.search.index import falls_on, find_dates, find_speakers
from lamina.context.search.words import find_terms, fold_text
from lamina.segments import assistant, file, user


@given(st.text(alphabet="ab #\n`\t(){}:.é", max_size=400), st.sampled_from(["a.md", "b.py", "c.txt", "d"]))
def test_every_word_of_a_text_is_in_a_chunk_and_none_is_too_long(text: str, name: str) -> None:
    chunks = chunks_of(name, text, longest=60)
    assert all(0 < len(chunk.text) <= 60 for chunk in chunks)
    pieces = "".join("".join(chunk.text.split()) for chunk in chunks)
    assert all("".join(line.split())[:60] in pieces for line in text.split("\n") if len(line) <= 60)


def test_a_long_text_is_cut_between_lines_with_some_lines_twice() -> None:
    text = "\n".join(f"line number {number}" for number in range(200))
    first, second, *_ = chunks_of("log.txt", text)
    shared = set(first.text.split("\n")) & set(second.text.split("\n"))
    assert shared
    assert sum(len(line) + 1 for line in shared) <= 200


def test_a_heading_in_a_fence_is_none() -> None:
    text = "# One\n" + "text\n" * 60 + "```\n# not one\n```\n" + "## Two\n" + "more\n" * 60
    assert [chunk.head for chunk in chunks_of("a.md", text)] == ["a.md One", "a.md One > Two"]


def test_code_is_cut_at_definitions_with_their_decorators() -> None:
    body = "    x = 1\n" * 30
    text = f"import os\n\n\nclass A:\n    def one(self):\n{body}\n    @cached\n    def two(self):\n{body}"
    last = chunks_of("a.py", text)[-1]
    assert last.text.startswith("    @cached\n    def two")
    assert last.head == "a.py class A:"


def test_a_log_gives_turns_with_speaker_and_time_and_no_attachments() -> None:
    log = [user("Hi", at="2024-01-02T03:04:05", attrs={"name": "Ana"}), file("a.py", "x"), assistant("Hello")]
    assert [(one.speaker, one.at[:10], one.text) for one in turns_of(log)] == [
        ("Ana", "2024-01-02", "Hi"),
        ("assistant", "", "Hello"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("getUserName", "get User Name getUserName"),
        ("snake_case_name", "snake case name snakecasename"),
        ("plain Words, 42", "plain Words, 42"),
        ("utf8Decode", "utf 8 Decode utf8Decode"),
    ],
)
def test_identifiers_are_split_and_kept_whole(text: str, words: str) -> None:
    assert fold_text(text) == words


def test_stop_words_are_asked_for_only_if_there_is_nothing_else() -> None:
    assert find_terms("What is the retry limit?") == ["retry", "limit"]
    assert find_terms("to be or not to be") == ["to", "be", "or", "not"]
    assert find_terms("What did Ana Lima paint?", without=["Ana Lima"]) == ["paint"]
    assert find_terms("Ana", without=["Ana"]) == ["ana"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("on 8 May, 2023 at noon", ("2023-05-08",)),
        ("March-15-2024", ("2024-03-15",)),
        ("since 2024-01-05T10:00", ("2024-01-05",)),
        ("in May 2023 or in 2022", ("2023-05", "2022")),
        ("July 4th", ("-07-04",)),
        ("in June", ("-06",)),
        ("may I ask for 2000 things", ()),
        ("version 3.14", ()),
    ],
)
def test_dates_are_read_as_they_are_written(text: str, expected: tuple[str, ...]) -> None:
    assert find_dates(text) == expected


def test_a_mention_without_a_year_fits_every_year() -> None:
    assert falls_on("2023-07-04T09:00", "-07-04")
    assert falls_on("2023-07-04", "2023-07")
    assert not falls_on("2023-07-04", "-07-05")


def test_a_speaker_is_named_by_any_word_of_the_name_and_the_user_by_i() -> None:
    assert find_speakers("What did Ana say?", ["Ana Lima", "Ben"]) == {"Ana Lima"}
    assert find_speakers("What did I say?", ["user", "assistant"]) == {"user"}
    assert find_speakers("Tell the assistant", ["user", "assistant"]) == frozenset()
    assert find_speakers("Banana", ["Ana"]) == frozenset()


def test_deeply_nested_code_is_cut_without_an_error() -> None:
    text = "".join(f"{' ' * depth}def f{depth}():\n" for depth in range(300)) + " " * 300 + "pass\n"
    assert "".join(chunk.text for chunk in chunks_of("deep.py", text)).count("def f") >= 300
    for begin, end in (("(", ")"), ("[", "]"), ("{", "}"), ("lambda: ", "")):
        assert chunks_of("brackets.py", "x = " + begin * 5_000 + end * 5_000)
    blocks = "".join(f"{' ' * depth}if x:\n" for depth in range(1_500)) + " " * 1_500 + "pass\n"
    assert chunks_of("blocks.py", blocks)
