"""Which passages a question finds, and how much is read to find them."""

from __future__ import annotations

from collections.abc import Sequence

from lamina.core.passages import (
    LONGEST_SENTENCE,
    MOST_PLACES,
    PassageIndex,
    choose_passages,
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
    assert choose_passages(index, rated, refs, in_sight="", limit=300, count=count)
    assert len(counted) < 200
