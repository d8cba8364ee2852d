from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core.text.excerpts import count_names, find_error_lines, list_first_names
from lamina.core.text.outline import outline_text, outline_with_names

CODE = "\n".join(
    f"def load_{word}(path):\n    return parse_{word}(path)" for word in ("alpha", "beta", "gamma")
)
PROSE = "It was a quiet evening and nobody said much of anything. " * 40


def list_names(text: str, limit: int) -> str:
    return list_first_names([name for name, _ in count_names(text).most_common()], limit=limit)


def test_names_are_identifiers_and_paths_the_most_frequent_first() -> None:
    text = "open src/app.py, then call load_all and load_all again, with HttpClient and word and x1"
    assert list_names(text, limit=100) == "load_all, src/app.py, HttpClient"


def test_plain_words_are_no_names() -> None:
    assert list_names(PROSE, limit=500) == ""


def test_escapes_of_json_are_not_names() -> None:
    assert list_names(r"Gr\u00f6\u00dfe_x \ud83e\udee8Die \u0915", limit=100) == ""


@given(st.text(), st.integers(0, 200))
def test_names_stay_within_their_limit_and_stand_in_the_text(text: str, limit: int) -> None:
    name_list = list_names(text, limit=limit)
    assert len(name_list) <= limit
    assert all(name in text for name in name_list.split(", ") if name_list)


def test_a_long_text_is_shown_with_its_names() -> None:
    text = CODE + "\n" + "# filler of no interest\n" * 200 + "\ndef the_last_one():\n    pass\n"
    shown_text = outline_with_names(text, limit=400, name="x.py")
    assert "parse_gamma" in shown_text
    assert "the_last_one" in shown_text
    assert len(shown_text) <= 400


def test_a_text_without_names_is_only_outlined() -> None:
    assert outline_with_names(PROSE, limit=300) == outline_text(PROSE, limit=300)


@given(st.text(max_size=3_000), st.integers(1, 600))
def test_an_indexed_text_is_never_over_its_limit(text: str, limit: int) -> None:
    assert (
        outline_with_names(text, limit=limit) == text or len(outline_with_names(text, limit=limit)) <= limit
    )


LISTING = "\n".join(f"src/m{number % 7}.py:{number}: def load_{number}(x): return x" for number in range(60))


@pytest.mark.parametrize("limit", [300, 800, 1_500, 2_500])
@pytest.mark.parametrize("text", [LISTING, PROSE + LISTING, LISTING.replace("\n", "\n\n# ")])
def test_only_names_that_are_gone_are_listed(text: str, limit: int) -> None:
    """A name that stands in the lines that are shown would take room from those that do not."""
    shown = outline_with_names(text, limit=limit)
    structure, _, names = shown.partition("\n[names: ")
    listed = names.rstrip("]").split(", ") if names else []
    in_structure = set(count_names(structure))
    assert in_structure.isdisjoint(listed)
    assert set(listed) <= set(count_names(text))
    assert len(shown) <= limit
    # At least as many names are in sight as if all names were listed, whether or not they are shown.
    everything = list_names(text, limit=limit // 2 - len("\n[names: ]"))
    beside_all = outline_text(text, limit=limit - len("\n[names: ]") - len(everything))
    assert len(in_structure | set(listed)) >= len({*count_names(beside_all), *everything.split(", ")})


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: no such shelf",
        "error[E0308]: mismatched types",
        "src/app.ts(3,5): error TS2304: Cannot find name 'shelf'.",
        "  3:5  error  'shelf' is not defined  no-undef",
        "[ERROR] COMPILATION ERROR :",
        "FAILED tests/test_shelf.py::test_it",
        "fatal: not a git repository",
        "thread 'main' panicked at src/main.rs:3:5",
        "Exited with code 2",
        '{"returncode": 1}',
    ],
)
def test_a_line_that_says_what_went_wrong_is_found(line: str) -> None:
    text = f"{'All is well. ' * 3}\n" * 20
    assert find_error_lines(f"{text}{line}\n{text}") == [line]
    assert find_error_lines(text) == []
