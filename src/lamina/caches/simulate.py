"""Names the simulator of each algorithm."""

from __future__ import annotations

import msgspec

from lamina.caches.breakpoints import EntryCache
from lamina.caches.prefix import LongestPrefixCache, UnitCache
from lamina.caches.prefix_path import Cache
from lamina.caches.rules import CacheRules, MatchRule
from lamina.caches.slots import SlotCache


def simulator(rules: CacheRules, *, model: str = "") -> Cache:
    """A cache under these rules that has seen nothing yet. `model`: its minimum holds for all requests."""
    if model:
        rules = msgspec.structs.replace(rules, minimum=rules.least(model), from_models=False)
    return _CACHES[rules.match](rules)


_CACHES: dict[MatchRule, type[Cache]] = {
    "breakpoints": EntryCache,
    "tail": EntryCache,
    "prefix": LongestPrefixCache,
    "pages": LongestPrefixCache,
    "units": UnitCache,
    "slots": SlotCache,
}
