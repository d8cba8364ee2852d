"""Made-up talks in which the user says wishes in passing, in ten languages, among small talk.

`wishes.toml` has what is said. Its wishes are split by chance into two halves, and so are the sentences that
are none: one half is for development, the other only for the figure at the end.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from bench.standing_rules import RuleTalk, Wish
from lamina.core.text.standing_rules import weigh_sentence

HALVES = ("dev", "aside")
SEED = 20_261_117
TOKENS_A_TURN, SENTENCES = 50, 32
"""A talk has a turn for so many tokens of its window, and an answer has so many sentences. So a talk fills
its window about 16 times, and what the user says alone fills it more than once."""

EARLY = 0.25
"""All wishes are said in this part of the talk, its beginning."""


class SpokenLanguage(msgspec.Struct, frozen=True, kw_only=True):
    """What is said in one language: five sorts of wishes, and three sorts of sentences that are none.

    `chatter` and `answer` fill the talks. They have places for a name, a town and a number.
    """

    preference: tuple[str, ...]
    need: tuple[str, ...]
    definition: tuple[str, ...]
    correction: tuple[str, ...]
    request: tuple[str, ...]
    small_talk: tuple[str, ...]
    fact: tuple[str, ...]
    task: tuple[str, ...]
    names: tuple[str, ...]
    places: tuple[str, ...]
    chatter: tuple[str, ...]
    answer: str

    @property
    def wishes(self) -> tuple[str, ...]:
        return self.preference + self.need + self.definition + self.correction + self.request

    @property
    def others(self) -> tuple[str, ...]:
        return self.small_talk + self.fact + self.task


def read_languages() -> dict[str, SpokenLanguage]:
    """What is said in each language."""
    text = (Path(__file__).parent / "wishes.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, SpokenLanguage])


def choose_half(sentences: tuple[str, ...], half: str) -> list[str]:
    """One half of these sentences, the same each time."""
    mixed = list(sentences)
    Random(f"{SEED} {sentences[0]}").shuffle(mixed)  # noqa: S311 - the same halves each time
    return mixed[HALVES.index(half) :: len(HALVES)]


class Recognition(msgspec.Struct, frozen=True, kw_only=True):
    """How many wishes are known as such, and how many of the other sentences are taken for one."""

    language: str
    wishes: int
    known: int
    others: int
    mistaken: int


def recognise_half(half: str) -> Iterator[Recognition]:
    """How many sentences of one half are known as wishes or rules, by language."""
    for name, language in read_languages().items():
        wishes = choose_half(language.wishes, half)
        others = choose_half(language.others, half)
        yield Recognition(
            language=name,
            wishes=len(wishes),
            known=sum(weigh_sentence(sentence) != "" for sentence in wishes),
            others=len(others),
            mistaken=sum(weigh_sentence(sentence) != "" for sentence in others),
        )


def wish_talks(half: str, *, windows: tuple[int, ...]) -> Iterator[RuleTalk]:
    """A talk in each language for each window, with all wishes of one half."""
    for window in windows:
        for name, language in read_languages().items():
            yield make_wish_talk(name, language, half, window=window)


def make_wish_talk(name: str, language: SpokenLanguage, half: str, *, window: int) -> RuleTalk:
    """A talk whose wishes are said early, alone or among other sentences, and then not again."""
    dice = Random(SEED)  # noqa: S311 - the same talks each time
    wishes = choose_half(language.wishes, half)
    turns = window // TOKENS_A_TURN
    said = dict(zip(dice.sample(range(1, int(EARLY * turns)), len(wishes)), wishes, strict=True))
    messages: list[dict[str, Any]] = [{"role": "user", "content": _chat(language, dice)}]
    for turn in range(1, turns):
        messages.append({"role": "assistant", "content": _fill(language.answer, language, dice) * SENTENCES})
        words = _chat(language, dice)
        if turn in said:
            before = dice.choice(("", _chat(language, dice)))
            after = dice.choice(("", _chat(language, dice)))
            words = " ".join(filter(None, (before, said[turn], after)))
        messages.append({"role": "user", "content": words})
    sought = [Wish(sort="wishes", text=wish) for wish in wishes]
    return RuleTalk(name=name, window=window, messages=messages, wishes=sought)


def _chat(language: SpokenLanguage, dice: Random) -> str:
    sentences = dice.sample(language.chatter, dice.randint(2, 5))
    return " ".join(_fill(sentence, language, dice) for sentence in sentences)


def _fill(sentence: str, language: SpokenLanguage, dice: Random) -> str:
    name = dice.choice(language.names)
    place = dice.choice(language.places)
    return sentence.format(name=name, place=place, n=dice.randint(2, 400))
