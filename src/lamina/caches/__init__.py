"""Simulates and prices each provider's prefix cache: dated rules, and one simulator for each algorithm.

    rules = rules_for("claude-opus-5-5")
    cache = simulator(rules)
    tally = cache.send(stream, at=0.0)

Read `rules.py` first: `CacheRules` is everything that we know about a cache, `Tally` is what one request
took from it. `simulate.py` names the module of each algorithm.
"""

from typing import TYPE_CHECKING

from lamina._lazy_names import name_lazily

if TYPE_CHECKING:
    from lamina.caches.lifetimes import PausedRequest, choose_lifetime
    from lamina.caches.named import ExplicitCachePrice, NamedCaches, price_explicit_cache
    from lamina.caches.prices import Price, cost, storage
    from lamina.caches.rules import (
        CacheRules,
        Level,
        MatchRule,
        Tally,
        all_rules,
        load_rules,
        rates,
        rules_for,
    )
    from lamina.caches.simulate import Cache, TokenCache, simulator, token_simulator
    from lamina.caches.stream import Stream, StreamBlock

__all__ = [
    "Cache",
    "CacheRules",
    "ExplicitCachePrice",
    "Level",
    "MatchRule",
    "NamedCaches",
    "PausedRequest",
    "Price",
    "Stream",
    "StreamBlock",
    "Tally",
    "TokenCache",
    "all_rules",
    "choose_lifetime",
    "cost",
    "load_rules",
    "price_explicit_cache",
    "rates",
    "rules_for",
    "simulator",
    "storage",
    "token_simulator",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = name_lazily(
        __name__,
        {
            "lamina.caches.lifetimes": "PausedRequest choose_lifetime",
            "lamina.caches.named": "ExplicitCachePrice NamedCaches price_explicit_cache",
            "lamina.caches.prices": "Price cost storage",
            "lamina.caches.simulate": "Cache TokenCache simulator token_simulator",
            "lamina.caches.stream": "Stream StreamBlock",
            "lamina.caches.rules": "CacheRules Level MatchRule Tally all_rules load_rules rates rules_for",
        },
    )
