"""How much a sentence tells: its names and numbers, by the shape of words alone, whoever said it.

The path of a file lets a model read it again. But of thirty files that were read it cannot know which one
says what a variable is, so a digest quotes the sentences of results that are dense. In code and in tables
nearly every word is a name, and a line of them is no sentence.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain

from lamina.core.text.characters import WHITE_SPACE, fold_case
from lamina.core.text.excerpts import to_one_line
from lamina.core.text.sentences import split_sentences

_SEARCHED = 8_000  # characters of one result
_LONGEST = 160  # characters of a sentence
_FEWEST_WORDS = 4
_SENTENCE_ENDS = (".", "!", "\u3002", "\uff01", "\u0964", "\u06d4")  # of Chinese, Hindi and Urdu too
_PLAIN_PART = 2  # at least one in so many words of a sentence is a plain one

_NUMBER_WORDS = frozenset(
    "two three four five six seven eight nine ten eleven twelve thirteen fifteen twenty thirty forty fifty "
    "sixty seventy eighty ninety hundred thousand million billion half dozen".split()
)
_TOKEN = re.compile(f'[^{WHITE_SPACE},;:!?()\\[\\]{{}}"“”«»<>…]+')
_CAPITAL = re.compile("[A-Z\u00c0-\u00d6\u00d8-\u00de\u0391-\u03a9\u0410-\u042f\u0401]")
_PLAIN_WORD = re.compile("[a-z]+")
DIGIT = re.compile("[0-9\u0660-\u0669\u06f0-\u06f9\u0966-\u096f\u09e6-\u09ef]")
_CODE = re.compile(r"[a-z0-9][A-Z]|[A-Za-z0-9]_|[./@#\\][A-Za-z0-9]|::|\(\)")
_QUOTED = re.compile("[“\u2018«\"'`][^“”\u2018’«»\"'`\n]{2,60}[”’»\"'`]")
_ENDS = ".'’-–—*"

_NAME_VALUE, _NUMBER_VALUE, _RARE_VALUE = 4, 5, 1
"""What a name, a number and a rare word of a sentence are worth."""

_OFTEN = 4
"""A name or a number in so many of the texts is worth one part in so many."""

_RARE, _RARE_LENGTH = 2, 6
"""Texts that have a rare word, at most, and its letters, at least."""

_AROUND = 12
"""Characters that a text takes besides its own."""


def rate_densities(texts: Sequence[str]) -> list[int]:
    """What each of these texts tells for its length: its names, numbers and rare words.

    A name that all of them have, as that of somebody who is addressed, says nothing about one of them.
    """
    words_of_texts = [_rate_words(text) for text in texts]
    counts = Counter(chain.from_iterable(words_of_texts))
    densities: list[int] = []
    for text, words in zip(texts, words_of_texts, strict=True):
        worth = sum(_rate_beside(word, value, counts[word]) for word, value in words.items())
        densities.append(1_000 * worth // (len(text) + _AROUND))
    return densities


def _rate_beside(word: str, value: int, count: int) -> int:
    """What a word is worth that is in so many texts."""
    if value:
        return 2 * value // min(count, _OFTEN)
    return 2 * _RARE_VALUE if count <= _RARE and len(word) >= _RARE_LENGTH else 0


def find_facts(text: str) -> Iterator[str]:
    """The sentences of a result that have a name or a number, and plain words around it."""
    for sentence in split_sentences(text[:_SEARCHED]):
        if len(sentence.text) > _LONGEST or not sentence.text.endswith(_SENTENCE_ENDS):
            continue
        words = _rate_words(sentence.text)
        plain_words = sum(not value for value in words.values())
        has_fact = plain_words < len(words)
        if has_fact and len(words) >= _FEWEST_WORDS and plain_words * _PLAIN_PART >= len(words):
            yield to_one_line(sentence.text, _LONGEST + 4)


def _rate_words(text: str) -> dict[str, int]:
    """The different words of a text, with what their shape makes them worth; quotations are words, too."""
    words: dict[str, int] = {}
    for at, token in enumerate(_TOKEN.findall(text)):
        word = token.strip(_ENDS)
        if word:
            words[word] = _rate_word(word, begins=at == 0)
    return words | dict.fromkeys(_QUOTED.findall(text), _NAME_VALUE)


@lru_cache(maxsize=10_000)
def _rate_word(word: str, *, begins: bool) -> int:
    """What a word is worth. `begins`: it is the first of its sentence, so a capital says nothing."""
    if _PLAIN_WORD.fullmatch(word):
        return _NUMBER_VALUE if word in _NUMBER_WORDS else 0
    if DIGIT.search(word) or fold_case(word) in _NUMBER_WORDS:
        return _NUMBER_VALUE
    return _NAME_VALUE if _is_name(word, begins=begins) else 0


def _is_name(word: str, *, begins: bool) -> bool:
    """Whether a word is a name: it looks like code, or has a capital in the middle of a sentence."""
    if _CODE.search(word):
        return True
    if begins or word == "I" or word.startswith(("I'", "I’")):
        return False
    return _CAPITAL.match(word) is not None
