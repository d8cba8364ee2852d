"""Facts per model: how much it reads and writes, what that costs, its tokenizer, if its thinking is bound.

The table, `models.json` beside this file, is generated from litellm's by `tools/models.py` with corrections
of our own, and is of the day `AS_OF`. Where a provider limits the input below the window that it advertises,
`window` is that limit; where it names none for the output, `output` is 0. Hosts of open models differ: the
table has what a common one gives, and no prices. It knows no request and no clock, and of a model that is
not in it only what the user's own file says.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import msgspec

from lamina.core.bound_thinking import Binding
from lamina.core.text.estimate import FAMILIES
from lamina.core.values import Budget
from lamina.errors import BadInput
from lamina.models.names import TUNED, beginnings, is_boundary, key_of, own_name, plain_name, tail_of, tuned

__all__ = [
    "AS_OF",
    "VARIABLE",
    "Hours",
    "Model",
    "Models",
    "OffPeak",
    "Prices",
    "Tier",
    "find",
    "is_named",
    "key_of",
    "known",
    "load",
    "model",
    "own_name",
    "plain_name",
    "price_of",
    "table",
]

AS_OF = "2026-11-09"
"""The day of the table: prices and limits are those of then."""

VARIABLE = "LAMINA_MODELS"
"""Names the user's own file of models, in the environment."""

Count = Annotated[int, msgspec.Meta(ge=0)]
Price = Annotated[float, msgspec.Meta(ge=0)]


class Prices(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """USD for a million tokens; None where the source names no price of its own.

    `input` is for what a cache neither gave nor took, `read` for what it gave, `write` for what it took,
    `write_1h` for what it took to keep longer than its shortest lifetime.
    """

    input: Price | None = None
    output: Price | None = None
    read: Price | None = None
    write: Price | None = None
    write_1h: Price | None = None

    def cost(
        self, *, uncached: int = 0, read: int = 0, write: int = 0, write_1h: int = 0, output: int = 0
    ) -> float | None:
        """USD for these tokens; None if one of the prices that it takes is not known.

        Reading and writing without a price of their own cost what input costs; keeping longer does not.
        """
        dues = (
            (uncached, self.input),
            (read, self.input if self.read is None else self.read),
            (write, self.input if self.write is None else self.write),
            (write_1h, self.write_1h),
            (output, self.output),
        )
        known = [tokens * price for tokens, price in dues if tokens and price is not None]
        return sum(known) / 1_000_000 if len(known) == sum(1 for tokens, _ in dues if tokens) else None


class Tier(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The prices of a whole request whose input, cached or not, is longer than `above` tokens."""

    above: Count
    prices: Prices


class Hours(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A span of the days `days` (1 is Monday), from minute `start` to before minute `end`, in UTC."""

    days: tuple[Annotated[int, msgspec.Meta(ge=1, le=7)], ...]
    start: Count
    end: Count


class OffPeak(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The prices at quiet hours."""

    prices: Prices
    hours: tuple[Hours, ...]


class Model(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model. `family` names the tokenizer that the estimate for it is fitted to.

    `window` is what the input may take. `total` is what input and output may take together, where that is
    more: then the output does not make the input shorter. 0 means that both share the window. `minimum` is
    the shortest prefix in tokens that its provider caches, None where that is not known. `tiers` are the
    prices of longer requests, in rising order. `listed` is the host's own name for the model where this is
    what that host gives and asks for, else empty.
    """

    name: str
    window: int
    total: int = 0
    output: int = 0
    family: str = "o200k"
    binding: Binding = "none"
    minimum: int | None = None
    prices: Prices = Prices()
    tiers: tuple[Tier, ...] = ()
    off_peak: OffPeak | None = None
    listed: str = ""

    @property
    def budget(self) -> Budget:
        """What a request to it may take. How much of it the answer needs is for the request to say."""
        if self.total > self.window:
            return Budget(window=self.total, input=self.window)
        return Budget(window=self.window)


Models = Mapping[str, Model]
"""Models by the names that they are found by, as `load` gives them."""


def model(name: str, *, own: Models | None = None) -> Model:
    """The facts of a model, by its name as any provider writes it: with its path, region, or date.

    `own` are the caller's models, which win over the table; None takes those of the file that the
    environment variable LAMINA_MODELS names, read once.
    """
    if own is None:
        return _known(name, os.environ.get(VARIABLE, ""))
    return find(name, own, table())


def known(name: str) -> Model | None:
    """What `model` gives, None where that would be refused."""
    return _known_or_none(name, os.environ.get(VARIABLE, ""))


def price_of(model: Model, *, tokens: int = 0, at: datetime | None = None) -> Prices:
    """The prices of a request with `tokens` of input, cached or not, sent at the moment `at`.

    Without a moment they are those of the busy hours, which are the higher ones.
    """
    if at is not None and at.tzinfo is None:
        raise BadInput(f"{at!r} has no time zone", place="at", hint="pass datetime(..., tzinfo=UTC)")
    if at is not None and model.off_peak is not None and _within(at.astimezone(UTC), model.off_peak.hours):
        return model.off_peak.prices
    reached = [tier.prices for tier in model.tiers if tokens > tier.above]
    return reached[-1] if reached else model.prices


def load(path: str | Path) -> Models:
    """The models of a TOML file: one table `[models.NAME]` each, with the fields of `Model`.

    One that the table has, or is `like` one of it, needs only what differs. New `prices` take the place of
    all prices, tiers and quiet hours.
    """
    place = str(path)
    try:
        given = msgspec.toml.decode(Path(path).read_bytes(), type=_File)
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", place=place, hint="check the path") from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # no TOML, or not of this shape
        raise BadInput(str(error), place=place, hint="see Model in docs/models.md for the fields") from None
    return MappingProxyType({key_of(name): _made(name, row, place) for name, row in given.models.items()})


@cache
def table() -> Models:
    """The generated table, read when it is first asked for."""
    made = msgspec.json.decode(Path(__file__).with_name("models.json").read_bytes(), type=_Table)
    return MappingProxyType({key_of(row.listed or row.name): row for row in made.models})


def find(name: str, *among: Models) -> Model:
    """What `model` gives, from these models alone.

    Of all rows that the name begins with, the one that says most of it decides; then the one with most of a
    vendor's or region's prefix; then the one that is given first. If what follows makes another model of the
    name, the name is unknown.
    """
    base = tuned(name)
    if base:
        return _find_tuned(name, base, among)
    found = _longest(key_of(name), among)
    if found is None:
        raise _unknown(name)
    row, rest = found
    return _as_named(name, row, rest)


def is_named(name: str, base: str) -> bool:
    """Whether `name` is a name of the model `base`: with a date, a host, a variant, and no other model."""
    plain, own = plain_name(name), plain_name(base)
    if not plain.startswith(own) or not is_boundary(plain, len(own)):
        return False
    return tail_of(plain[len(own) :], open_weights=False) != "other"


def _longest(key: str, among: Sequence[Models]) -> tuple[Model, str] | None:
    """The row that says most of a key, and what follows it."""
    starts = beginnings(key)
    for end in range(len(key), 0, -1):
        if not is_boundary(key, end):
            continue
        for start in starts:
            for models in among:
                row = models.get(key[start:end])
                if row is not None:
                    return row, key[end:]
    return None


def _as_named(name: str, row: Model, rest: str) -> Model:
    """A row under a name that goes on after it."""
    tail = tail_of(rest, open_weights=row.prices == Prices())
    if tail == "other":
        raise _unknown(name)
    if tail == "unpriced":
        return _without_prices(row)
    if tail == "wide" and row.window < MILLION:
        more = Tier(above=row.window, prices=Prices())  # nobody says here what the wider window costs
        return msgspec.structs.replace(row, window=MILLION, tiers=(*row.tiers, more))
    return row


def _find_tuned(name: str, base: str, among: Sequence[Models]) -> Model:
    """A fine-tuned model: the row that has its own prices, else the limits of the model it began as."""
    found = _longest(base, among)
    if found is not None:
        return _as_named(name, *found)
    try:
        row = find(base.removeprefix(TUNED), *among)
    except BadInput:
        raise _unknown(name) from None
    return msgspec.structs.replace(_without_prices(row), name=TUNED + row.name, listed="")


def _without_prices(row: Model) -> Model:
    return msgspec.structs.replace(row, prices=Prices(), tiers=(), off_peak=None)


def _unknown(name: str) -> BadInput:
    return BadInput(
        f"unknown model {name[:80]!r}",
        place="model",
        hint=f"give its context window in tokens: Budget(window=...), or a file of models in {VARIABLE}",
    )


MILLION = 1_000_000
"""The window that `[1m]` after a name asks for."""


class _Table(msgspec.Struct, frozen=True):
    as_of: str
    models: tuple[Model, ...]


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a user may say of a model."""

    like: str | None = None
    window: Annotated[int, msgspec.Meta(gt=0)] | None = None
    total: Count | None = None
    output: Count | None = None
    family: str | None = None
    binding: Binding | None = None
    minimum: Count | None = None
    prices: Prices | None = None
    tiers: tuple[Tier, ...] | None = None
    off_peak: OffPeak | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: dict[str, _Row]


@lru_cache(maxsize=256)
def _known(name: str, path: str) -> Model:
    return find(name, _file(path), table()) if path else find(name, table())


@lru_cache(maxsize=256)
def _known_or_none(name: str, path: str) -> Model | None:
    try:
        return _known(name, path)
    except BadInput:
        return None


@lru_cache(maxsize=8)
def _file(path: str) -> Models:
    return load(path)


def _made(name: str, row: _Row, path: str) -> Model:
    place = f"{path}: models.{name}"
    if row.family is not None and row.family not in FAMILIES:
        raise BadInput(f"family is {row.family!r}", place=place, hint=f"use one of {', '.join(FAMILIES)}")
    like = find(row.like, table()) if row.like is not None else table().get(key_of(name))
    if like is None and row.window is None:
        raise BadInput(
            "the table has no such model", place=place, hint="give its window, or a model that it is like"
        )
    start = Model(name=name, window=0) if like is None else like
    if like is not None and row.like is not None:
        start = msgspec.structs.replace(like, name=name, listed="")
    if row.prices is not None:
        start = msgspec.structs.replace(start, tiers=(), off_peak=None)
    if row.window is not None:
        start = msgspec.structs.replace(start, total=0)
    fields = ("window", "total", "output", "family", "binding", "minimum", "prices", "tiers", "off_peak")
    said = {field: value for field in fields if (value := getattr(row, field)) is not None}
    made = msgspec.structs.replace(start, **said)
    return msgspec.structs.replace(made, tiers=tuple(sorted(made.tiers, key=lambda tier: tier.above)))


def _within(at: datetime, hours: tuple[Hours, ...]) -> bool:
    minute = at.hour * 60 + at.minute
    return any(at.isoweekday() in span.days and span.start <= minute < span.end for span in hours)
