"""Simulates and prices each provider's prefix cache: dated rules, and one simulator for each algorithm.

    rules = rules_for("claude-opus-5-5")
    cache = simulator(rules)
    tally = cache.send(stream, at=0.0)

Read `rules.py` first: `CacheRules` is everything that we know about a cache, `Tally` is what one request
took from it. `simulate.py` has the simulator of each algorithm.
"""

from typing import TYPE_CHECKING

from lamina._lazy_names import name_lazily

if TYPE_CHECKING:
    from lamina.caches.lifetimes import PausedRequest, choose_lifetime
    from lamina.caches.prefix_path import Cache
    from lamina.caches.prices import Price, cost
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
    from lamina.caches.simulate import simulator
    from lamina.caches.stream import Stream, StreamBlock

__all__ = [
    "Cache",
    "CacheRules",
    "Level",
    "MatchRule",
    "PausedRequest",
    "Price",
    "Stream",
    "StreamBlock",
    "Tally",
    "all_rules",
    "choose_lifetime",
    "cost",
    "load_rules",
    "rates",
    "rules_for",
    "simulator",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = name_lazily(
        __name__,
        {
            "lamina.caches.lifetimes": "PausedRequest choose_lifetime",
            "lamina.caches.prefix_path": "Cache",
            "lamina.caches.prices": "Price cost",
            "lamina.caches.simulate": "simulator",
            "lamina.caches.stream": "Stream StreamBlock",
            "lamina.caches.rules": "CacheRules Level MatchRule Tally all_rules load_rules rates rules_for",
        },
    )
