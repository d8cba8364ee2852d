from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core.text.clipping import clip, clip_lines, shorten
from lamina.core.text.outline import outline_markdown, outline_text

NAMES = ("", "a.py", "a.md", "a.json", "a.log", "dir.d/README", "go")

ODD = ("\x00", "\ud800", "שלום\u200f", "👩\u200d👩\u200d👧", "e\u0301", "\r\n", "\u2028", "<", '"', "\\")
SYNTAX = (
    "# h\n",
    "```\n",
    "~~~",
    "def f(a):\n",
    "class A {\n",
    "a,b,c\n",
    "\t",
    '{"a":',
    "[",
    "]",
    "}",
    "1",
    "\n",
)
TEXTS = st.one_of(
    st.text(max_size=400),
    st.lists(st.sampled_from(ODD + SYNTAX) | st.text(max_size=20), max_size=120).map("".join),
    st.tuples(st.sampled_from(ODD + SYNTAX), st.integers(1, 400)).map(lambda pair: pair[0] * pair[1]),
)
LIMITS = st.integers(-5, 600)

LOG = "\n".join(f"12:00:{number:04} step {number} of the build went well" for number in range(1_000))
PAPER = "\n\n".join(
    f"## Part {number}\n\n" + f"Sentence of part {number} that says something. " * 30 for number in range(12)
)


# every sort


@given(TEXTS, LIMITS, st.sampled_from(NAMES))
def test_outline_is_within_its_limit_or_the_text_itself(text: str, limit: int, name: str) -> None:
    short_text = outline_text(text, limit=limit, name=name)
    assert short_text == text if len(text) <= limit else len(short_text) <= max(limit, 0)
    assert short_text == outline_text(text, limit=limit, name=name)
    assert outline_text(short_text, limit=max(limit, 0), name=name) == short_text


@given(TEXTS, LIMITS, st.integers(0, 300), st.integers(0, 30))
def test_each_sort_keeps_its_limit_on_any_text(text: str, limit: int, preview: int, most: int) -> None:
    room = max(limit, 0)
    assert len(outline_markdown(text, limit=limit, preview=preview, most=most)) <= room
    for short_text in (
        clip_lines(text, limit=limit),
        clip(text, limit),
    ):
        assert short_text == text if len(text) <= limit else len(short_text) <= room


@given(TEXTS, st.integers(100, 600), st.sampled_from(NAMES))
def test_a_shortened_text_says_so(text: str, limit: int, name: str) -> None:
    short_text = outline_text(text, limit=limit, name=name)
    assert short_text == text or "[... " in short_text


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (PAPER, "## Part 0"),
        ("id,name,when\n" * 200, "id,name,when"),
        ("import os\n\n\ndef one(a):\n    pass\n\n\n" * 40, "4: def one(a):"),
        (LOG, "12:00:0000 step 0 of the build went well"),
        ("# not a heading in a log\n" + LOG, "# not a heading in a log"),
    ],
)
def test_a_text_without_a_name_is_recognised_by_its_content(text: str, first: str) -> None:
    assert outline_text(text, limit=700).split("\n")[0] == first


def test_a_name_decides_about_the_sort() -> None:
    comments = "# one\nx = 1\n# two\ny = 2\n" * 50 + "def f():\n" * 3
    assert outline_text(comments, limit=300, name="a.md").startswith("# one\n")
    assert "def f():" in outline_text(comments, limit=300, name="src/a.py").split("\n")[0]


def test_a_name_without_a_suffix_decides_nothing() -> None:
    assert outline_text(LOG, limit=500, name="md") == outline_text(LOG, limit=500)


# shorten, clip


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        (
            "First sentence. Second sentence. Third sentence that goes on and on to make it longer.",
            50,
            "First sentence. Second sentence. ...",
        ),
        (
            "First paragraph with no sentence breaks\n\nSecond paragraph here",
            50,
            "First paragraph with no sentence breaks\n\n...",
        ),
        ("word1 word2 word3 word4 word5 word6 word7 word8", 25, "word1 word2 word3 word4 ..."),
        ("verylongwordwithoutanyspaces", 10, "verylongwo..."),
        ("short", 10, "short"),
        ("第一句。第二句。第三句很长很长很长", 9, "第一句。第二句。 ..."),
    ],
)
def test_shorten_cuts_where_a_reader_would_pause(text: str, limit: int, expected: str) -> None:
    assert shorten(text, limit) == expected


@given(TEXTS, st.integers(0, 400))
def test_shorten_is_never_longer_than_its_text_nor_four_over_its_limit(text: str, limit: int) -> None:
    assert len(shorten(text, limit)) <= min(len(text), limit + 4)


def test_shorten_parts_no_character_from_its_marks() -> None:
    assert shorten("cafe\u0301s are open", 4) == "caf..."
    assert shorten("ab👩\u200d👩\u200d👧cd efgh", 4) == "ab..."


def test_clip_counts_bytes_not_characters() -> None:
    short_text = clip("é" * 1_000, 100)
    assert f"[... {2 * (1_000 - short_text.count('é')):,} bytes left out ...]" in short_text
    assert "characters left out" in clip("é" * 1_000, 100, unit="characters")


# logs


def test_clip_lines_keeps_whole_lines_of_both_ends_and_counts_the_rest() -> None:
    short_text = clip_lines(LOG + "\nValueError: the last line", limit=500).split("\n")
    note = next(line for line in short_text if line.startswith("[... "))
    assert note == f"[... {1_001 - len(short_text) + 1} lines left out ...]"
    assert short_text[-1] == "ValueError: the last line"
    assert all(line in LOG or line in (note, short_text[-1]) for line in short_text)
    assert short_text.index(note) >= 4
    assert len(short_text) - short_text.index(note) >= 4


def test_clip_lines_shortens_long_lines_so_that_others_fit() -> None:
    short_text = clip_lines("first\n" + "x" * 50_000 + "\n" + "middle\n" * 50 + "fatal: last", limit=400)
    assert short_text.startswith("first\nxxx")
    assert " bytes left out ...] xxx" in short_text
    assert short_text.endswith("\nmiddle\nfatal: last")


def test_clip_lines_shows_a_line_whole_that_half_of_the_room_has_room_for() -> None:
    lines = [f"{number:03}" + "-" * 77 for number in range(100)]
    assert clip_lines("\n".join(lines), limit=200).split("\n")[::2] == [lines[0], lines[-1]]


def test_clip_lines_of_one_long_line_keeps_both_ends() -> None:
    short_text = clip_lines("begin" + "-" * 5_000 + "end", limit=200)
    assert short_text.startswith("begin---")
    assert short_text.endswith("---end")
    assert len(short_text) > 190


def test_clip_lines_counts_one_line_as_one() -> None:
    lines = ["a" * 60, "b" * 60, "c" * 300, "d" * 60]
    assert "[... 1 line left out ...]" in clip_lines("\n".join(lines), limit=260)


# Markdown


def test_markdown_gives_back_sections_that_fit() -> None:
    text = "intro\n\n# One\n\nshort\n## Two\nshort too\n"
    assert outline_markdown(text, limit=1_000) == text


def test_markdown_shows_at_most_so_many_sections() -> None:
    text = "\n\n".join(f"## Section {number}\n\nText {number}." for number in range(1, 31))
    short_text = outline_markdown(text, limit=5_000, most=10)
    assert "## Section 1\n" in short_text
    assert "## Section 10\n" in short_text
    assert "## Section 11" not in short_text
    assert short_text.endswith("[... 20 more sections omitted ...]")


def test_markdown_keeps_every_heading_of_a_paper() -> None:
    short_text = outline_markdown(PAPER, limit=len(PAPER) * 3 // 10, preview=300)
    assert [line for line in short_text.split("\n") if line.startswith("#")] == [
        f"## Part {n}" for n in range(12)
    ]
    assert short_text.count(" ...\n") == 12
    assert short_text.endswith(" bytes left out ...]")


def test_markdown_previews_shrink_to_what_fits() -> None:
    roomy, tight = (outline_markdown(PAPER, limit=limit, preview=300) for limit in (5_000, 1_500))
    assert 1_000 < len(tight) <= 1_500 < len(roomy)
    assert tight.count("## Part") == roomy.count("## Part") == 12


def test_markdown_drops_sections_from_the_end_where_headings_alone_are_too_many() -> None:
    short_text = outline_markdown("\n".join(f"# Heading number {n}" for n in range(100)), limit=200, most=100)
    assert short_text.startswith("# Heading number 0\n")
    heading_count = short_text.count("# Heading")
    assert short_text.endswith(f"[... {100 - heading_count} more sections omitted ...]")


@pytest.mark.parametrize("fence", ["```", "~~~~", "   ```python"])
def test_markdown_takes_no_comment_in_a_fence_for_a_heading(fence: str) -> None:
    close = fence.strip().removesuffix("python")
    block = f"{fence}\n# comment\n" + "x = 1\n" * 100 + f"{close}\n"
    short_text = outline_markdown(f"# One\n{block}# Two\n{block}", limit=300, preview=60)
    assert [line for line in short_text.split("\n") if line.startswith("# ") and "comment" not in line] == [
        "# One",
        "# Two",
    ]
    assert sum(line.strip().startswith(close) for line in short_text.split("\n")) == 4


def test_markdown_fence_closes_only_with_its_own_mark() -> None:
    text = "# One\n````\n```\n# inside\n~~~\n````\n# Two\n" + "text " * 200
    short_text = outline_markdown(text, limit=400, preview=10)
    assert "# inside" not in short_text
    assert "# Two" in short_text


def test_markdown_without_headings_is_shortened_as_one_text() -> None:
    assert outline_markdown("A" * 3_000, limit=9_000, preview=500) == "A" * 2_000 + "..."
    assert (
        outline_markdown("## Section 1\n" + "A" * 1_000, limit=9_000, preview=100)
        == "## Section 1\n" + "A" * 387 + "..."
    )
