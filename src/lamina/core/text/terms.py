"""The terms by which a question finds old passages: the beginnings of words, numbers, and names as a whole.

A word is cut to its first letters, so that `invoice` finds `invoices` in every language without a table of
endings; one with a digit in it stays whole. Scripts without spaces between words are read in pairs of
characters. A name such as `src/app.py` or `INV-4711` is a term of its own besides its words: it is rarer than
they are, and so it weighs more.
"""

from __future__ import annotations

import re

from lamina.core.text.characters import ALPHANUMERIC, fold_case
from lamina.core.text.phrases import UNSPACED

_ASCII_WORD = re.compile("((?=[a-z]*[0-9])[0-9a-z]+|[a-z]{1,5})[a-z]*")
_DIGIT = re.compile("[0-9]")
_WORD = re.compile(f"[{ALPHANUMERIC}]+")
_NAME = re.compile(f"(?<![{ALPHANUMERIC}])[{ALPHANUMERIC}]+(?:[._/:@#-]+[{ALPHANUMERIC}]+)+")
_STEM = 5
"""Letters of a word that count. On questions about long talks five did as well as an English stemmer, and
better than whole words."""


def list_terms(text: str) -> list[str]:
    """The terms of a text in their order, with those that repeat.

    `Pay the invoices of INV-4711` has `pay`, `the`, `invoi`, `of`, `inv`, `4711` and `inv-4711`.
    """
    folded = fold_case(text)
    if folded.isascii():
        terms: list[str] = _ASCII_WORD.findall(folded)
    else:
        terms = []
        for word in _WORD.findall(folded):
            terms += _split_word(word)
    return terms + _NAME.findall(folded)


def rate_length(term: str) -> float:
    """What a term is worth by its length: less than 1 for a word of fewer letters than count."""
    if len(term) >= _STEM or _DIGIT.search(term) or UNSPACED.search(term):
        return 1.0
    return len(term) / _STEM


def _split_word(word: str) -> list[str]:
    """The terms of one word: its beginning, or its pairs of characters if its script has no spaces."""
    if UNSPACED.search(word) is None:
        return [word if _DIGIT.search(word) else word[:_STEM]]
    if len(word) == 1:
        return [word]
    return [word[at : at + 2] for at in range(len(word) - 1)]
