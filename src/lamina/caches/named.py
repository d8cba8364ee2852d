"""Simulates caches that are created under a name and read by it: Gemini's explicit ones.

A request that names a live cache reads all of it, and pays for the rest. A request that names none reads
nothing. Storing a cache has a price by the hour. Nothing here reads a clock: the caller passes the time.
"""

from __future__ import annotations

import msgspec

from lamina.caches.stream import Stream, StreamBlock
from lamina.caches.values import CacheRules, Tally
from lamina.errors import BadInput


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
