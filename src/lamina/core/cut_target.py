"""How far a cut should go.

A cut rewrites the prompt from its first edit on, once; what it leaves is read again at every later step.
With growth g a step, trigger H, target L and a head P that no cut touches, there are (H - L) / g steps
between two cuts. Reads cost r a token, writes w, so a step costs about
r (H + L) / 2 + (w - r) (L - P) g / (H - L), which falls as L falls: on price alone the deepest cut is the
cheapest. What stops it is what has to be asked for again. Answers take from a token that is a steps old about
`NEED` / a^1.5 a step; if it does not stand there, the request is sent once more and what was missing comes
back. So L rises while one token more costs less than the recalls that it spares, at an age of L / g.
docs/planner.md derives it, and measures it against the best that could have been done.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import msgspec

from lamina.core.values import Budget, Entry, Head, Layer

RESERVE = 16_000
"""Tokens kept free for the answer where the request does not say how long it may be."""

NEED = 0.0035
"""How often an answer takes a name from a given token of one step ago: measured, see docs/planner.md."""

BACK = 1_500
"""Tokens that a recall brings back."""

LOWEST, HIGHEST, GRID = 20, 35, 5
"""Of the room, in hundredths: the least and the most that a cut leaves, and how finely that is chosen."""

STEPS = 16
"""Steps over which growth is measured."""


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """A cache's prices, as multiples of the input price, and its lifetime in seconds."""

    read: float = 0.1
    write: float = 1.25
    ttl: int = 300


class CutLimits(msgspec.Struct, frozen=True, kw_only=True):
    """A budget in tokens, for one request."""

    room: int
    trigger: int
    target: int
    least: int
    largest: int


DEFAULT = Rates()


def limits(budget: Budget, head: Head, entries: Sequence[Entry], rates: Rates = DEFAULT) -> CutLimits:
    room = budget.window - reserve(budget, head)
    if budget.input is not None:
        room = min(room, budget.input)
    trigger = _share(room, budget.trigger)
    least = _share(room, budget.least)
    if budget.target is None:
        fixed = sum(e.tokens for e in entries if e.layer is Layer.SYSTEM)
        target = min(best(room, trigger, growth(entries), rates, fixed=fixed), trigger - least)
    else:
        target = _share(room, budget.target)
    return CutLimits(
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
    """Tokens that one of the last steps added, on average."""
    if not entries:
        return 0
    last = entries[-1].step
    recent = [e for e in entries[-20 * STEPS :] if e.step > last - STEPS and e.layer is not Layer.SYSTEM]
    steps = last - recent[0].step + 1 if recent else 1
    return sum(e.tokens for e in recent) // steps


def best(room: int, trigger: int, grown: int, rates: Rates, *, fixed: int = 0) -> int:
    """The largest target at which the last token kept costs no more than it spares."""
    read, write, grown = rates.read, rates.write, max(grown, 1)
    for share in range(HIGHEST, LOWEST, -GRID):
        left = room * share // 100
        if left >= trigger:
            continue
        costs = read / 2 + max(write - read, 0) * max(trigger - fixed, 0) * grown / (trigger - left) ** 2
        age = left / grown
        spares = NEED / (age * sqrt(age)) * (read * (trigger + left) / 2 + write * BACK)
        if costs <= spares:
            return left
    return room * LOWEST // 100


def _share(room: int, share: float) -> int:
    """A share of the room in whole tokens, rounded down; in thousandths, so that every machine agrees."""
    return room * round(share * 1000) // 1000
