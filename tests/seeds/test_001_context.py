"""Source system 001, a layered prefix: context blocks of its prompts, read back (S1-01 to S1-07)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.importers.tagged_context import TAGS, find_blocks, read_context, unescape
from lamina import Segment
from lamina.core import KINDS, text_of
from lamina.core.kinds import recoverable


def note_block(path: str, text: str, *, tag: str = "note_context") -> str:
    return f"<{tag}>\n<title>t</title>\n<path>{path}</path>\n<content>\n{text}\n</content>\n</{tag}>"


def page_block(tag: str, address: str, text: str = "page") -> str:
    return f"<{tag}>\n<url>{address}</url>\n<content>\n{text}\n</content>\n</{tag}>"


def one(text: str) -> Segment:
    (segment,) = read_context(text).segments
    return segment


NOTE = note_block("folder/my-note.md", "# Hello\n\nWorld")


@pytest.mark.parametrize(
    "text", ["", " \n\t", "plain text", "<unknown_tag>x</unknown_tag>", "<note_context>"]
)
def test_s1_01_what_is_no_block_is_no_segment(text: str) -> None:
    assert read_context(text).segments == ()


def test_s1_01_and_it_is_kept_under_a_name_that_its_content_gives_it() -> None:
    first, again = (read_context(f"{NOTE}\n\n<unknown>x</unknown>").unparsed for _ in range(2))
    assert first == again
    assert [(s.key[:9], text_of(s.parts)) for s in first] == [("unparsed:", "<unknown>x</unknown>")]
    assert read_context("a\n<note_context>\nb").unclosed == 1


def test_s1_02_a_note_is_one_segment_named_by_its_path() -> None:
    segment = one(f"\n{NOTE}\n")
    assert (segment.kind, segment.key) == ("note", "folder/my-note.md")
    assert segment.attrs == {"title": "t", "path": "folder/my-note.md"}
    assert text_of(segment.parts) == "# Hello\n\nWorld"
    assert find_blocks(f"\n{NOTE}\n", tuple(TAGS)).blocks[0].text.strip() == NOTE


def test_s1_03_pages_are_named_by_address_documents_by_name() -> None:
    for tag in (
        "url_content",
        "web_tab_context",
        "active_web_tab",
        "youtube_video_context",
        "twitter_content",
    ):
        segment = one(page_block(tag, "https://example.org/?a=1&amp;b=2"))
        assert (segment.key, "path" in segment.attrs) == ("https://example.org/?a=1&b=2", False)
    pdf = one("<embedded_pdf>\n<name>paper.pdf</name>\n<content>\nx\n</content>\n</embedded_pdf>")
    assert (pdf.kind, pdf.key) == ("pdf", "paper.pdf")


@pytest.mark.parametrize("tag", TAGS)
def test_s1_03_every_known_tag_is_one_segment_of_a_known_kind(tag: str) -> None:
    segment = one(f"<{tag}>\ncontent\n</{tag}>")
    assert segment.kind in KINDS
    assert text_of(segment.parts) == "content"


def test_s1_04_blocks_without_a_name_are_numbered() -> None:
    text = "<selected_text>\na\n</selected_text>\n<selected_text>\nb\n</selected_text>"
    assert [s.key for s in read_context(text).segments] == ["selected_text", "selected_text:2"]


def test_s1_05_earlier_context_is_named_by_its_source() -> None:
    prior = one('<prior_context source="folder/a &amp; b.md" type="note">\nx\n</prior_context>')
    assert (prior.kind, prior.key, prior.meta) == ("note", "folder/a & b.md", {"tag": "prior_context"})
    assert one("<prior_context>\nx\n</prior_context>").key == "prior_context"


def test_s1_06_blocks_come_in_the_order_of_the_text() -> None:
    prior = '<prior_context source="old.md" type="note">\nx\n</prior_context>'
    pages = page_block("url_content", "https://a"), page_block("youtube_video_context", "https://b")
    found = read_context("\n\n".join([NOTE, *pages, prior]))
    assert [s.key for s in found.segments] == ["folder/my-note.md", "https://a", "https://b", "old.md"]
    assert found.unparsed == ()
    assert len(read_context(NOTE + NOTE).segments) == 2


def test_s1_07_what_can_be_had_again_is_said_by_its_kind() -> None:
    tags = ("note_context", "url_content", "youtube_video_context", "twitter_content")
    assert [recoverable(KINDS, one(f"<{tag}>\nx\n</{tag}>")) for tag in tags] == [True] * 4
    assert {name for name, kind in KINDS.items() if kind.attachment and not kind.recoverable} == {
        "selected_text",
        "web_selected_text",
    }
    (unknown,) = read_context("<unknown>x</unknown>").unparsed
    assert recoverable(KINDS, unknown)  # lamina can give back all it was given


# what goes wrong there and must not here


def test_a_note_may_contain_its_own_closing_tag() -> None:
    text = "about </note_context> and <selected_text>s</selected_text> and </content> too"
    found = read_context(note_block("a.md", text) + "\n" + NOTE)
    assert [(s.key, text_of(s.parts)) for s in found.segments] == [
        ("a.md", text),
        ("folder/my-note.md", "# Hello\n\nWorld"),
    ]


@given(st.text(max_size=60), st.text(st.characters(codec="utf-8"), max_size=30))
def test_nothing_between_or_inside_blocks_is_lost(between: str, body: str) -> None:
    between, body = between.replace("<", "("), body.replace("</content>", "")
    found = read_context(NOTE + between + note_block("b.md", body))
    assert text_of(found.segments[1].parts) == body
    assert "".join(text_of(s.parts) for s in found.unparsed) == between.strip()


def test_a_large_text_is_read_in_one_pass() -> None:
    for text in ("<note_context>", "<note_context>\n<content>\n", "</note_context>", "<note_context <"):
        assert read_context(text * 20_000).segments == ()
    assert len(read_context("<note_context></content></note_context>" * 5_000).segments) == 5_000


def test_entities_are_read_once() -> None:
    assert unescape("&amp;lt; &#10;&#55296;&nbsp;") == "&lt; \n&#55296;&nbsp;"


def test_what_could_not_be_parsed_is_counted_by_tag_and_place() -> None:
    text = f"{NOTE}\nx <weird a='1'>lost?</weird>\n<note_context>\n<path>b.md</path>\nnever closed"
    found = read_context(text)
    lines = text.split("\n")
    weird = next(i for i, line in enumerate(lines, 1) if "<weird" in line)
    assert [(failure.tag, failure.why, failure.line) for failure in found.failures] == [
        ("weird", "unknown tag", weird),
        ("note_context", "never closes", weird + 1),
    ]
    assert found.unclosed == 1
    assert all("lost" not in failure.sample for failure in found.failures)
    assert len({failure.sample for failure in found.failures}) == 2
    assert read_context(f"{NOTE}\nno tags, 1 < 2 > 0, <br>, <b>bold</b>").failures[0].tag == "b"
    assert read_context(NOTE).failures == ()


def test_failures_are_found_in_one_pass() -> None:
    for text in ("<a>", "<a></b>", "</a>", "<note_context>", "<a <a "):
        read_context(text * 20_000)
