"""The sentences of a text and the clauses of a long one, and tables of phrases to look for in them.

Both know scripts with and without spaces between words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple

from lamina.core.text.characters import (
    ALPHANUMERIC,
    WHITE_SPACE,
    fold_case,
    is_blank,
    split_words,
    with_newlines,
)

Weight = Literal["rule", "wish", ""]
"""What a sentence is to somebody who goes on. `standing_rules` weighs it."""

SHORTEST_CLAUSE = 60
"""Characters of a clause that may stay without the rest of its sentence."""

# Every match begins with one of a few characters, so that the search passes quickly over the rest: results of
# tools are split too, and most of them are code. The group is what parts two sentences: `. ` has it after its
# stop, and a break of lines is one as a whole.
_SENTENCE = re.compile(
    f"[.!?؟।۔。！？\n](?:(?<=[.!?؟।۔])([{WHITE_SPACE}\"'”’)\\]]+)|(?<=[。！？])([\"'”’」』）]*)|(?<=\n)\n*)"
)
COMMA = re.compile(f"[,;:،؛，；、—–]+[{WHITE_SPACE}]*|(?<![{WHITE_SPACE}])[{WHITE_SPACE}]+-[{WHITE_SPACE}]+")

UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")
"""Scripts that put no spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""

_WORD_START = re.compile(f"[^{WHITE_SPACE}.,;:!?'\"()\\[\\]{{}}/،؛؟।۔-]+")
"""A word up to its first apostrophe or hyphen: all that is needed to know which phrases may begin there."""


_ALPHANUMERICS = re.compile(f"[{ALPHANUMERIC}]+")
_TO_ALPHANUMERICS = bytes(byte if _ALPHANUMERICS.match(chr(byte)) else ord(" ") for byte in range(128)).ljust(
    256
)

_HEAD, _TAIL = 3, 2
"""Letters by which a stem and an ending are looked up: none in a table is shorter."""


class Statement(NamedTuple):
    """One sentence of a message: where it stands, and whether it is a rule, a wish, or neither."""

    start: int
    end: int
    text: str
    weight: Weight


def split_sentences(text: str) -> Iterator[Statement]:
    """The sentences of a text, none of them weighed."""
    text = with_newlines(text)
    for start, end in find_sentences(text):
        yield Statement(start, end, text[start:end].strip(WHITE_SPACE), "")


def find_sentences(text: str) -> Iterator[tuple[int, int]]:
    """Where the sentences of a text begin and end. Its line ends are newlines."""
    start = 0
    for match in _SENTENCE.finditer(text):
        end, next_start = match.span(match.lastindex or 0)
        if not is_blank(text[start:end]):
            yield start, end
        start = next_start
    if not is_blank(text[start:]):
        yield start, len(text)


def split_clauses(statement: Statement) -> Iterator[Statement]:
    """The clauses of a long sentence without weight; any other statement as it is.

    People tell the fact at the end: `it should fit, though I had to move the oven, since my counter is only
    24 inches deep`. If such a sentence were shortened as a whole, its end would be lost.
    """
    if statement.weight or len(statement.text) < 2 * SHORTEST_CLAUSE:
        yield statement
        return
    text = statement.text
    start = 0
    for match in COMMA.finditer(text):
        is_long_enough = match.start() - start >= SHORTEST_CLAUSE
        if is_long_enough and len(text) - match.end() >= SHORTEST_CLAUSE:
            yield _cut_out(statement, start, match.end())
            start = match.end()
    yield _cut_out(statement, start, len(text))


def _cut_out(statement: Statement, start: int, end: int) -> Statement:
    """A part of a statement, as a statement of its own. The comma at its end belongs to it."""
    first = statement.start + start
    text = statement.text[start:end].strip(WHITE_SPACE)
    return Statement(first, first + end - start, text, statement.weight)


class _Beginnings(NamedTuple):
    """The words of a text, its pairs of neighbouring words, and the first and last letters of each word."""

    words: frozenset[str]
    pairs: frozenset[tuple[str, str]]
    heads: frozenset[str]
    tails: frozenset[str]


@lru_cache(maxsize=1)
def _read_beginnings(text: str) -> _Beginnings:
    """What tables of phrases are compared with. One sentence is compared with many, one after the other."""
    words = _WORD_START.findall(text)
    return _Beginnings(
        words=frozenset(words),
        pairs=frozenset(pairwise(words)),
        heads=frozenset([word[:_HEAD] for word in words]),
        tails=frozenset([word[-_TAIL:] for word in words]),
    )


def read_different_words(text: str) -> frozenset[str]:
    """The different words of a long text, with a `*` after their first and before their last letters.

    A word ends where a phrase may end: `time_zone` has two.
    """
    if text.isascii():
        words = set(split_words(text.encode("ascii").translate(_TO_ALPHANUMERICS).decode("ascii")))
    else:
        words = set(_ALPHANUMERICS.findall(text))
    heads = {f"{word[:_HEAD]}*" for word in words}
    tails = {f"*{word[-_TAIL:]}" for word in words}
    return frozenset(words | heads | tails)


class Phrases:
    """A table of phrases to look for in a text of small letters.

    A phrase of a script with spaces between words stands alone: `must` is not in `mustard`. A `*` at one of
    its ends stands for the rest of a word: `allerg*` is in `allergies`. Chinese and Japanese have no spaces,
    so a phrase of theirs may stand anywhere. Most sentences have none of them, and words tell that sooner
    than a pattern.
    """

    def __init__(self, table: str) -> None:
        spaced: list[str] = []
        unspaced: list[str] = []
        for entry in table.split(" | "):
            phrase = fold_case(entry.strip(WHITE_SPACE))
            if UNSPACED.search(phrase):
                unspaced.append(phrase)
            else:
                spaced.append(phrase)
        self.literals = [(phrase.strip("*"), _find_needed(phrase)) for phrase in spaced]
        endings = [phrase[1:] for phrase in spaced if phrase.startswith("*")]
        stems = [phrase[:-1] for phrase in spaced if phrase.endswith("*")]
        alone = [phrase for phrase in spaced if "*" not in phrase]
        beginnings = [_WORD_START.findall(phrase)[:2] for phrase in alone]
        first_words = [(_WORD_START.findall(stem)[0], stem) for stem in stems]
        first_of_stems = [word for word, stem in first_words if word != stem]
        self.single_words = frozenset([words[0] for words in beginnings if len(words) == 1] + first_of_stems)
        self.pairs = frozenset((words[0], words[1]) for words in beginnings if len(words) > 1)
        self.heads = frozenset(stem[:_HEAD] for word, stem in first_words if word == stem)
        self.tails = frozenset(ending[-_TAIL:] for ending in endings)
        ended = f"(?:{_match_any(alone)}|[{ALPHANUMERIC}]+?(?:{_match_any(endings) or '(?!)'}))"
        begun = _match_any(stems) or "(?!)"
        self._spaced = f"(?<![{ALPHANUMERIC}])(?:{ended}(?![{ALPHANUMERIC}])|{begun})"
        self._unspaced = _match_any(unspaced) or "(?!)"

    @cached_property
    def spaced(self) -> re.Pattern[str]:
        """The pattern of phrases with spaces between words. To compile it takes longest in a new process."""
        return re.compile(self._spaced)

    @cached_property
    def unspaced(self) -> re.Pattern[str]:
        """The pattern of phrases without spaces."""
        return re.compile(self._unspaced)

    def find(self, text: str) -> int | None:
        """Where the first phrase stands; None if there is none."""
        return next(self.find_all(text), None)

    def find_all(self, text: str) -> Iterator[int]:
        """Where phrases stand, those of scripts with spaces first."""
        if self._may_have(_read_beginnings(text)):
            for match in self.spaced.finditer(text):
                yield match.start()
        if not text.isascii() and UNSPACED.search(text):
            for match in self.unspaced.finditer(text):
                yield match.start()

    def find_places(self, text: str, words: frozenset[str]) -> Iterator[int]:
        """Where letters of phrases stand, be it within a word: far quicker to find in a long text.

        Every phrase that `find_all` finds has letters at one of these places. `words` are the different words
        of the text, which several tables are compared with.
        """
        for literal, needed in self.literals:
            if not words.issuperset(needed):
                continue
            place = text.find(literal)
            while place >= 0:
                yield place
                place = text.find(literal, place + 1)
        if not text.isascii():
            for match in self.unspaced.finditer(text):
                yield match.start()

    def read(self, text: str, place: int) -> str:
        """The phrase of a script with spaces that stands at this place; "" if there is none."""
        match = self.spaced.match(text, place)
        return match[0] if match else ""

    def _may_have(self, beginnings: _Beginnings) -> bool:
        """Whether the words with which a phrase begins are there: far quicker to say than where it stands."""
        return not (
            self.single_words.isdisjoint(beginnings.words)
            and self.pairs.isdisjoint(beginnings.pairs)
            and self.heads.isdisjoint(beginnings.heads)
            and self.tails.isdisjoint(beginnings.tails)
        )

    def remove(self, text: str) -> str:
        """The text without the phrases."""
        return self.unspaced.sub(" ", self.spaced.sub(" ", text))


def _find_needed(phrase: str) -> list[str]:
    """The words of a phrase, the first letters of `allerg*` as `all*`, and the last of `*ieron` as `*on`.

    A stem or an ending of fewer letters is left out: nothing is known of the word that it is a part of.
    """
    words = _ALPHANUMERICS.findall(phrase)
    if phrase.endswith("*"):
        words[-1:] = [f"{word[:_HEAD]}*" for word in words[-1:] if len(word) >= _HEAD]
    if phrase.startswith("*"):
        words[:1] = [f"*{word[-_TAIL:]}" for word in words[:1] if len(word) >= _TAIL]
    return words


def _match_any(phrases: Iterable[str]) -> str:
    """A pattern for any of these phrases. The longest is tried first: `nie` begins `nie wieder`."""
    return "|".join(map(re.escape, sorted(phrases, key=len, reverse=True)))
