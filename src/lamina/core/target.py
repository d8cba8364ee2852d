"""How far a cut should go.

A cut rewrites the prompt from its first edit on, once; what it leaves is read again at every later step.
With growth g a step, trigger H and target L there are (H - L) / g steps between two cuts. Reads cost r a
token, writes w, so a step costs about r (H + L) / 2 + (w - r) L g / (H - L), which falls as L falls: on
price alone the deepest cut is the cheapest. What stops it is what the model can no longer see. So the
target keeps half of the room, and less only where growth is so fast that fewer than `STEPS` steps would
fit before the next cut.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.core.values import Budget, Entry, Head, Role

RESERVE = 16_000
"""Tokens kept free for the answer where the request does not say how long it may be."""

SHARE = 0.5
"""Of the room, what a cut leaves standing by default."""

LOWEST = 0.25
"""Of the room: however fast a session grows, a cut leaves this much."""

STEPS = 4
"""Steps that should fit between two cuts."""


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """A cache's prices, as multiples of the input price, and its lifetime in seconds."""

    read: float = 0.1
    write: float = 1.25
    ttl: int = 300


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """A budget in tokens, for one request."""

    room: int
    trigger: int
    target: int
    least: int
    largest: int


def limits(budget: Budget, head: Head, entries: Sequence[Entry]) -> Limits:
    room = budget.window - reserve(budget, head)
    trigger = _share(room, budget.trigger)
    least = _share(room, budget.least)
    target = (
        _target(room, trigger, least, growth(entries))
        if budget.target is None
        else _share(room, budget.target)
    )
    return Limits(
        room=room, trigger=trigger, target=target, least=least, largest=_share(room, budget.largest)
    )


def reserve(budget: Budget, head: Head) -> int:
    """What the budget says, else the request's limit of output or a constant, at most half the window."""
    if budget.reserve is not None:
        return budget.reserve
    named = ("max_tokens", "max_completion_tokens", "max_output_tokens")
    found = [value for name in named if isinstance(value := head.parameters.get(name), int) and value > 0]
    return min(max(found, default=RESERVE), budget.window // 2)


def growth(entries: Sequence[Entry]) -> int:
    """Tokens that one of the last few steps added, on average."""
    if not entries:
        return 0
    last = entries[-1].step
    recent = [
        e for e in reversed(entries[-20 * STEPS :]) if e.step > last - STEPS and e.role is not Role.SYSTEM
    ]
    steps = last - recent[-1].step + 1 if recent else 1
    return sum(e.tokens for e in recent) // steps


def _target(room: int, trigger: int, least: int, grown: int) -> int:
    wanted = min(_share(room, SHARE), trigger - least)
    return max(min(wanted, trigger - STEPS * grown), min(wanted, _share(room, LOWEST)))


def _share(room: int, share: float) -> int:
    """A share of the room in whole tokens, rounded down; in thousandths, so that every machine agrees."""
    return room * round(share * 1000) // 1000
