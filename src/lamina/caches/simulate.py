"""Which algorithm simulates which rules.

A simulated cache is a state machine: it is sent requests in order, with their times, and says of each what a
real one would have read, written and computed. It reads no clock and asks no server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from lamina.caches.breakpoints import Breakpoints
from lamina.caches.named import Caches
from lamina.caches.pages import Pages
from lamina.caches.prefix import Prefix
from lamina.caches.slots import Slots
from lamina.caches.stream import Stream, StreamBlock
from lamina.caches.tail import Tail
from lamina.caches.units import Units
from lamina.caches.values import CacheRules, MatchRule, Tally
from lamina.errors import BadInput


class Cache(Protocol):
    """A simulated cache."""

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
    """A cache under these rules that has seen nothing yet; with the minimum of `model` for all, if given."""
    if model:
        rules = msgspec.structs.replace(rules, minimum=rules.least(model), minimums={}, from_models=False)
    return _CACHES[rules.match](rules)


def token_simulator(rules: CacheRules, *, slots: int | None = None, memory: int | None = None) -> TokenCache:
    """The same for a server whose cache is exact on tokens, perhaps with other slots and memory."""
    if rules.match not in _EXACT:
        raise BadInput(
            f"rules {rules.name!r} match by {rules.match}",
            place="token_simulator",
            hint="use simulator, and send streams",
        )
    own = {
        "slots": rules.slots if slots is None else slots,
        "memory": rules.memory if memory is None else memory,
    }
    return _EXACT[rules.match](msgspec.structs.replace(rules, **own))


_CACHES: dict[MatchRule, Callable[[CacheRules], Cache]] = {
    "breakpoints": Breakpoints,
    "tail": Tail,
    "prefix": Prefix,
    "named": Caches,
    "units": Units,
    "pages": Pages,
    "slots": Slots,
}
_EXACT: dict[MatchRule, Callable[[CacheRules], TokenCache]] = {"pages": Pages, "slots": Slots}
