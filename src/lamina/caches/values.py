"""What a cache does, as data: the rules of one provider or server, and what one request took under them.

`CacheRules` are read from a dated TOML file, or constructed in code. They name an algorithm and carry its
numbers. The algorithms are in the other modules of this package. This module knows no request and no price
of a model.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeVar

import msgspec

from lamina.caches.stream import SETTINGS
from lamina.errors import BadInput
from lamina.models.facts import model_or_none
from lamina.models.names import plain_name
from lamina.models.table import Model, is_named

MatchRule = Literal["breakpoints", "tail", "prefix", "named", "units", "pages", "slots"]
"""How a cache finds what it has stored. Each word names the module that simulates it.

- `breakpoints`: entries end at markers. A request finds one by walking back from one of its own markers.
- `tail`: entries end at markers and at the last turn. A request finds one at any of its own boundaries.
- `prefix`: the longest prefix in common with any earlier request.
- `named`: caches that were created under a name.
- `units`: whole units, which end at turns and at detected common prefixes.
- `pages`: a chain of hashes over pages of tokens.
- `slots`: the last sequence of each of a few slots.
"""

Level = Literal["all", "system", "messages", "none"]
"""Where a changed setting enters the prefix. What stands before that level can still be read."""

SHARE_DIGITS = 6
"""Shares are rounded to so many digits, since prices are decimals: 0.075 / 0.75 is not 0.1 in binary."""


class CacheRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cache of one provider or server, as written down from its `sources` on the day `as_of`.

    **Which requests.** `models` are beginnings of model names, `dialects` are names of dialects. `isolation`
    says whose requests share a cache, `key` names the request field that routes to one.

    **What we do not know.** `note` has what is not published. `conflicts` has where two documents disagree,
    which of them we follow, and the date of each. `promised` is false where the provider calls its cache
    best effort: the simulation is then the best case. `advice` replaces the general advice for a cause of
    `lamina.diagnose` where this API has something better to offer.

    **How long.** `lifetimes` maps the word that a marker or a request uses to seconds. `lifetime` is the word
    that holds if nothing else is requested. `lives` lists the words that a model takes, its default first,
    where models differ. `refresh`: a read starts the lifetime again.

    **How much.** `markers` is the largest number of markers in a request. `look_back` is the number of
    positions that are searched (for "tail": of boundaries). `runs`: a run of calls or of results is one
    position. `automatic`: a request can ask for one marker at its end. `minimum` is the smallest prefix in
    tokens that is cached, `minimums` has the models that differ. `granularity` is the number of tokens that a
    hit is rounded down to, `granularities` has the models that differ.

    **What it costs.** `read`, `write` and `write_long` multiply the input price where the model has no price
    of its own; `reads` has the models that differ. `storage` is USD for a million tokens and an hour.
    `from_models`: the minimum and the price of a read are facts of the model (`lamina.models.facts`), and the
    fields here are for models that are missing there.

    **What it depends on.** `levels` has the level of each setting that matters. `strips_thinking` names
    models that drop earlier thinking when the user speaks. A name that ends with `*` means all that begin so.

    **Servers.** `slots` is how many sequences stay loaded, `memory` how many tokens are stored besides
    (0: without limit).
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
        first_problem = next(self._problems(), None)
        if first_problem is not None:
            problem, hint = first_problem
            raise BadInput(problem, place=f"rules {self.name!r}", hint=hint)

    def _problems(self) -> Iterator[tuple[str, str]]:
        """What is wrong with these rules, and what to write instead."""
        unknown_settings = sorted(set(self.levels) - set(SETTINGS))
        if unknown_settings:
            yield f"levels has {', '.join(unknown_settings)}", f"settings are {', '.join(SETTINGS)}"
        yield from self._lifetime_problems()
        limits = (self.markers, self.look_back, self.minimum, self.memory, *self.minimums.values())
        if min(limits) < 0:
            yield "a number is negative", "limits are 0 or more"
        smallest_step = min((self.granularity, *self.granularities.values()))
        if smallest_step <= 0 or self.slots <= 0:
            yield f"granularity {smallest_step}, slots {self.slots}", "both are 1 or more"

    def _lifetime_problems(self) -> Iterator[tuple[str, str]]:
        """What is wrong with the lifetimes."""
        words = ", ".join(self.lifetimes)
        if self.lifetimes and self.lifetime not in self.lifetimes:
            yield f"lifetime is {self.lifetime!r}", f"give one of lifetimes: {words}"
        for seconds in self.lifetimes.values():
            if seconds <= 0:
                yield f"lifetimes are {self.lifetimes!r}", "give seconds above 0"
        model_words: set[str] = set()
        for lifetime_words in self.lives.values():
            model_words.update(lifetime_words)
        if not model_words <= set(self.lifetimes) or not all(self.lives.values()):
            hint = f"give words of lifetimes, at least one for each model: {words}"
            yield f"lives has {sorted(model_words)}", hint

    def least(self, model: str) -> int:
        """The smallest prefix of `model` that is cached, in tokens."""
        own_minimum = _longest_beginning(self.minimums, model)
        if own_minimum is not None:
            return own_minimum
        facts = self._facts(model)
        if facts is not None and facts.minimum is not None:
            return facts.minimum
        return self.minimum

    def read_share(self, model: str) -> float:
        """What a cached token of `model` costs, as a share of the input price."""
        own_share = _longest_beginning(self.reads, model)
        if own_share is not None:
            return own_share
        facts = self._facts(model)
        if facts is not None and facts.prices.input and facts.prices.read is not None:
            return round(facts.prices.read / facts.prices.input, SHARE_DIGITS)
        return self.read

    def _facts(self, model: str) -> Model | None:
        """What the table of models says about `model`, if these rules rely on it."""
        if not self.from_models:
            return None
        return model_or_none(model)

    def step(self, model: str) -> int:
        """The number of tokens that a hit of `model` is rounded down to."""
        for name, granularity in self.granularities.items():
            if is_named(model, name):
                return granularity
        return self.granularity

    def drops_thinking(self, model: str) -> bool:
        """Whether `model` drops earlier thinking when the user speaks."""
        return any(_matches_name(model, name) for name in self.strips_thinking)

    def word(self, model: str, requested: str = "") -> str:
        """The word of the lifetime that `model` gives if this one is `requested`; "" requests none."""
        for name, words in self.lives.items():
            if is_named(model, name):
                return requested if requested in words else words[0]
        if not self.lives and requested in self.lifetimes:
            return requested
        return self.lifetime

    def seconds(self, word: str) -> float:
        """A lifetime in seconds, by its word. Unknown words, and "", mean the default lifetime."""
        return self.lifetimes.get(word) or self.lifetimes.get(self.lifetime) or float("inf")

    def is_long(self, word: str) -> bool:
        """Whether writing with this lifetime has the long price."""
        return self.seconds(word) > self.seconds("")


_Number = TypeVar("_Number", int, float)


def _longest_beginning(table: dict[str, _Number], model: str) -> _Number | None:
    """The value under the longest name that `model` begins with, None if it begins with none of them."""
    if not table:
        return None
    plain_model = plain_name(model)
    longest_name = ""
    value: _Number | None = None
    for name, candidate in table.items():
        plain = plain_name(name)
        if plain_model.startswith(plain) and (value is None or len(plain) >= len(longest_name)):
            longest_name = plain
            value = candidate
    return value


def _matches_name(model: str, name: str) -> bool:
    """Whether a model has this name, or begins with it if the name ends with `*`."""
    if name.endswith("*"):
        return plain_name(model).startswith(plain_name(name.removesuffix("*")))
    return is_named(model, name)


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """What one request took from the cache, in tokens of its prompt. `why` says it in a sentence.

    `written_long` are the tokens written with the longer of two lifetimes; they are not part of `written`.
    `hit` is the number of whole blocks that were read.
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
