"""What a cache does, as data: the rules of one provider or server, and what one request took under them.

`CacheRules` are read from a dated TOML file, or made by hand. They name an algorithm and carry its numbers;
the algorithms are in the files beside this one. They know no request, and no price of a model.
"""

from __future__ import annotations

from typing import Literal, TypeVar

import msgspec

from lamina.caches.stream import SETTINGS
from lamina.errors import BadInput
from lamina.models.facts import is_named, known, plain_name

MatchRule = Literal["breakpoints", "tail", "prefix", "named", "units", "pages", "slots"]
"""How a cache finds what it knows.

breakpoints: entries where markers stand, found by walking back from a marker; tail: entries where markers
and the last turn end, found at any boundary of the request; prefix: longest common prefix; named: caches
that were created by name; units: whole units at the ends of turns and of detected common prefixes; pages:
a chain of hashes over pages of tokens; slots: the last sequence of each of a few slots.
"""

Level = Literal["all", "system", "messages", "none"]
"""Where a changed setting enters the prefix: what is before that level stays readable."""


class CacheRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cache of one provider or server, as written down from its `sources` on the day `as_of`.

    What it is for: `models` are beginnings of model names, `dialects` names of dialects. `note` has what is
    not published, `conflicts` where two documents disagree and which of them is followed, each with its date.
    `advice` has the words for a cause of `lamina.diagnose`, where this API has something of its own to offer.

    How long: `lifetimes` are seconds by the word that a marker or a request uses for them, `lifetime` the
    word that holds without one, `lives` the words that a model takes where models differ, its own choice
    first. `refresh`: a read begins the lifetime anew. `promised` is false where the provider calls its cache
    best effort: what is simulated is then the best case.

    How much: `markers` is the most a request may carry, `look_back` the positions (or, for "tail", the
    boundaries) searched, `runs` that a run of calls or of results is one position. `minimum` is the smallest
    prefix in tokens that is cached, `granularity` the tokens that a hit is rounded down to, `granularities`
    the models that have another one. `read`, `write` and `write_long` multiply the input price where the
    model's own prices are not known; `storage` is USD for a million tokens and an hour. `from_models`: the
    minimum and the price of a read are facts of the model (`lamina.models.facts`); what stands here is for
    models that it does not know. `minimums` and `reads` say where this cache differs from them, by beginnings
    of model names.

    What it depends on: `levels` has the level of each setting that matters; `strips_thinking` names models
    that drop earlier thinking when the user speaks, a name that ends with `*` all that begin so. `isolation`
    is whose requests share a cache, `key` the request field that routes to one. `slots` and `memory` are for
    servers: how many sequences are kept, and how many tokens beside them (0: without limit).
    """

    name: str
    title: str
    as_of: str
    sources: tuple[str, ...]
    match: MatchRule
    note: str = ""
    conflicts: tuple[str, ...] = ()
    advice: dict[str, str] = {}
    models: tuple[str, ...] = ()
    dialects: tuple[str, ...] = ()
    promised: bool = True
    lifetimes: dict[str, float] = {}
    lifetime: str = ""
    lives: dict[str, tuple[str, ...]] = {}
    refresh: bool = True
    markers: int = 0
    look_back: int = 0
    runs: bool = False
    automatic: bool = False
    from_models: bool = False
    minimum: int = 0
    minimums: dict[str, int] = {}
    granularity: int = 1
    granularities: dict[str, int] = {}
    read: float = 1.0
    write: float = 1.0
    write_long: float = 1.0
    reads: dict[str, float] = {}
    storage: float = 0.0
    levels: dict[str, Level] = {}
    strips_thinking: tuple[str, ...] = ()
    isolation: str = ""
    key: str = ""
    slots: int = 1
    memory: int = 0

    def __post_init__(self) -> None:
        unknown = sorted(set(self.levels) - set(SETTINGS))
        numbers = (self.markers, self.look_back, self.minimum, self.memory, *self.minimums.values())
        steps = (self.granularity, *self.granularities.values())
        words = {word for taken in self.lives.values() for word in taken}
        checks = (
            (not unknown, f"levels has {', '.join(unknown)}", f"settings are {', '.join(SETTINGS)}"),
            (
                not self.lifetimes or self.lifetime in self.lifetimes,
                f"lifetime is {self.lifetime!r}",
                f"give one of lifetimes: {', '.join(self.lifetimes)}",
            ),
            (
                all(seconds > 0 for seconds in self.lifetimes.values()),
                f"lifetimes are {self.lifetimes!r}",
                "give seconds above 0",
            ),
            (
                words <= set(self.lifetimes) and all(self.lives.values()),
                f"lives has {sorted(words)}",
                f"give words of lifetimes, at least one for each model: {', '.join(self.lifetimes)}",
            ),
            (min(numbers) >= 0, "a number is negative", "limits are 0 or more"),
            (
                min(steps) > 0 and self.slots > 0,
                f"granularity {min(steps)}, slots {self.slots}",
                "both are 1 or more",
            ),
        )
        for holds, problem, hint in checks:
            if not holds:
                raise BadInput(problem, place=f"rules {self.name!r}", hint=hint)

    def least(self, model: str) -> int:
        """The smallest prefix of `model` that is cached, in tokens."""
        own = _by_beginning(self.minimums, model)
        if own is not None:
            return own
        facts = known(model) if self.from_models else None
        if facts is not None and facts.minimum is not None:
            return facts.minimum
        return self.minimum

    def read_share(self, model: str) -> float:
        """What a cached token of `model` costs, as a share of the input price."""
        own = _by_beginning(self.reads, model)
        if own is not None:
            return own
        facts = known(model) if self.from_models else None
        if facts is not None and facts.prices.input and facts.prices.read is not None:
            return round(facts.prices.read / facts.prices.input, SHARE_DIGITS)
        return self.read

    def step(self, model: str) -> int:
        """The tokens that a hit of `model` is rounded down to."""
        steps = (step for name, step in self.granularities.items() if is_named(model, name))
        return next(steps, self.granularity)

    def strips(self, model: str) -> bool:
        """Whether `model` drops earlier thinking when the user speaks."""
        return any(_is_among(model, name) for name in self.strips_thinking)

    def word(self, model: str, asked: str = "") -> str:
        """The word of a lifetime that `model` gives when it is `asked` for one, or for none."""
        for name, words in self.lives.items():
            if is_named(model, name):
                return asked if asked in words else words[0]
        if self.lives:
            return self.lifetime
        return asked if asked in self.lifetimes else self.lifetime

    def seconds(self, word: str) -> float:
        """A lifetime in seconds, by its word; "" and words not known are the lifetime by default."""
        return self.lifetimes.get(word) or self.lifetimes.get(self.lifetime) or float("inf")

    def is_long(self, word: str) -> bool:
        """Whether writing with this lifetime has the long price."""
        return self.seconds(word) > self.seconds("")


SHARE_DIGITS = 6
"""Prices are decimals: 0.075 of 0.75 is a tenth, and not what is nearest to it in binary."""

_Number = TypeVar("_Number", int, float)


def _by_beginning(table: dict[str, _Number], model: str) -> _Number | None:
    """The value under the longest name that `model` begins with, None where it begins with none."""
    if not table:
        return None
    plain = plain_name(model)
    values = {plain_name(name): value for name, value in table.items()}
    longest = max((name for name in values if plain.startswith(name)), key=len, default=None)
    return None if longest is None else values[longest]


def _is_among(model: str, name: str) -> bool:
    """Whether a model is the named one, or begins as it does if the name ends with `*`."""
    if name.endswith("*"):
        return plain_name(model).startswith(plain_name(name.removesuffix("*")))
    return is_named(model, name)


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """What one request took, in tokens of its prompt. `why` says it in a sentence.

    `written_long` is what was written with the longer of two lifetimes, and not part of `written`. `hit` is
    the number of whole blocks that were read.
    """

    read: int = 0
    written: int = 0
    written_long: int = 0
    uncached: int = 0
    hit: int = 0
    why: str = ""

    @property
    def total(self) -> int:
        return self.read + self.written + self.written_long + self.uncached
