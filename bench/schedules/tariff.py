"""A cache as a few numbers, simple enough to be summed over thousands of schedules.

What is left out: where markers stand, how far a look-back goes, and pages that other conversations share.
The schedules that come out of it are judged by the simulators in `lamina.caches`, not by this.
"""

from __future__ import annotations

import msgspec

from lamina.caches import CacheRules


class Tariff(msgspec.Struct, frozen=True, kw_only=True):
    """Prices as shares of the input price. `by_head`: after a cut only tools and system text are found."""

    read: float
    write: float
    lifetime: float = float("inf")
    minimum: int = 0
    granularity: int = 1
    by_head: bool = False

    @staticmethod
    def of(rules: CacheRules, model: str) -> Tariff:
        return Tariff(
            read=rules.read_share(model),
            write=rules.write,
            lifetime=rules.seconds(rules.word(model)),
            minimum=rules.least(model),
            granularity=rules.step(model),
            by_head=rules.match == "breakpoints",
        )

    def spent(self, total: int, kept: int, idle: float) -> float:
        """What a request of `total` tokens costs whose first `kept` were sent `idle` seconds ago."""
        hit = 0 if idle > self.lifetime else min(kept, total) // self.granularity * self.granularity
        hit = hit if hit >= self.minimum else 0
        return self.read * hit + (self.write if total >= self.minimum else 1.0) * (total - hit)
