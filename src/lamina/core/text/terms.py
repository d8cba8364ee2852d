"""The terms of a text: what passages and questions are compared by, in every language.

A term is the beginning of a word, so that `invoice` finds `invoices` in every language without a table of
endings; one with a digit in it stays whole. Short words find each other with one letter more or less: `boat`
finds `boats`. Scripts without spaces between words are read in pairs of characters, and so is Korean, whose
words end in particles. A name such as `src/app.py` or `INV-4711` is a term of its own besides its words: it
is rarer than they are, and so it weighs more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from lamina.core.text.characters import ALPHANUMERIC, BEYOND_ASCII, fold_case, split_words
from lamina.core.text.known_words import KnownWords
from lamina.core.text.sentences import UNSPACED

_HAS_DIGIT_OR_JOINT = re.compile("[0-9._/:@#-]")  # `4711`, `src/app.py`

_DIGIT = re.compile("[0-9]")
_WORD = re.compile(f"[{ALPHANUMERIC}]+")
_TWO_LETTERS = re.compile(f"[{ALPHANUMERIC}]{{2}}")
_BEYOND_ASCII = re.compile(f"[{BEYOND_ASCII}]")
_JOINTS = "._/:@#-"
_JOINT = re.compile(f"[{_JOINTS}]")
_TOKEN = re.compile(f"[{ALPHANUMERIC}{_JOINTS}]+")
_TO_TOKENS = bytes(byte if _TOKEN.match(chr(byte)) else ord(" ") for byte in range(128)).ljust(256)
_STEM, _STEM_BEYOND_LATIN = 5, 4
"""Letters of a word that count. On questions about long talks five did as well as an English stemmer, and
better than whole words. In Cyrillic, Arabic and the scripts of India the last letter of a word changes most
often (`лодка`, `лодку`), so one letter less counts, and of a short word all but the last."""

_SHORTEST_STEM = 3
"""Letters of a word that may have an ending of one letter. In Latin letters a word as short as this has none
but `s`: `car` finds `cars`, but not `care`. Any letter, or two, found fewer answers in long talks."""

_LAST_LATIN = "\u024f"
_IN_PAIRS = re.compile(f"{UNSPACED.pattern}|[\uac00-\ud7a3]")
_ARABIC_ARTICLE = re.compile("[وفبكل]?ال(?=...)")  # `القارب` and `والقارب` are `قارب`


def list_terms(text: str) -> list[str]:
    """The terms of a text in their order, with those that repeat.

    `Pay the invoices of INV-4711` has `pay`, `the`, `invoi`, `of`, `inv`, `4711` and `inv-4711`.
    """
    words: list[str] = []
    names: list[str] = []
    for token in TermReader(fold_case(text)).list_tokens():
        terms = _KNOWN_TOKENS[token]
        if _JOINT.search(token.strip(_JOINTS)):
            names.append(terms[-1])
            terms = terms[:-1]
        words += terms
    return words + names


def find_terms(text: str) -> set[str]:
    """The different terms of a text."""
    return set(TermReader(fold_case(text)).list_terms())


class TermReader:
    """The terms of each part of a text in small letters."""

    def __init__(self, folded: str) -> None:
        self._folded = folded
        self._ascii_tokens = _part_tokens(folded)
        self._has_ascii_tokens = _has_ascii_tokens(folded)

    def list_tokens(self, start: int = 0, end: int | None = None) -> list[str]:
        """The tokens between two places, in their order."""
        if end is None:
            end = len(self._folded)
        if self._has_ascii_tokens or _has_ascii_tokens(self._folded[start:end]):
            return split_words(self._ascii_tokens[start:end])
        return _TOKEN.findall(self._folded, start, end)

    def list_terms(self, start: int = 0, end: int | None = None) -> list[str]:
        """The terms between two places, with those that repeat."""
        return list(chain.from_iterable(_KNOWN_TOKENS.read_all(self.list_tokens(start, end))))


def find_places(term: str, folded: str) -> Iterator[int]:
    """Where a giant text in small letters has a term."""
    has_words = not _IN_PAIRS.search(term)
    ends_word = has_words and len(term) < _count_letters(term)
    after_end = _WORD if len(term) < _SHORTEST_STEM else _TWO_LETTERS
    place = folded.find(term)
    while place >= 0:
        # At the beginning of a text -1 counts as 0, so that nothing stands before the term.
        is_inside = has_words and _WORD.match(folded, place - 1, place)
        goes_on = ends_word and after_end.match(folded, place + len(term))
        if not is_inside and not goes_on:
            yield place
        place = folded.find(term, place + 1)


def is_name(term: str) -> bool:
    """Whether a term has a digit or a joint: `4711`, `src/app.py`."""
    return _HAS_DIGIT_OR_JOINT.search(term) is not None


def _has_ascii_tokens(folded: str) -> bool:
    """Whether no token has a character beyond ASCII: arrows and dashes are in none."""
    return folded.isascii() or _BEYOND_ASCII.search(folded) is None


def _part_tokens(folded: str) -> str:
    """A text of small letters with a space for each character that is between tokens, or beyond ASCII."""
    return folded.encode("ascii", "replace").translate(_TO_TOKENS).decode("ascii")


def _read_token(token: str) -> tuple[str, ...]:
    """The terms of the words in a token, and the whole of it if it is a name of several words."""
    terms: list[str] = []
    for word in _WORD.findall(token):
        terms += _split_word(word)
    name = token.strip(_JOINTS)
    if _JOINT.search(name):
        terms.append(name)
    return tuple(terms)


_KNOWN_TOKENS = KnownWords(_read_token, longest=40)  # a token of Chinese may be a whole sentence


def rate_length(term: str) -> float:
    """What a term is worth by its length: less than 1 for a word of fewer letters than count."""
    letters = _count_letters(term)
    if len(term) >= letters or _DIGIT.search(term) or _IN_PAIRS.search(term):
        return 1.0
    return len(term) / letters


def _count_letters(word: str) -> int:
    """How many letters of a word count."""
    if word > _LAST_LATIN:
        return _STEM_BEYOND_LATIN
    return _STEM


def find_stem(term: str) -> str:
    """A term without its last letter if that may be an ending, as `boat` of `boats`; empty if not."""
    stem = term[:-1]
    if len(stem) < _SHORTEST_STEM or _HAS_DIGIT_OR_JOINT.search(term) or _IN_PAIRS.search(term):
        return ""
    if len(stem) == _SHORTEST_STEM and term <= _LAST_LATIN and not term.endswith("s"):
        return ""
    return stem


def _split_word(word: str) -> list[str]:
    """The terms of one word: its beginning, or its pairs of characters if its script has no spaces.

    A Korean word of two syllables may be one of a single syllable with its particle.
    """
    if _IN_PAIRS.search(word) is None:
        return [_cut_to_stem(word)]
    if len(word) == 1:
        return [word]
    pairs = [word[at : at + 2] for at in range(len(word) - 1)]
    if len(pairs) == 1 and UNSPACED.search(word) is None:
        pairs.append(word[0])
    return pairs


def _cut_to_stem(word: str) -> str:
    """The letters of a word that count."""
    if _DIGIT.search(word):
        return word
    if word <= _LAST_LATIN:
        return word[:_STEM]
    article = _ARABIC_ARTICLE.match(word)
    if article:
        word = word[article.end() :]
    return word[: max(min(len(word) - 1, _STEM_BEYOND_LATIN), _SHORTEST_STEM)]
