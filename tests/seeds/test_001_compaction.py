"""Source system 001: previews and the compaction of earlier context (S1-20 to S1-29)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.importers.tagged_context import read_context
from lamina import Budget, Form, Layer, Options, Segment, build
from lamina.core import CHARS4, Layout, text_of
from lamina.core.text.clipping import shorten
from lamina.core.text.outline import MOST, outline_markdown
from lamina.core.text.tags import escape_attribute
from lamina.core.values import Digest
from lamina.core.wording import PLAIN
from lamina.segments import assistant, note, pdf, segment, selected_text, url, user, video

HOISTED = Options(layout=Layout(library="hoisted"))

CONTENT = Digest("0" * 64)


def prior(given_: Segment, *, limit: int = 5_000) -> str:
    return text_of(PLAIN.prior(given_, CONTENT, limit=limit))


def test_s1_20_a_preview_ends_with_a_sentence() -> None:
    text = "First sentence. Second sentence. Third sentence that goes on and on to make it longer."
    assert shorten(text, 50) == "First sentence. Second sentence. ..."


def test_s1_21_or_with_a_paragraph() -> None:
    text = "First paragraph with no sentence breaks\n\nSecond paragraph here"
    assert shorten(text, 50) == "First paragraph with no sentence breaks\n\n..."


def test_s1_22_or_with_a_word_or_where_it_must() -> None:
    assert shorten("word1 word2 word3 word4 word5 word6 word7 word8", 25) == "word1 word2 word3 word4 ..."
    assert shorten("verylongwordwithoutanyspaces", 10) == "verylongwo..."
    assert shorten("short", 10) == "short"


@pytest.mark.parametrize("size", [3_000, 5_000])
def test_s1_23_text_without_headings_is_cut_at_four_previews(size: int) -> None:
    assert outline_markdown("A" * size, limit=size - 1, preview=500) == "A" * 2_000 + "..."


def test_s1_24_sections_that_fit_are_exact_and_too_many_are_counted() -> None:
    two = "## One\n\nFirst.\n\n## Two\n\nSecond."
    assert outline_markdown(two, limit=5_000) == two
    many = "\n\n".join(f"## Section {i}\n\nText {i}." for i in range(1, 31))
    short = outline_markdown(many, limit=5_000, most=10)
    assert [f"## Section {i}\n" in short for i in (1, 10, 11)] == [True, True, False]
    assert short.endswith("[... 20 more sections omitted ...]")


def test_s1_25_one_heading_is_no_structure() -> None:
    text = "## Section 1\n" + "A" * 1_000
    assert outline_markdown(text, limit=1_000, preview=100) == text[:400] + "..."


def test_s1_26_defaults_and_escapes() -> None:
    assert (MOST, Layout().prior_limit) == (20, 5_000)
    assert Layout(prior_limit=100).library == "in_place"
    assert escape_attribute("&\"'<>") == "&amp;&quot;&apos;&lt;&gt;"


PAPER = "\n\n".join(f"## Section {i}\n\n" + "A sentence of this paper. " * 57 for i in range(12))


def test_s1_27_a_large_block_becomes_its_structure_and_a_small_one_stays() -> None:
    assert (
        prior(note("a.md", "small"), limit=1_000)
        == '<prior_context source="a.md" type="note">\nsmall\n</prior_context>'
    )
    sections = note("research/paper.md", "# One\n\n" + "A" * 3_000 + "\n\n# Two\n\n" + "B" * 3_000)
    made = prior(sections, limit=1_000)
    assert made.startswith('<prior_context source="research/paper.md" type="note">\n# One\n')
    assert "\n# Two\n" in made
    assert len(made) < 1_200
    for given_, source, kind in (
        (url("https://a", "x"), "https://a", "url"),
        (video("https://b", "x"), "https://b", "video"),
        (pdf("c.pdf", "x"), "c.pdf", "pdf"),
    ):
        assert prior(given_).startswith(f'<prior_context source="{source}" type="{kind}">')


def test_s1_27_a_paper_keeps_every_heading_in_less_than_a_third() -> None:
    made = prior(note("paper.md", PAPER))
    assert all(f"## Section {i}\n" in made for i in range(12))
    assert len(made) < 0.3 * len(PAPER)


def test_s1_28_a_selection_is_never_compacted() -> None:
    marked = "A selected sentence. " * 1_000
    for kind in ("selected_text", "web_selected_text"):
        given_ = segment(kind, user("").role, marked)
        envelope = build([given_, user("Explain")], options=HOISTED)
        assert marked in text_of(envelope.sent[0].parts)
    log = [note("a.md", PAPER), selected_text(marked), user("1"), assistant("1" * 400), user("2")]
    budget = Budget(window=6_500, reserve=0, keep_last=0)
    cut = build(log, budget=budget, counter=CHARS4)
    forms = {e.segment.kind: e.form for e in cut.entries}
    assert (cut.cut is None, forms["note"] < Form.FULL, forms["selected_text"]) == (False, True, Form.FULL)


@pytest.mark.parametrize("size", [4_900, 4_930, 5_000, 5_001])
@pytest.mark.parametrize("path", ["n.md", "a & b.md", 'quo"te.md', "deep/<er>/note.md"])
def test_s1_29_what_is_carried_says_what_it_is_at_every_length(size: int, path: str) -> None:
    given_ = note(path, "x" * size)
    envelope = build([given_, user("1"), assistant("1"), user("2")], options=HOISTED)
    (carried,) = [text_of(e.parts) for e in envelope.sent if e.layer is Layer.LIBRARY][1:]
    (back,) = read_context(carried).segments
    assert (back.kind, back.key) == ("note", path)


@given(st.text(max_size=80), st.integers(0, 400), st.sampled_from((note, url, pdf)))
def test_s1_29_for_any_text_and_kind(text: str, limit: int, make: type) -> None:
    given_ = make("source & <name>", text * 6)
    (back,) = read_context(prior(given_, limit=limit)).segments
    assert (back.kind, back.key) == (given_.kind, given_.key)
