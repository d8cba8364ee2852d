"""Facts that stood in what tools returned: sentences with a name or a number in them, the densest first.

The path of a file lets a model read it again. But of thirty files that were read it cannot know which one
says what a variable is. Only sentences are taken: in code and in tables nearly every line has names and
numbers, and a list of names says more of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from lamina.core.text.characters import WHITE_SPACE, with_newlines
from lamina.core.text.excerpts import to_one_line
from lamina.core.text.fact_values import FactWord, SentenceWords, list_words, value_sentences
from lamina.core.text.sentences import split_sentences

_SEARCHED = 8_000  # characters of one result
_LONGEST = 160  # characters of a sentence
_FEWEST_WORDS = 4
_SENTENCE_ENDS = (".", "!", "\u3002", "\uff01", "\u0964", "\u06d4")  # of Chinese, Hindi and Urdu too
_STOP = re.compile("[.!\u0964\u06d4](?![A-Za-z0-9_./])|[\u3002\uff01]")  # no dot of `a.py`, `3.5` or `../b`
_CLOSING = f"{WHITE_SPACE}\"'”’)]"  # may stand between a stop and the next sentence
_PLAIN_PART = 2  # at least one in so many words of a sentence is a plain one


class ReadFacts:
    """The sentences of one result that may be facts, with their words: read once for all digests of a cut."""

    def __init__(self, text: str) -> None:
        self.sentences: list[str] = []
        words_of_sentences: list[list[FactWord]] = []
        sentences = chain.from_iterable(map(split_sentences, _find_lines_with_stops(text[:_SEARCHED])))
        for sentence in sentences:
            words = _read_fact(sentence.text)
            if words:
                self.sentences.append(to_one_line(sentence.text, _LONGEST + 4))
                words_of_sentences.append(words)
        self.words = SentenceWords(words_of_sentences)


def _read_fact(sentence: str) -> list[FactWord]:
    """The words of a sentence that may be a fact: it has a name or a number, and plain words around it.

    There are none for any other sentence. In code nearly every word is a name, so a line of it is none.
    """
    if len(sentence) > _LONGEST or not sentence.endswith(_SENTENCE_ENDS):
        return []
    words = list_words(sentence)
    if len(words) < _FEWEST_WORDS:
        return []
    plain_words = sum(not word.worth for word in words)
    has_fact = plain_words < len(words)
    if not has_fact or plain_words * _PLAIN_PART < len(words):
        return []
    return words


def _find_lines_with_stops(text: str) -> Iterator[str]:
    """The lines in which a sentence may end. A result is most often code, and hardly a line of it is one.

    Such lines in a row stay together: what closes a sentence, as a quotation mark, may stand in the next one.
    """
    text = with_newlines(text)
    block_start = 0
    block_end = -1
    for stop in _STOP.finditer(text):
        if stop.start() < block_end:
            continue
        line_start = text.rfind("\n", 0, stop.start()) + 1
        follows = block_end >= 0 and not text[block_end:line_start].strip(_CLOSING)
        if not follows:
            if block_end >= 0:
                yield text[block_start:block_end]
            block_start = line_start
        block_end = text.find("\n", stop.start())
        if block_end < 0:
            block_end = len(text)
    if block_end >= 0:
        yield text[block_start:block_end]


class RatedFacts:
    """The facts of several results, the densest first. They are rated once for all sizes of a digest."""

    def __init__(self, results: Sequence[ReadFacts]) -> None:
        values = value_sentences([result.words for result in results])
        rated: list[tuple[int, int, str]] = []
        for result, result_values in zip(results, values, strict=True):
            for sentence, value in zip(result.sentences, result_values, strict=True):
                rated.append((value * 1_000 // (len(sentence) + 1), len(rated), sentence))
        rated.sort(key=lambda each: (-each[0], -each[1]))
        self._places = [(place, sentence) for density, place, sentence in rated if density]

    def choose(self, limit: int) -> str:
        """The densest facts in at most `limit` characters, in the order of the results, on one line."""
        chosen: list[tuple[int, str]] = []
        room = limit
        for place, sentence in self._places:
            cost = len(sentence) + 1
            if cost <= room:
                room -= cost
                chosen.append((place, sentence))
        return " ".join(sentence for _, sentence in sorted(chosen))
