"""What a sentence is worth to somebody who cannot ask for it: its names, its numbers and its rare words.

It is a measure by the shape of words alone, for any language. It knows nothing of who said a sentence.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from lamina.core.text.characters import WHITE_SPACE, fold_case

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
