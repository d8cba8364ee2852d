"""Prices a request part by part: a tally times prices.

Prices are the model's own (`lamina.models.facts`). If a model has no price for reading or writing, it is the
rules' share of the input price. This module counts no tokens and asks no server.

`price_working` says what a conversation would cost with a working window, from the sizes and pauses of its
requests. Nothing is fitted: a cut is taken to be made where the planner makes it, and to leave its usual
share. docs/cost.md says how far that is from requests that were made anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from lamina.caches.lifetimes import PausedRequest
from lamina.caches.rules import CacheRules, Tally, rates, rules_for
from lamina.core.cut_target import LEAST_FREED, choose_working
from lamina.core.values import Budget, Preference
from lamina.errors import BadInput
from lamina.models.facts import AS_OF, Model, Prices, model, model_or_none, price_of

LANDING: dict[Preference, float] = {"memory": 0.65, "balanced": 0.35, "cost": 0.3, "answers": 0.35}
"""The share of the working window that a cut leaves, by the cuts of replayed sessions."""

MILLION = 1_000_000


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


class WorkingCost(msgspec.Struct, frozen=True, kw_only=True):
    """What the input of a conversation costs in USD, and how often it is cut."""

    dollars: float
    cuts: int


def price_working(
    requests: Sequence[PausedRequest], model: str, *, dialect: str = "", prefer: Preference | None = None
) -> WorkingCost | None:
    """What these requests cost with the working window of a preference; without one, with everything sent.

    None if nobody knows the price. A request of which the one before holds nothing begins anew: the client
    has shortened its history itself.
    """
    facts = model_or_none(model)
    if facts is None or facts.prices.input is None or not requests:
        return None
    cache = rates(rules_for(model, dialect=dialect), model)
    working = None
    landing = 0.0
    if prefer is not None:
        working = choose_working(cache, prefer)
        landing = LANDING[prefer]
    # What no cut can free is about what the first request has: system text, tools and the task.
    fixed = requests[0].tokens
    hidden = 0
    last_sent = 0
    dollars = 0.0
    cuts = 0
    for request in requests:
        if not request.held:
            hidden = 0
            last_sent = 0
        is_cold = request.pause is not None and request.pause > cache.ttl
        sent = request.tokens - hidden
        cached = min(last_sent, sent)
        if working is not None:
            left = fixed + round(landing * working)
            is_due = is_cold or sent > fixed + Budget().trigger * working
            if is_due and sent - left >= LEAST_FREED * working:
                hidden += sent - left
                sent = left
                cached = min(fixed, sent)
                cuts += 1
        if is_cold:
            cached = 0
        price = price_of(facts, tokens=sent).input or facts.prices.input
        dollars += (cached * cache.read + (sent - cached) * cache.write) * price / MILLION
        last_sent = sent
    return WorkingCost(dollars=dollars, cuts=cuts)
