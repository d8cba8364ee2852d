"""The check of the documentation's prose finds what readers tripped over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import prose
from tools.prose import Sentence, find_banned, find_complaints

UNREADABLE = [
    "(Rooms a call for prices as Anthropic's, OpenAI's before GPT-5.6, and a server's of one's own.)",
    "What is no file there stays words.",
    "It is that very session behind a portal, not a second one.",
    "The constant foretells no miss.",
    "Cases B14 to B18 hold.",
    "Who knows one of the systems can begin with its own page.",
    "A request that is none is refused.",
    "What cannot be had again is never summarised.",
    "Hosted caches are held against usage that providers reported.",
    "What need not change is not changed.",
    "In the first minute nothing changes.",
    "So the two are priced apart.",
    "Every decision can be asked for its reason, and it may be looked at after every call.",
]


@pytest.mark.parametrize("text", UNREADABLE)
def test_sentences_that_newcomers_could_not_read_are_found(text: str) -> None:
    assert list(find_banned([Sentence("page.md", text)]))


def test_plain_sentences_pass() -> None:
    assert not list(find_complaints([Sentence("page.md", "A cut lowers many segments in one pass.")]))


def test_a_word_of_contributors_is_found_unless_it_is_code_or_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text("A segment, lowered. `floor` in code; a piece, or *room*.\n")
    found = [complaint.split("'")[1] for complaint in prose.find_own_words(["page.md"])]
    assert found == ["lowered", "segment"]
