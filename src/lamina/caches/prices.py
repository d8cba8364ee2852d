"""Prices a request part by part: a tally times prices.

Prices are the model's own (`lamina.models.facts`). If a model has no price for reading or writing, it is the
rules' share of the input price. This module counts no tokens and asks no server.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from lamina.caches.loading import rules_for
from lamina.caches.values import CacheRules, Tally
from lamina.errors import BadInput
from lamina.models.facts import AS_OF, Model, model, price_of
from lamina.models.prices import Prices


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """What one request costs in USD, and its parts, at the prices of the day `as_of`."""

    read: float = 0.0
    write: float = 0.0
    uncached: float = 0.0
    output: float = 0.0
    as_of: str = AS_OF
    currency: str = "USD"

    @property
    def total(self) -> float:
        return self.read + self.write + self.uncached + self.output


def cost(
    tally: Tally,
    of: str | Model,
    *,
    rules: CacheRules | None = None,
    output: int = 0,
    at: datetime | None = None,
) -> Price:
    """The price of a request that took `tally`, sent to a model at this moment, with `output` tokens."""
    facts = model(of) if isinstance(of, str) else of
    rules = rules or rules_for(facts.name)
    prices = fill_prices(price_of(facts, tokens=tally.total, at=at), facts.name, rules)
    return Price(
        read=_dollars(tally.read, prices.read),
        write=_dollars(tally.written, prices.write) + _dollars(tally.written_long, prices.write_1h),
        uncached=_dollars(tally.uncached, prices.input),
        output=_dollars(output, prices.output),
    )


def storage(rules: CacheRules, held: float) -> Price:
    """The price of storing so many million tokens for an hour, as `NamedCaches.held` counts them."""
    return Price(write=rules.storage * held, as_of=rules.as_of)


def fill_prices(prices: Prices, name: str, rules: CacheRules) -> Prices:
    """The prices of a model. Those that it lacks are the rules' shares of its input price.

    A model with an input price of $3 reads at $0.30, if the rules say that a read costs a tenth.
    """
    if prices.input is None:
        raise BadInput(
            f"no price of {name!r} is known",
            place="cost",
            hint="pass a Model with Prices(input=...) in USD for a million tokens",
        )
    shares = {"read": rules.read_share(name), "write": rules.write, "write_1h": rules.write_long}
    missing = {}
    for field, share in shares.items():
        if getattr(prices, field) is None:
            missing[field] = prices.input * share
    return msgspec.structs.replace(prices, **missing)


def _dollars(tokens: int, price: float | None) -> float:
    return tokens * (price or 0.0) / 1_000_000
