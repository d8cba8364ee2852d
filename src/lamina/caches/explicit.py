"""Says whether an explicit cache of Gemini pays, beside its implicit one.

An explicit cache is made once at the input price, stored at a price by the hour, and read at the price of a
read. Without it, the implicit cache of the same API reads a part of the requests by itself, and promises
nothing. So an explicit one pays where many requests share a head and the implicit one misses them. Nothing
here makes a cache: `lamina.clients.gemini_caches` does.
"""

from __future__ import annotations

import msgspec

from lamina.caches.values import CacheRules
from lamina.errors import BadInput
from lamina.models.facts import model_or_none, price_of

SECONDS_PER_HOUR = 3600


class ExplicitCachePrice(msgspec.Struct, frozen=True, kw_only=True):
    """What a million tokens of a head cost in USD over one lifetime, with a cache of its own and without."""

    creation: float
    stored: float
    read: float
    without: float

    @property
    def with_cache(self) -> float:
        return self.creation + self.stored + self.read

    @property
    def pays(self) -> bool:
        return self.with_cache < self.without


def price_explicit_cache(
    rules: CacheRules, model: str, *, uses: float, seconds: float, implicit_share: float = 0.0
) -> ExplicitCachePrice:
    """Price a head that `uses` requests read in `seconds`.

    `implicit_share` is the part of it that the implicit cache reads without being asked: what was reported as
    cached, as a share of the head. The price of storage is that of the rules.
    """
    facts = model_or_none(model)
    price = None
    if facts is not None:
        price = price_of(facts).input
    if price is None:
        hint = "give the lifetime yourself: whether a cache pays cannot be said without a price"
        raise BadInput(f"no price of {model!r} is known", place="price_explicit_cache", hint=hint)
    read = rules.read_share(model)
    return ExplicitCachePrice(
        creation=price,
        stored=rules.storage * seconds / SECONDS_PER_HOUR,
        read=uses * read * price,
        without=uses * price * (1 - implicit_share * (1 - read)),
    )
