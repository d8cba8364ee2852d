"""The generated table of models, and how a model is found in it by any of its names.

The table, `models.json` in this folder, is generated from litellm's by `tools/models.py` with corrections of
our own, and is of the day `AS_OF`. If a provider limits the input below the window that it advertises,
`window` is that limit; if it names no limit for the output, `output` is 0. Hosts of open models differ: the
table has what a common one gives, and no prices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType

import msgspec

from lamina.core.bound_thinking import Binding
from lamina.core.values import Budget
from lamina.errors import BadInput
from lamina.models.names import TUNED, beginnings, is_boundary, key_of, plain_name, read_tuned_base, tail_of
from lamina.models.prices import OffPeak, Prices, Tier

AS_OF = "2026-11-09"
"""The day of the table: prices and limits are those of then."""

VARIABLE = "LAMINA_MODELS"
"""Names the user's own file of models, in the environment."""

MILLION = 1_000_000
"""The window that `[1m]` after a name asks for."""


class Model(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model. `family` names the tokenizer that the estimate for it is fitted to.

    `window` is what the input may take. `total` is what input and output may take together, if that is
    more: then the output does not make the input shorter. 0 means that both share the window. `minimum` is
    the shortest prefix in tokens that its provider caches, None if that is unknown. `tiers` are the
    prices of longer requests, in rising order. `listed` is the host's own name for the model if this is
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
"""Models by the names that they are found by."""


class _TableFile(msgspec.Struct, frozen=True):
    as_of: str
    models: tuple[Model, ...]


@cache
def table() -> Models:
    """The generated table, read when it is first needed."""
    data = Path(__file__).with_name("models.json").read_bytes()
    rows = msgspec.json.decode(data, type=_TableFile).models
    return MappingProxyType({key_of(row.listed or row.name): row for row in rows})


def find_model(name: str, *among: Models) -> Model:
    """The model of this name in these tables; raises `BadInput` if there is none.

    Of all rows that the name begins with, the one that says most of it decides; then the one with most of a
    vendor's or region's prefix; then the one of the first table. If what follows makes another model of the
    name, the name is unknown.
    """
    tuned_base = read_tuned_base(name)
    if tuned_base:
        return _find_tuned(name, tuned_base, among)
    longest = _find_longest(key_of(name), among)
    if longest is None:
        raise _unknown_model(name)
    row, rest = longest
    return _apply_tail(name, row, rest)


def is_named(name: str, base: str) -> bool:
    """Whether `name` is a name of the model `base`: with a date, a host, a variant, and no other model."""
    plain = plain_name(name)
    plain_base = plain_name(base)
    if not plain.startswith(plain_base) or not is_boundary(plain, len(plain_base)):
        return False
    return tail_of(plain[len(plain_base) :], open_weights=False) != "other"


def _find_longest(key: str, among: Sequence[Models]) -> tuple[Model, str] | None:
    """The row that says most of a key, and what follows it in the key."""
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


def _apply_tail(name: str, row: Model, rest: str) -> Model:
    """A row for a name that goes on after it."""
    tail = tail_of(rest, open_weights=row.prices == Prices())
    if tail == "other":
        raise _unknown_model(name)
    if tail == "unpriced":
        return _remove_prices(row)
    if tail == "wide" and row.window < MILLION:
        wide_tier = Tier(above=row.window, prices=Prices())  # no source says what the wider window costs
        return msgspec.structs.replace(row, window=MILLION, tiers=(*row.tiers, wide_tier))
    return row


def _find_tuned(name: str, tuned_base: str, among: Sequence[Models]) -> Model:
    """A fine-tuned model: the row that has its own prices, else the limits of the model it began as."""
    longest = _find_longest(tuned_base, among)
    if longest is not None:
        row, rest = longest
        return _apply_tail(name, row, rest)
    try:
        base_row = find_model(tuned_base.removeprefix(TUNED), *among)
    except BadInput:
        raise _unknown_model(name) from None
    return msgspec.structs.replace(_remove_prices(base_row), name=TUNED + base_row.name, listed="")


def _remove_prices(row: Model) -> Model:
    return msgspec.structs.replace(row, prices=Prices(), tiers=(), off_peak=None)


def _unknown_model(name: str) -> BadInput:
    return BadInput(
        f"unknown model {name[:80]!r}",
        place="model",
        hint=f"give its context window in tokens: Budget(window=...), or a file of models in {VARIABLE}",
    )
