"""How well texts match a prompt by the words that they share, much as BM25 has it: rare words count most.

Pure and exact on every machine: only sums, products, quotients and square roots, and sums are `fsum`, since
`sum` rounds fractions in another way before Python 3.12. It looks nothing up, and knows no index; the words
are split as the search index splits them.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Mapping, Sequence
from math import fsum, sqrt
from typing import NamedTuple

from lamina.core.text.characters import ALPHANUMERIC, fold_case
from lamina.core.values import Segment
from lamina.core.wording import text_of

READ = 100_000
"""Characters of an attachment that are looked at."""

SHOWN, LONGEST = 4, 40
"""Shared words that a reason names, and the characters of one."""

QUIET = frozenset(
    "again answer ask continue explain file files give go good great help hello hi know let like look make "
    "need next now ok okay one please question read right say see show sure tell thank thanks thing think "
    "try use want way well yes yet".split()
)
"""Words of a conversation, which say nothing about what it is about."""

_K, _B = 1.2, 0.75
_WORD = re.compile(f"[{ALPHANUMERIC}]+")
_DOUBLED = re.compile(r"([b-df-hjkmnp-rtv-z])\1\Z")


class WordMatch(NamedTuple):
    """From 0 to 1, and the words of the prompt that stand in the text; `said` is a reason of another sort."""

    score: float
    words: tuple[str, ...] = ()
    said: str = ""

    @property
    def told(self) -> str:
        if self.said:
            return self.said
        if self.words:
            return f"shares {', '.join(f'«{word}»' for word in self.words)} with the prompt"
        return f"relevance {self.score:.2f}" if self.score > 0 else "shares nothing with the prompt"


def by_words(prompt: str, segments: Sequence[Segment]) -> list[WordMatch]:
    """How well each segment matches; the best has 1, and who shares no word 0."""
    from lamina.context.search.words import STOP, folded, terms  # noqa: PLC0415 - behind it stands an index

    asked = {stem(word): word for word in reversed(terms(prompt)) if word not in QUIET | STOP}
    texts = [_counted(folded(_text(segment)), asked) for segment in segments]
    usual = sum(size for _, size in texts) / max(len(texts), 1)
    spread = Tally(word for found, _ in texts for word in found)
    weight = {word: sqrt((len(texts) + 1) / amount) for word, amount in spread.items()}
    scores = [
        fsum(weight[word] * _often(found[word], size, usual) for word in sorted(found))
        for found, size in texts
    ]
    best = max(scores, default=0.0)
    return [
        WordMatch(score / best if best else 0.0, _named(found, weight, asked))
        for score, (found, _) in zip(scores, texts, strict=True)
    ]


def stem(word: str) -> str:
    """A word without its English ending: retries, retrying and retry are one; never shorter than three."""
    if not word.isascii() or len(word) < 4:
        return word
    if word.endswith("ies") and len(word) > 4:
        word = f"{word[:-3]}y"
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return _DOUBLED.sub(r"\1", word[: -len(ending)])
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


def _text(segment: Segment) -> str:
    return "\n".join((segment.key, *segment.attrs.values(), text_of(segment.parts)[:READ]))


def _counted(text: str, asked: Mapping[str, str]) -> tuple[Tally[str], int]:
    """How often each word of the prompt stands in a text, and its size in words."""
    words = _WORD.findall(fold_case(text))
    return Tally(found for word in words if (found := stem(word)) in asked), len(words)


def _often(times: int, size: int, usual: float) -> float:
    """What repetition adds, less and less; a long text must say a word more often."""
    return times * (_K + 1) / (times + _K * (1 - _B + _B * size / max(usual, 1.0)))


def _named(found: Tally[str], weight: Mapping[str, float], asked: Mapping[str, str]) -> tuple[str, ...]:
    best = sorted(found, key=lambda word: (-weight[word], asked[word]))[:SHOWN]
    return tuple(asked[word][:LONGEST] for word in best)
