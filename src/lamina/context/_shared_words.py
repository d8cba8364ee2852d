"""Scores how well texts match a prompt by the words that they share, much as BM25: rare words count most.

The result is the same on every machine: only sums, products, quotients and square roots are used, and sums
are `fsum`, since `sum` rounds fractions in another way before Python 3.12. It uses no index; words are split
as the search index splits them.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Callable, Mapping, Sequence
from math import fsum, sqrt
from typing import NamedTuple

from lamina.core.text.characters import ALPHANUMERIC, fold_case
from lamina.core.values import Segment
from lamina.core.wording import text_of

READ = 100_000
"""Characters of an attachment that are looked at."""

MOST_WORDS = 4
"""Shared words that a reason names."""

LONGEST_WORD = 40
"""Characters of one of them."""

QUIET = frozenset(
    "again answer ask continue explain file files give go good great help hello hi know let like look make "
    "need next now ok okay one please question read right say see show sure tell thank thanks thing think "
    "try use want way well yes yet".split()
)
"""Words of any conversation, which say nothing about its subject."""

_K = 1.2
_B = 0.75
"""The usual constants of BM25."""

_WORD = re.compile(f"[{ALPHANUMERIC}]+")
_DOUBLED = re.compile(r"([b-df-hjkmnp-rtv-z])\1\Z")
"""A doubled consonant at the end, as `tt` in `fitt`, from `fitting` without its ending; not `ll`, `ss`."""


class WordMatch(NamedTuple):
    """How well a text matches, from 0 to 1, and the words of the prompt that are in it.

    `reason` replaces the words if the match has another reason.
    """

    score: float
    words: tuple[str, ...] = ()
    reason: str = ""

    def describe(self) -> str:
        """Why the text matches. This goes into the ledger.

        It names the words, so that a reader can tell a good reason from an accident.
        """
        if self.reason:
            return self.reason
        if self.words:
            quoted_words = ", ".join(f"«{word}»" for word in self.words)
            return f"shares {quoted_words} with the prompt"
        if self.score > 0:
            return f"relevance {self.score:.2f}"
        return "shares nothing with the prompt"


class WordCounts(NamedTuple):
    """How often each stem of the prompt is in a text, and the size of the text in words."""

    times: Tally[str]
    size: int


def score_by_words(prompt: str, segments: Sequence[Segment]) -> list[WordMatch]:
    """How well each segment matches. The best has 1, and a segment that shares no word has 0."""
    from lamina.context.search.words import STOP, find_terms, fold_text  # noqa: PLC0415 - this loads the index

    prompt_words: dict[str, str] = {}
    for word in reversed(find_terms(prompt)):  # so that the first word of a stem is the one that is named
        if word not in QUIET and word not in STOP:
            prompt_words[stem(word)] = word
    counts = [_count_words(segment, prompt_words, fold_text) for segment in segments]
    mean_size = sum(count.size for count in counts) / max(len(counts), 1)
    weights = _weigh_stems(counts)
    scores = []
    for count in counts:
        # BM25: repetition adds less and less, and a long text must repeat a word more often
        length_share = count.size / max(mean_size, 1.0)
        shares = []
        for word, times in sorted(count.times.items()):
            saturated = times * (_K + 1) / (times + _K * (1 - _B + _B * length_share))
            shares.append(weights[word] * saturated)
        scores.append(fsum(shares))
    best = max(scores, default=0.0) or 1.0
    matches = []
    for score, count in zip(scores, counts, strict=True):
        heaviest = sorted(count.times, key=lambda word: (-weights[word], prompt_words[word]))
        words = tuple(prompt_words[word][:LONGEST_WORD] for word in heaviest[:MOST_WORDS])
        matches.append(WordMatch(score / best, words))
    return matches


def stem(word: str) -> str:
    """A word without its English ending, at least three characters: retries, retrying and retry are one.

    Two letters that were doubled before an ending become one again: `running` is `run`.
    """
    if not word.isascii() or len(word) < 4:
        return word
    word = _drop_plural(word)
    for ending in ("ing", "ed"):
        beginning = word.removesuffix(ending)
        if beginning != word and len(beginning) >= 3:
            return _DOUBLED.sub(r"\1", beginning)
    if word.endswith("e") and len(word) > 3:
        return word[:-1]
    return word


def _drop_plural(word: str) -> str:
    """`retries` becomes `retry`, `files` becomes `file`; `class`, `status` and `analysis` stay."""
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith(("ss", "us", "is")):
        return word
    return word.removesuffix("s")


def _count_words(segment: Segment, prompt_words: Mapping[str, str], fold: Callable[[str], str]) -> WordCounts:
    """The words of a prompt in the text, the key and the attributes of a segment."""
    text = "\n".join((segment.key, *segment.attrs.values(), text_of(segment.parts)[:READ]))
    words = _WORD.findall(fold_case(fold(text)))
    times: Tally[str] = Tally()
    for word in words:
        word_stem = stem(word)
        if word_stem in prompt_words:
            times[word_stem] += 1
    return WordCounts(times, len(words))


def _weigh_stems(counts: Sequence[WordCounts]) -> dict[str, float]:
    """The weight of each stem: the fewer texts have it, the more it weighs."""
    texts_with_stem: Tally[str] = Tally()
    for count in counts:
        texts_with_stem.update(count.times.keys())
    return {word: sqrt((len(counts) + 1) / amount) for word, amount in texts_with_stem.items()}
