"""The fixed sets, held against tables that never change: Unicode 3.2, which every Python carries for ever."""

from __future__ import annotations

import json
import re
import string
from functools import cache
from unicodedata import category, ucd_3_2_0

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core.text.characters import (
    ALPHANUMERIC,
    LINE_ENDS,
    SPACES,
    UNPRINTABLE,
    WHITE_SPACE,
    any_case_pattern,
    escape_json,
    fold_case,
    is_alphanumeric,
    is_blank,
    is_digits,
    is_letter,
    is_printable,
    lower_ascii,
    make_printable,
    quote_text,
    spellings,
    split_lines,
    split_words,
    upper_ascii,
    with_newlines,
)

EVERYTHING = "".join(map(chr, range(0x110000)))
USED = "".join(map(chr, (*range(0x30000), *range(0xE0000, 0xE1000))))
"""The planes that hold more than reserved places."""
SPACED = st.text(st.sampled_from("ab\u00e9 \t" + LINE_ENDS + SPACES))


@cache
def known() -> str:
    """What was assigned long ago, and is still taken for the same sort of character."""
    return "".join(sign for sign in USED if ucd_3_2_0.category(sign)[0] == category(sign)[0])


@cache
def capitals() -> dict[str, str]:
    folded = zip(EVERYTHING, fold_case(EVERYTHING), strict=True)
    return {big: small for big, small in folded if big != small}


def of_categories(initials: str) -> set[str]:
    return {sign for sign in known() if category(sign)[0] in initials and ucd_3_2_0.category(sign) != "Cn"}


def test_white_space_is_what_every_python_takes_for_it() -> None:
    assert set(WHITE_SPACE) == {sign for sign in known() if sign.isspace()}
    assert set(string.whitespace) < set(WHITE_SPACE)
    assert sorted(LINE_ENDS + SPACES) == sorted(WHITE_SPACE)


def test_letters_digits_and_marks_belong_to_words() -> None:
    unseen = {*map(chr, range(0x180B, 0x180E)), *map(chr, range(0xFE00, 0xFE10))}
    music = {*map(chr, range(0x1D000, 0x1D250))}
    expected = of_categories("LNM") - unseen - music
    found = set(re.findall(f"[{ALPHANUMERIC}]", known()))
    assert expected - found == set()


def test_signs_and_spaces_do_not_belong_to_words() -> None:
    tones = {*map(chr, (*range(0x2E5, 0x2EC), 0x2ED))}
    mathematics = {sign for sign in of_categories("S") if 0x1D400 <= ord(sign) < 0x1D800}
    found = set(re.findall(f"[{ALPHANUMERIC}]", known()))
    assert (of_categories("PSZC") & found) - tones - mathematics == set()


def test_what_has_a_glyph_is_printable() -> None:
    found = set(re.findall(f"[{UNPRINTABLE}]", known()))
    assert found & of_categories("LMNPSZC") == of_categories("ZC") - {" "}


def test_the_sets_are_what_they_were() -> None:
    """They shape bytes that were sent: a change is a breaking change, and is made knowingly."""
    letters = re.findall(f"[{ALPHANUMERIC}]", EVERYTHING)
    hidden = re.findall(f"[{UNPRINTABLE}]", EVERYTHING)
    assert (len(letters), len(hidden), len(capitals())) == (900_779, 143_816, 583)


@given(SPACED)
def test_words_and_lines_part_as_python_parts_them(text: str) -> None:
    assert split_words(text) == text.split()
    assert split_lines(text) == text.splitlines()
    assert text.strip(WHITE_SPACE) == text.strip()
    assert is_blank(text) is (not text.strip())


def test_every_line_end_becomes_a_newline() -> None:
    assert with_newlines("a\r\nb\rc\u2028\u2029d") == "a\nb\nc\n\nd"


@given(st.text())
def test_ascii_letters_change_their_case_alone(text: str) -> None:
    assert lower_ascii(text) == "".join(c.lower() if c.isascii() else c for c in text)
    assert upper_ascii(text) == "".join(c.upper() if c.isascii() else c for c in text)


@given(st.text())
def test_folding_keeps_every_place(text: str) -> None:
    assert len(fold_case(text)) == len(text)
    assert fold_case(fold_case(text)) == fold_case(text)


def test_folding_makes_small_letters_as_python_does() -> None:
    assert {big for big, small in capitals().items() if big.lower() != small} == {"\u0130", "\u03c2"}
    assert fold_case("ÄRGER Ωμέγα ЖУК ԱԲ Ş ẞ") == "ärger ωμέγα жук աբ ş ß"


@pytest.mark.parametrize("letter", "aiksxIKSZ")
def test_a_letter_in_any_case_is_what_a_pattern_that_ignores_case_finds(letter: str) -> None:
    found = re.findall(letter, USED, re.IGNORECASE)
    assert sorted(spellings(letter)) == sorted(found)


def test_a_word_in_any_case_is_a_pattern() -> None:
    pattern = re.compile(any_case_pattern("a.task-1"))
    assert pattern.fullmatch("A.TA\u017f\u212a-1")
    assert not pattern.fullmatch("abtask-1")


@given(st.text(st.sampled_from("ab'\"\\\n\u00e9\u00a0\u200b漢\U0001f642\U000e0001\ud800")))
def test_quotes_are_those_of_python(text: str) -> None:
    assert quote_text(text) == repr(text)


def test_what_no_table_knows_yet_is_shown_as_it_is() -> None:
    assert quote_text("\U00088888") == "'\U00088888'"


@given(
    st.text(alphabet=st.characters() | st.sampled_from("\x1b\x9b\x07\u202e\u200d\r\n\t\u2028"), max_size=60)
)
def test_printable_text_has_nothing_that_a_terminal_obeys(text: str) -> None:
    one_line = make_printable(text)
    lines = make_printable(text, lines=True)
    assert is_printable(one_line.replace("\u200c", "").replace("\u200d", ""))
    assert lines.count("\n") == text.count("\n")
    assert lines.replace("\n", " ") == one_line
    if is_printable(text):
        assert one_line == text


def test_white_space_is_shown_as_plain_spaces() -> None:
    assert make_printable("a\tb\u00a0c\r\nd\x1b[2J\u202e!") == "a    b c d[2J!"


@given(
    st.text(alphabet=st.characters(exclude_categories=()) | st.sampled_from("\x1b\x9b\u202e"), max_size=60)
)
def test_escaped_json_means_the_same(text: str) -> None:
    escaped = escape_json(json.dumps({text: text}, ensure_ascii=False))
    assert is_printable(escaped)
    assert json.loads(escaped) == {text: text}


def test_single_characters_are_told_apart() -> None:
    assert [is_letter(sign) for sign in "aÉ漢9_- "] == [True, True, True, False, False, False, False]
    assert [is_alphanumeric(sign) for sign in "a9_٣"] == [True, True, False, True]
    assert [is_digits(text) for text in ("12", "", "1a", "٣")] == [True, False, False, False]
    assert [is_printable(text) for text in ("a b", "a\u00a0b", "\u200b", "", "🙂")] == [
        True,
        False,
        False,
        True,
        True,
    ]
