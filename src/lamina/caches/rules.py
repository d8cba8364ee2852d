"""Describes a cache as data: the rules of one provider or server, and what one request took under them.

`CacheRules` are read from a dated TOML file in this folder, from a file of the user, or constructed in code.
They name an algorithm and carry its numbers. The algorithms are in the other modules of this package. This
module knows no request and no price of a model.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.resources import files
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from lamina.caches.stream import SETTINGS
from lamina.core.cut_target import Rates
from lamina.core.text.characters import lower_ascii
from lamina.errors import BadInput
from lamina.models.facts import Model, model_or_none, nearest_name
from lamina.models.names import is_named, plain_name

MatchRule = Literal["breakpoints", "tail", "prefix", "units", "pages", "slots"]
"""How a cache finds what it has stored. Each word names the module that simulates it.

- `breakpoints`: entries end at markers. A request finds one by walking back from one of its own markers.
- `tail`: entries end at markers and at the last turn. A request finds one at any of its own boundaries.
- `prefix`: the longest prefix in common with any earlier request.
- `units`: whole units, which end at turns and at detected common prefixes.
- `pages`: a chain of hashes over pages of tokens.
- `slots`: the last sequence of each of a few slots.
"""

Level = Literal["all", "system", "messages", "none"]
"""Where a changed setting enters the prefix. What stands before that level can still be read."""

SHARE_DIGITS = 6
"""Shares are rounded to so many digits, since prices are decimals: 0.075 / 0.75 is not 0.1 in binary."""


UNKNOWN = "unknown"
"""The name of the rules for a cache that nobody described."""

FOREVER = 10**9
"""Seconds that no conversation is idle."""

_NO_FACTS = Model(name="", window=0)


class CacheRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cache of one provider or server, as written down from its `sources` on the day `as_of`.

    **Which requests.** `models` are beginnings of model names. Where a provider has two caches, `dialects`
    are those that speak to this one. `key` names the request field that routes to one cache.

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
    tokens that is cached. `granularity` is the number of tokens that a hit is rounded down to,
    `granularities` has the models that differ.

    **What it costs.** `read`, `write` and `write_long` multiply the input price where the model has no price
    of its own. `tiers` multiplies all prices of a call that was served so; several stack.
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
    granularity: int = 1
    granularities: dict[str, int] = {}
    read: float = 1.0
    write: float = 1.0
    write_long: float = 1.0
    tiers: dict[str, float] = {}
    levels: dict[str, Level] = {}
    strips_thinking: tuple[str, ...] = ()
    key: str = ""
    slots: int = 1
    memory: int = 0

    def __post_init__(self) -> None:
        """Raise BadInput for the first thing that is wrong, and say what to write instead."""
        words = ", ".join(self.lifetimes)
        unknown_settings = sorted(set(self.levels) - set(SETTINGS))
        model_words = set(chain.from_iterable(self.lives.values()))
        limits = (self.markers, self.look_back, self.minimum, self.memory)
        smallest_step = min((self.granularity, *self.granularities.values()))
        problems = (
            (
                len(unknown_settings) > 0,
                f"levels has {', '.join(unknown_settings)}",
                f"settings are {', '.join(SETTINGS)}",
            ),
            (
                len(self.lifetimes) > 0 and self.lifetime not in self.lifetimes,
                f"lifetime is {self.lifetime!r}",
                f"give one of lifetimes: {words}",
            ),
            (
                min(self.lifetimes.values(), default=1.0) <= 0,
                f"lifetimes are {self.lifetimes!r}",
                "give seconds above 0",
            ),
            (
                not model_words <= set(self.lifetimes) or not all(self.lives.values()),
                f"lives has {sorted(model_words)}",
                f"give words of lifetimes, at least one for each model: {words}",
            ),
            (min(limits) < 0, "a number is negative", "limits are 0 or more"),
            (
                min(smallest_step, self.slots) <= 0,
                f"granularity {smallest_step}, slots {self.slots}",
                "both are 1 or more",
            ),
        )
        for is_broken, problem, hint in problems:
            if is_broken:
                raise BadInput(problem, place=f"rules {self.name!r}", hint=hint)

    def least(self, model: str) -> int:
        """The smallest prefix of `model` that is cached, in tokens."""
        minimum = self._facts(model).minimum
        if minimum is not None:
            return minimum
        return self.minimum

    def read_share(self, model: str) -> float:
        """What a cached token of `model` costs, as a share of the input price.

        0.1 says that ten cached tokens cost as much as one that is not cached.
        """
        prices = self._facts(model).prices
        if prices.input and prices.read is not None:
            return round(prices.read / prices.input, SHARE_DIGITS)
        return self.read

    def _facts(self, model: str) -> Model:
        """What the table of models says about `model`; nothing if these rules do not rely on it."""
        facts = None
        if self.from_models:
            facts = model_or_none(model)
        if facts is not None and facts.inferred:
            facts = model_or_none(facts.like)
        return facts or _NO_FACTS

    def step(self, model: str) -> int:
        """The number of tokens that a hit of `model` is rounded down to."""
        return _find_named(self.granularities, model) or self.granularity

    def drops_thinking(self, model: str) -> bool:
        """Whether `model` drops earlier thinking when the user speaks.

        `claude-3-7*` in the rules means every model whose name begins so.
        """
        nearest = nearest_name(model)
        for name in self.strips_thinking:
            beginning = plain_name(name.removesuffix("*"))
            if name.endswith("*") and plain_name(nearest).startswith(beginning):
                return True
            if is_named(nearest, name):
                return True
        return False

    def word(self, model: str, requested: str = "") -> str:
        """The word of the lifetime that `model` gives if this one is `requested`; "" requests none.

        A model that takes "5m" only gives "5m" also if "1h" is requested.
        """
        words = _find_named(self.lives, model)
        if words is None:
            words = (self.lifetime,)
            if not self.lives:  # models do not differ, so each takes all words
                words = (self.lifetime, *self.lifetimes)
        if requested in words:
            return requested
        return words[0]

    def find_requested(self, automatic: str) -> str:
        """The word of the lifetime that a request as a whole asks for, "" if it asks for none.

        `"12h in_memory"` asks for `12h`, if the rules have such a word.
        """
        requested_words = automatic.split(" ")
        for word in self.lifetimes:
            if word in requested_words:
                return word
        return ""

    def seconds(self, word: str) -> float:
        """A lifetime in seconds, by its word. Unknown words, and "", mean the default lifetime."""
        return self.lifetimes.get(word) or self.lifetimes.get(self.lifetime) or float("inf")

    def is_long(self, word: str) -> bool:
        """Whether writing with this lifetime has the long price."""
        return self.seconds(word) > self.seconds("")


def rates(rules: CacheRules, of: str) -> Rates:
    """A cache's prices and lifetime as the planner of cuts reads them; its defaults for an unknown cache."""
    if rules.name == UNKNOWN:
        return Rates()
    lifetime = min(rules.seconds(rules.word(of)), FOREVER)
    return Rates(read=rules.read_share(of), write=rules.write, ttl=int(lifetime))


_Value = TypeVar("_Value")


def _find_named(table: dict[str, _Value], model: str) -> _Value | None:
    """The value under the first name of the table that `model` or the nearest one is called by, or None."""
    nearest = nearest_name(model)
    for name, value in table.items():
        if is_named(nearest, name):
            return value
    return None


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


def rules_for(name_or_model: str, *, dialect: str = "") -> CacheRules:
    """The rules of this name, else those of a model's cache, else the rules named `unknown`.

    A model that no table has is taken to have the cache of the nearest one.

    A dialect that only one kind of server speaks decides alone. Any other dialect decides only if no rules
    list the model.

    `rules_for("claude-sonnet-4-5")` are Anthropic's, and so are `rules_for("x", dialect="anthropic")`.
    """
    if name_or_model in all_rules():
        return all_rules()[name_or_model]
    return _find_rules(name_or_model, nearest_name(name_or_model), dialect)


@lru_cache(maxsize=256)
def _find_rules(model: str, nearest: str, dialect: str) -> CacheRules:
    """The rules of a model's cache, whose nearest known model has this name.

    Rules that have the name of a dialect are those of its own provider. If they list no models, they are
    those of a server that serves any model.
    """
    own_rules = all_rules().get(dialect)
    if own_rules is not None and not own_rules.models:
        return own_rules
    return _find_by_model(model, nearest, dialect) or own_rules or all_rules()[UNKNOWN]


def _find_by_model(model: str, nearest: str, dialect: str) -> CacheRules | None:
    """The rules that list the longest beginning of a model's name, as it is written or as a plain name.

    `gpt-5.6-mini` is of the rules that list `gpt-5.6`, though others list `gpt-5`. A host that its path names
    decides first: it serves the models of others from a cache of its own. Of two caches of one provider, the
    dialect decides.
    """
    names = (lower_ascii(model), plain_name(model), plain_name(nearest))
    best = None
    heaviest = (False, 0, 0)
    for beginning, rules in _list_beginnings():
        fit = 0
        if rules.dialects:
            fit = 1 if dialect in rules.dialects else -1
        weight = ("/" in beginning, len(beginning), fit)
        if weight > heaviest and any(name.startswith(beginning) for name in names):
            heaviest = weight
            best = rules
    return best


def _list_beginnings() -> Iterator[tuple[str, CacheRules]]:
    """Each beginning of a model's name that rules list, as it is written there and as a plain name."""
    for rules in all_rules().values():
        for listed_model in rules.models:
            yield listed_model, rules
            yield plain_name(listed_model), rules


@cache
def all_rules() -> dict[str, CacheRules]:
    """Every rule set that comes with lamina, by name."""
    rules_by_name = {}
    for file in sorted(files(__package__).iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            rules = _parse_rules(file.read_text("utf-8"), file.name)
            rules_by_name[rules.name] = rules
    return rules_by_name


def find_named_rules(name: str, place: str) -> CacheRules:
    """The rules that come with lamina under this name; any other raises `BadInput` at this place."""
    rules = all_rules().get(name)
    if rules is None:
        raise BadInput(f"rules is {name!r:.100}", place=place, hint=f"use one of {', '.join(all_rules())}")
    return rules


def load_rules(path: str | PathLike[str]) -> CacheRules:
    """Rules from a TOML file. The files in this folder are examples."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(str(error), place=str(path), hint="give a readable TOML file in UTF-8") from None
    return _parse_rules(text, str(path))


def _parse_rules(text: str, place: str) -> CacheRules:
    """Rules from the text of a TOML file. Raises BadInput if it is none, or has an unknown field."""
    try:
        plain: dict[str, Any] = tomllib.loads(text)
        return msgspec.convert(plain, CacheRules)
    except msgspec.ValidationError as error:
        raise BadInput(
            str(error), place=place, hint="its fields are those of lamina.caches.CacheRules"
        ) from None
    except (ValueError, RecursionError) as error:  # not TOML, or nested too deeply
        raise BadInput(str(error), place=place, hint="it must be TOML") from None
