from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.core.text import rule_words, wish_words
from lamina.core.text.sentences import Phrases, read_different_words, split_sentences
from lamina.core.text.standing_rules import find_rules, find_statements, quote_statement, weigh_sentence

TABLES = (
    rule_words.rules(),
    rule_words.habits(),
    rule_words.orders(),
    wish_words.telling(),
    wish_words.asking(),
    wish_words.speaking(),
)
LITERALS = [literal for table in TABLES for literal, _ in table.literals]
GLUE = st.sampled_from(
    [" ", "", "_", "**", "-", "'", ".", ". ", "\n", ", not ", "é", "ी", "说", "a", "7", "\r\n"]
)
TEXTS = st.lists(st.one_of(st.sampled_from(LITERALS), GLUE, st.text(max_size=4)), max_size=12).map("".join)


@pytest.mark.parametrize(
    ("table", "text", "place"),
    [
        ("must", "mustard", None),
        ("allerg*", "two allergies", 4),
        ("allerg*", "two analleges", None),
        ("soy alérgic*", "yo soy alérgica a eso", 3),
        ("m'*", "ça m'ennuie", 3),
        ("*ieron", "ellos comieron", 6),
        ("*ieron", "ieronimo", None),
        ("*ieron | must", "comieronse", None),
        ("说错", "我说错了", 1),
    ],
)
def test_a_star_stands_for_the_rest_of_a_word(table: str, text: str, place: int | None) -> None:
    assert Phrases(table).find(text) == place


@given(text=TEXTS)
def test_no_phrase_stands_where_its_letters_are_not_found(text: str) -> None:
    folded = text.lower()
    words = read_different_words(folded)
    for table in TABLES:
        places = set(table.find_places(folded, words))
        for place in table.find_all(folded):
            match = table.spaced.match(folded, place) or table.unspaced.match(folded, place)
            assert match is not None
            assert not places.isdisjoint(range(*match.span()))  # of `*ieron` the letters end the word


@given(text=TEXTS)
def test_a_long_text_is_weighed_sentence_by_sentence(text: str) -> None:
    """Its sentences that have the letters of no phrase are not read."""
    long_text = text + "\nThe harbour was grey in the morning." * 120
    statements = list(find_statements(long_text))
    sentences = list(split_sentences(long_text))
    assert [each.weight for each in statements] == [weigh_sentence(each.text) for each in sentences]
    assert [each._replace(weight="") for each in statements] == sentences
    rules = [quote_statement(each.text) for each in statements if each.weight == "rule"]
    assert find_rules(long_text) == rules
