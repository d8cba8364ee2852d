"""A cache that is created under a name and read by it: Gemini's explicit one.

A request that names a live cache reads all of it, and pays for the rest; one that names none reads nothing.
Keeping it has a price by the hour. It knows no clock: `at` is given.
"""

from __future__ import annotations

import msgspec

from lamina.caches.stream import Stream, StreamBlock
from lamina.caches.values import CacheRules, Tally
from lamina.errors import BadInput


class NamedCache(msgspec.Struct, kw_only=True):
    """One cache: its tokens, for which model, since when and until when."""

    tokens: int
    model: str
    since: float
    until: float


class Caches:
    """State: the caches by name."""

    def __init__(self, rules: CacheRules) -> None:
        self.rules = rules
        self.kept: dict[str, NamedCache] = {}

    def create(self, name: str, stream: Stream, *, at: float = 0.0, seconds: float | None = None) -> Tally:
        """Creates a cache of a whole stream; it is written at the price of input."""
        least = self.rules.least(stream.model)
        if stream.tokens < least:
            raise BadInput(
                f"{stream.tokens} tokens for cache {name!r}",
                place="create",
                hint=f"an explicit cache of {stream.model} has at least {least}",
            )
        until = at + (self.rules.seconds("") if seconds is None else seconds)
        self.kept[name] = NamedCache(tokens=stream.tokens, model=stream.model, since=at, until=until)
        return Tally(written=stream.tokens, why=f"created {name}")

    def renew(self, name: str, *, at: float, seconds: float) -> None:
        """Lets a cache live until `seconds` from now."""
        self.kept[name].until = at + seconds

    def send(
        self,
        stream: Stream,
        *,
        at: float = 0.0,
        answer: tuple[StreamBlock, ...] = (),
        begun: float | None = None,
    ) -> Tally:
        """One request at a time in seconds. The stream is what stands after the cache that it names."""
        del answer, begun
        cache = self.kept.get(stream.cached)
        if cache is None or cache.until < at or cache.model != stream.model:
            return Tally(uncached=stream.tokens, why=self._why(stream, cache, at))
        return Tally(read=cache.tokens, uncached=stream.tokens, why=f"read {stream.cached} whole")

    def held(self, name: str, *, at: float) -> float:
        """The million-token-hours that a cache has been kept for until now."""
        cache = self.kept[name]
        return cache.tokens / 1e6 * max(min(at, cache.until) - cache.since, 0.0) / 3600

    def _why(self, stream: Stream, cache: NamedCache | None, at: float) -> str:
        if not stream.cached:
            return "names no cache"
        if cache is None:
            return f"no cache is named {stream.cached}"
        return (
            f"{stream.cached} is for {cache.model}" if cache.until >= at else f"{stream.cached} has expired"
        )
