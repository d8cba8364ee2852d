"""What each provider's prefix cache does: dated rules, a simulator for each algorithm, and the price.

    rules = rules_for("claude-opus-5-5")
    cache = simulator(rules)
    tally = cache.send(stream, at=0.0)

Read `values.py` first: `CacheRules` is everything that we know about a cache, `Tally` is what one request
took from it. `simulate.py` names the module of each algorithm.
"""

from __future__ import annotations

from lamina.caches.loading import all_rules, load_rules, rules_for
from lamina.caches.named import NamedCaches
from lamina.caches.prices import Price, cost, storage
from lamina.caches.simulate import Cache, TokenCache, simulator, token_simulator
from lamina.caches.values import CacheRules, Level, MatchRule, Tally, rates

__all__ = [
    "Cache",
    "CacheRules",
    "Level",
    "MatchRule",
    "NamedCaches",
    "Price",
    "Tally",
    "TokenCache",
    "all_rules",
    "cost",
    "load_rules",
    "rates",
    "rules_for",
    "simulator",
    "storage",
    "token_simulator",
]
