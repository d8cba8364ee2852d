"""Simulates caches that are created under a name and read by it: Gemini's explicit ones.

A request that names a live cache reads all of it, and pays for the rest. A request that names none reads
nothing. Storing a cache has a price by the hour. Nothing here reads a clock: the caller passes the time.

`price_explicit_cache` says whether such a cache pays. The implicit cache of the same API reads a part of the
requests by itself, and promises nothing. So an explicit one pays where many requests share a head and the
implicit one misses them. Nothing here makes a cache: `lamina.clients.gemini_caches` does.
"""

from __future__ import annotations

import msgspec

from lamina.caches.rules import CacheRules, Tally
from lamina.caches.stream import Stream, StreamBlock
from lamina.errors import BadInput
from lamina.models.facts import model_or_none, price_of

SECONDS_PER_HOUR = 3600


class NamedCache(msgspec.Struct, kw_only=True):
    """One cache: its tokens, its model, since when and until when it lives."""

    tokens: int
    model: str
    since: float
    until: float


class NamedCaches:
    """Simulated caches that a program creates and renews by name, as those of Gemini."""

    def __init__(self, rules: CacheRules) -> None:
        self.rules = rules
        self.caches: dict[str, NamedCache] = {}

    def create(self, name: str, stream: Stream, *, at: float = 0.0, seconds: float | None = None) -> Tally:
        """Create a cache of a whole stream. Writing it costs the price of input."""
        least = self.rules.least(stream.model)
        if stream.tokens < least:
            raise BadInput(
                f"{stream.tokens} tokens for cache {name!r}",
                place="create",
                hint=f"an explicit cache of {stream.model} has at least {least}",
            )
        if seconds is None:
            seconds = self.rules.seconds("")
        self.caches[name] = NamedCache(tokens=stream.tokens, model=stream.model, since=at, until=at + seconds)
        return Tally(written=stream.tokens, why=f"created {name}")

    def renew(self, name: str, *, at: float, seconds: float) -> None:
        """Let a cache live until `seconds` from now."""
        self.caches[name].until = at + seconds

    def send(
        self,
        stream: Stream,
        *,
        at: float = 0.0,
        answer: tuple[StreamBlock, ...] = (),
        begun: float | None = None,
    ) -> Tally:
        """Send one request at a time in seconds. The stream is what comes after the cache that it names."""
        del answer, begun
        cache = self.caches.get(stream.cached)
        if cache is None or cache.until < at or cache.model != stream.model:
            return Tally(uncached=stream.tokens, why=_explain_miss(stream, cache, at))
        return Tally(read=cache.tokens, uncached=stream.tokens, why=f"read {stream.cached} whole")

    def held(self, name: str, *, at: float) -> float:
        """The storage that a cache has used until now, in million tokens times hours."""
        cache = self.caches[name]
        seconds = max(min(at, cache.until) - cache.since, 0.0)
        return cache.tokens / 1e6 * seconds / 3600


def _explain_miss(stream: Stream, cache: NamedCache | None, at: float) -> str:
    """Why a request reads nothing.

    A cache belongs to one model, so another model reads nothing of it.
    """
    if not stream.cached:
        return "names no cache"
    if cache is None:
        return f"no cache is named {stream.cached}"
    if cache.until < at:
        return f"{stream.cached} has expired"
    return f"{stream.cached} is for {cache.model}"


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
