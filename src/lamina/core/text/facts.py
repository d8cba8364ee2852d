"""What a sentence is worth to somebody who cannot ask for it, and the facts in what tools returned.

A sentence is measured by its names, its numbers and its rare words: by the shape of words alone, for any
language, whoever said it.

The path of a file lets a model read it again. But of thirty files that were read it cannot know which one
says what a variable is. Only sentences are taken: in code and in tables nearly every line has names and
numbers, and a list of names says more of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from lamina.core.text.characters import WHITE_SPACE, fold_case, with_newlines
from lamina.core.text.excerpts import to_one_line
from lamina.core.text.sentences import split_sentences

_SEARCHED = 8_000  # characters of one result
_LONGEST = 160  # characters of a sentence
_FEWEST_WORDS = 4
_SENTENCE_ENDS = (".", "!", "\u3002", "\uff01", "\u0964", "\u06d4")  # of Chinese, Hindi and Urdu too
_STOP = re.compile("[.!\u0964\u06d4](?![A-Za-z0-9_./])|[\u3002\uff01]")  # no dot of `a.py`, `3.5` or `../b`
_CLOSING = f"{WHITE_SPACE}\"'”’)]"  # may stand between a stop and the next sentence
_PLAIN_PART = 2  # at least one in so many words of a sentence is a plain one

_NUMBER_WORDS = frozenset(
    "two three four five six seven eight nine ten eleven twelve thirteen fifteen twenty thirty forty fifty "
    "sixty seventy eighty ninety hundred thousand million billion half dozen".split()
)
_TOKEN = re.compile(f'[^{WHITE_SPACE},;:!?()\\[\\]{{}}"“”«»<>…]+')
_CAPITAL = re.compile("[A-Z\u00c0-\u00d6\u00d8-\u00de\u0391-\u03a9\u0410-\u042f\u0401]")
_PLAIN_WORD = re.compile("[A-Za-z]+")
DIGIT = re.compile("[0-9\u0660-\u0669\u06f0-\u06f9\u0966-\u096f\u09e6-\u09ef]")
_CODE = re.compile(r"[a-z0-9][A-Z]|[A-Za-z0-9]_|[./@#\\][A-Za-z0-9]|::|\(\)")
_QUOTED = re.compile("[“\u2018«\"'`]([^“”\u2018’«»\"'`\n]{2,60})[”’»\"'`]")
_ENDS = ".'’-–—*"

_NAME_VALUE, _NUMBER_VALUE, _RARE_VALUE, _SEEN_PART = 4, 5, 1, 4
"""What a name, a number and a rare word of a sentence are worth, and one part in so many if it was seen
before."""

_RARE = 2  # messages that a rare word stands in, at most
_RARE_LENGTH = 6  # letters of a word that may be worth something because it is rare
_IDEOGRAPH = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")


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


class SentenceWords:
    """The words of the sentences of one text, made ready to be compared with those of other texts.

    A text stands in many digests before one of them has the right size, and its words stay what they are.
    """

    def __init__(self, words_of_sentences: Sequence[Sequence[FactWord]]) -> None:
        self.different = [tuple(dict.fromkeys(words)) for words in words_of_sentences]
        self.texts = [frozenset(word.text for word in words) for words in self.different]
        self.all_texts = frozenset().union(*self.texts)


def value_sentences(texts: Sequence[SentenceWords]) -> list[list[int]]:
    """What each sentence of each text is worth: names, numbers and rare words, each where it first stands."""
    frequency: Counter[str] = Counter()
    for text in texts:
        frequency.update(text.all_texts)
    seen: set[str] = set()
    values: list[list[int]] = []
    for text in texts:
        text_values: list[int] = []
        for words, word_texts in zip(text.different, text.texts, strict=True):
            value = 0
            for word, worth, is_long in words:
                if not worth and is_long and frequency[word] <= _RARE:
                    worth = _RARE_VALUE  # noqa: PLW2901
                if word in seen:
                    worth //= _SEEN_PART  # noqa: PLW2901
                value += worth
            seen |= word_texts
            text_values.append(value)
        values.append(text_values)
    return values


class FactWord(NamedTuple):
    """A word, and what it is worth by its shape alone. A long one is worth something if it is rare."""

    text: str
    worth: int
    is_long: bool


def list_words(sentence: str) -> list[FactWord]:
    """The words of a sentence. In Chinese and Japanese these are runs of four letters."""
    words: list[FactWord] = []
    for at, token in enumerate(_TOKEN.findall(sentence)):
        word = token.strip(_ENDS)
        if not word:
            continue
        if not word.isascii() and _IDEOGRAPH.search(word):
            words += [FactWord(word[place : place + 4], 0, is_long=True) for place in range(0, len(word), 4)]
        elif len(word) <= _LONGEST_KNOWN:
            words.append(_rate_known_word(word, begins=at == 0))
        else:
            words.append(_rate_word(word, begins=at == 0))
    for match in _QUOTED.finditer(sentence):
        words.append(FactWord(fold_case(match[1]), _NAME_VALUE, is_long=False))
    return words


def _rate_word(word: str, *, begins: bool) -> FactWord:
    """A word with its worth. `begins`: it is the first of its sentence, so a capital says nothing."""
    folded_word = fold_case(word)
    is_plain = word == folded_word and _PLAIN_WORD.fullmatch(word) is not None
    worth = 0
    if folded_word in _NUMBER_WORDS or (not is_plain and DIGIT.search(word)):
        worth = _NUMBER_VALUE
    elif not is_plain and _is_name(word, begins=begins):
        worth = _NAME_VALUE
    return FactWord(folded_word, worth, is_long=len(word) >= _RARE_LENGTH)


_LONGEST_KNOWN = 40  # characters of a word that is worth remembering
_rate_known_word = lru_cache(maxsize=10_000)(_rate_word)
"""A talk has few different words, and rating each of them anew was most of what reading facts took."""


def _is_name(word: str, *, begins: bool) -> bool:
    """Whether a word is a name: it looks like code, or has a capital in the middle of a sentence."""
    if _CODE.search(word):
        return True
    if begins or word == "I" or word.startswith(("I'", "I’")):
        return False
    return _CAPITAL.match(word) is not None
