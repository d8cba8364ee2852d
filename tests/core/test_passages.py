"""Which passages a question finds, and how much is read to find them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lamina.core.passages import (
    GIANT,
    LONGEST_SENTENCE,
    MOST_PLACES,
    PassageChoice,
    PassageIndex,
    rate_sentences,
    weigh_terms,
)
from lamina.core.values import Ref


def make_index(texts: Sequence[str]) -> tuple[PassageIndex, list[Ref]]:
    index = PassageIndex()
    refs = [Ref(f"k{number}~0") for number in range(len(texts))]
    for ref, text in zip(refs, texts, strict=True):
        index.add(ref, text)
    return index, refs


def find_best(texts: Sequence[str], question: str) -> str:
    index, refs = make_index(texts)
    best = rate_sentences(index, weigh_terms(index, question), refs)[0]
    return index.sources[index.sentences[best.sentence].source].text


def test_a_long_message_is_its_sentences_and_a_very_long_sentence_is_cut_between_words() -> None:
    short = [f"Boat {number} sails at {number} o'clock." for number in range(30)]
    endless = "word " * 200 + "end"
    index, _ = make_index([" ".join([*short, endless])])
    text = index.sources[0].text
    pieces = [text[sentence.start : sentence.end] for sentence in index.sentences]
    assert [piece.strip() for piece in pieces[:30]] == short
    assert [len(piece) <= LONGEST_SENTENCE for piece in pieces] == [True] * len(pieces)
    assert " ".join(" ".join(pieces[30:]).split()) == endless


def test_words_of_grammar_do_not_outweigh_the_subject() -> None:
    texts = [
        "I keep a 7 handicap and never look at the score.",
        "Do it all before the winter comes back.",
        "The boats were painted green before the winter.",
        "Marta plants tomatoes behind the shed every spring.",
    ]
    question = "First of all, what is my handicap?"
    assert find_best(texts, question) == texts[0]


def test_how_to_answer_does_not_outweigh_the_question() -> None:
    texts = [
        "Somebody charged me 49.99 without saying why.",
        "Someone wrote a poem in plain Dutch.",
        "The boats were painted green before the winter.",
        "Marta plants tomatoes behind the shed every spring.",
    ]
    question = "How much was I charged? Use plain sentences."
    assert find_best(texts, question) == texts[0]


def test_what_a_question_says_besides_still_counts() -> None:
    texts = ["Flight BA117 leaves at noon.", "The train leaves at nine.", "Snow fell in March."]
    assert find_best(texts, "I mean flight BA117. When does it leave?") == texts[0]


def test_a_look_up_in_a_large_index_reads_a_part_of_it() -> None:
    words = [f"word{number % 40} thing{number % 41} place{number % 43}" for number in range(20_000)]
    index, refs = make_index([f"Here {each} is told." for each in words])
    question = " ".join(f"word{at} thing{at} place{at}" for at in range(40)) + "?"
    weights = weigh_terms(index, question)
    assert 0 < sum(len(index.sentences_with(term)) for term in weights) <= MOST_PLACES
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text) // 4

    rated = rate_sentences(index, weights, refs)
    assert PassageChoice(index, refs, in_sight="", limit=300, count=count).take_about(rated, 300)
    assert len(counted) < 200


OTHER_FORMS = {
    "English": "boat boats, dog dogs, car cars, rent rents, key keys, bakery bakeries, flight flights",
    "German": "Boot Boote, Hund Hunden, Kind Kinder, Auto Autos, Rechnung Rechnungen, Katze Katzen",
    "French": "chat chats, vol vols, clé clés, bateau bateaux, route routes",
    "Spanish": "gato gatos, casa casas, tren trenes, barco barcos, llave llaves",
    "Portuguese": "voo voos, casa casas, gato gatos, flor flores, chave chaves",
    "Russian": "лодка лодку, рыба рыбу, дом дома, кот кота, ключ ключи, сестра сестру, почта почтой",
    "Chinese": "自行车 自行车在, 钥匙 钥匙在",
    "Japanese": "自転車は 自転車が",
    "Hindi": "नाव नावें, बहन बहनें, लड़का लड़के, किताब किताबें",
    "Arabic": "قارب القارب, سيارة سيارتي, سيارة سيارات, بيت بيتي, دراجة والدراجة",
    "Korean": "자전거는 자전거가, 열쇠는 열쇠를, 집에 집은, 개가 개는, 자동차를 자동차가",
}
"""Nouns with a second form: their plural, another case, an article or a particle."""

OTHERS = [
    "Marta plants tomatoes.",
    "Им всё понравилось.",
    "मौसम ठंडा है।",
    "الطقس بارد.",
    "날씨가 춥다.",
    "天気が悪い。",
]


@pytest.mark.parametrize("language", OTHER_FORMS)
def test_a_noun_is_found_by_its_other_form(language: str) -> None:
    pairs = [pair.split() for pair in OTHER_FORMS[language].split(", ")]
    for told, asked in [*pairs, *(pair[::-1] for pair in pairs)]:
        assert find_best([*OTHERS, f"4711 {told} 4712"], f"{asked}?") == f"4711 {told} 4712"


def test_a_word_that_only_begins_alike_is_another_word() -> None:
    index, _ = make_index(["care", "store", "boards", "INV-47115", "ends"])
    for word in ("car", "story", "boat", "4711", "en"):
        assert not weigh_terms(index, f"{word}?")


def test_a_giant_text_has_the_same_plurals() -> None:
    index, _ = make_index([f"The cars and boats of Cardiff. {'word ' * (GIANT // 5)}"])
    assert [bool(weigh_terms(index, f"{word}?")) for word in ("boat", "cars", "card")] == [True, True, False]
