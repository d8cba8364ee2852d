"""Decisions at their edges: what is sent again, what is clipped, what still fits."""

from __future__ import annotations

import pytest

from lamina import Form, build
from lamina.core import text_of
from lamina.core.text.clipping import clip, clip_lines, shorten
from lamina.core.text.user_words import AROUND_MESSAGE, SpokenMessage, Talk, quote_messages
from lamina.segments import assistant, file, user
from tests.core.conversations import LETTERS

# The same attachment again is a reference only if that is shorter.


def test_what_is_attached_again_is_never_sent_as_something_as_long() -> None:
    for size in range(1, 140):
        attached = file("a.py", "x" * size)
        log = [attached, user("Look."), assistant("Yes."), attached, user("And this one?")]
        envelope = build(log, counter=LETTERS)
        first, second = [entry for entry in envelope.entries if entry.segment.kind == "file"]
        assert first.form is Form.FULL, size
        assert second.form is not Form.FULL, size
        assert len(text_of(second.parts)) < len(text_of(first.parts)), size


# Clipping


LINES = [f"line {number:02}" for number in range(40)]
MARKER = "[... 40 lines left out ...]"


def test_lines_stay_whole_where_there_is_room_for_three_pieces() -> None:
    text = "\n".join(LINES)
    least = len(MARKER) + 1 + 3 * 24
    by_lines = clip_lines(text, limit=least)
    assert by_lines.split("\n") == [*LINES[:5], "[... 31 lines left out ...]", *LINES[-4:]]
    assert clip_lines(text, limit=least - 1) == clip(text, least - 1)
    assert "lines" not in clip_lines(text, limit=least - 1)


ALPHABETS = "abcdefghijklmnopqrstuvwxyz" * 4


@pytest.mark.parametrize(
    ("limit", "clipped"),
    [
        (0, ""),
        (24, "abcdefghijklmnopqrstuvwx"),
        (25, "abcdefghijklmnopqrstuv..."),
        (50, "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstu..."),
        (51, "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuv..."),
        (53, "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwx..."),
        (54, "abcdefghijklmnop [... 80 bytes left out ...] stuvwxyz"),
        (103, f"{ALPHABETS[:49]} [... 31 bytes left out ...] {ALPHABETS[80:]}"),
        (104, ALPHABETS),
    ],
)
def test_the_middle_is_left_out_where_there_is_room_to_say_so(limit: int, clipped: str) -> None:
    assert clip(ALPHABETS, limit) == clipped


SENTENCES = "One two. Three four five six"
PARAGRAPHS = "One two\n\nthree four"


@pytest.mark.parametrize(
    ("text", "limit", "shortened"),
    [
        (SENTENCES, 8, "One two...."),
        (SENTENCES, 9, "One two. ..."),
        (SENTENCES, 13, "One two. ..."),
        (SENTENCES, 14, "One two. Three..."),
        (SENTENCES, 15, "One two. Three ..."),
        (SENTENCES, 17, "One two. Three ..."),
        (SENTENCES, 18, "One two. Three fou..."),
        (SENTENCES, 20, "One two. Three four ..."),
        (SENTENCES, 24, "One two. Three four five..."),
        (SENTENCES, 27, SENTENCES),
        (SENTENCES, 28, SENTENCES),
        (PARAGRAPHS, 13, "One two\n\n..."),
        (PARAGRAPHS, 14, "One two\n\nthree..."),
        (PARAGRAPHS, 15, "One two\n\nthree ..."),
    ],
)
def test_of_a_shortened_text_the_last_whole_sentence_or_word_stays(
    text: str, limit: int, shortened: str
) -> None:
    assert shorten(text, limit) == shortened


def test_no_character_is_parted_from_its_accent() -> None:
    text = "e\u0301" * 60
    for limit in range(70, 90):
        head, tail = clip(text, limit).split(" [... ")[0], clip(text, limit).split(" ...] ")[1]
        assert head == "e\u0301" * (len(head) // 2)
        assert tail == "e\u0301" * (len(tail) // 2)


# What the user said, in little room


def test_what_stays_of_a_message_fits_into_the_room() -> None:
    talk = Talk([SpokenMessage(1, "asked", "words without any pause " * 20)])
    for room in range(1, 240):
        quoted = quote_messages(talk, room)
        assert sum(len(message.text) + AROUND_MESSAGE for message in quoted.values()) <= room
        assert bool(quoted) is (room >= AROUND_MESSAGE + len(" ...") + 24), room
