"""Names the simulator of each algorithm.

A simulated cache is a state machine. The caller sends it requests in order, with their times. For each it
returns what a real cache would have read, written and computed. It reads no clock and asks no server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from lamina.caches.breakpoints import BreakpointCache, TurnEndCache
from lamina.caches.named import NamedCaches
from lamina.caches.prefix import LongestPrefixCache, PageCache, UnitCache
from lamina.caches.rules import CacheRules, MatchRule, Tally
from lamina.caches.slots import SlotCache
from lamina.caches.stream import Stream, StreamBlock
from lamina.errors import BadInput


class Cache(Protocol):
    """A simulated cache. `send` gives it the stream of one request, and says what the cache had of it."""

    def send(
        self,
        stream: Stream,
        *,
        at: float = 0.0,
        answer: tuple[StreamBlock, ...] = (),
        begun: float | None = None,
    ) -> Tally: ...


class TokenCache(Cache, Protocol):
    """A simulated cache that is exact on token ids."""

    def send_tokens(self, ids: Sequence[int], *, at: float = 0.0, generated: Sequence[int] = ()) -> Tally: ...


def simulator(rules: CacheRules, *, model: str = "") -> Cache:
    """A cache under these rules that has seen nothing yet. `model`: its minimum holds for all requests."""
    if model:
        rules = msgspec.structs.replace(rules, minimum=rules.least(model), minimums={}, from_models=False)
    return _CACHES[rules.match](rules)


def token_simulator(rules: CacheRules, *, slots: int | None = None, memory: int | None = None) -> TokenCache:
    """The same for a server whose cache is exact on tokens. `slots` and `memory` replace the rules' own."""
    if rules.match not in _EXACT:
        raise BadInput(
            f"rules {rules.name!r} match by {rules.match}",
            place="token_simulator",
            hint="use simulator, and send streams",
        )
    if slots is not None:
        rules = msgspec.structs.replace(rules, slots=slots)
    if memory is not None:
        rules = msgspec.structs.replace(rules, memory=memory)
    return _EXACT[rules.match](rules)


_CACHES: dict[MatchRule, Callable[[CacheRules], Cache]] = {
    "breakpoints": BreakpointCache,
    "tail": TurnEndCache,
    "prefix": LongestPrefixCache,
    "named": NamedCaches,
    "units": UnitCache,
    "pages": PageCache,
    "slots": SlotCache,
}
_EXACT: dict[MatchRule, Callable[[CacheRules], TokenCache]] = {"pages": PageCache, "slots": SlotCache}
