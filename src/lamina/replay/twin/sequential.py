"""Tests a share so that one may look after every call, and bounds it by an interval that holds each time.

A test for a fixed number of calls that is looked at again and again finds a difference sooner or later,
whether there is one or not. Here each side is tested with a martingale (Ville's inequality): under the
hypothesis it reaches 1 / alpha with a chance of at most alpha, however often and however long one looks.

To show that the share is below the bar, bets are spread evenly over all shares from 0 to the bar. The wealth

    ∫₀ᵇ q^same (1 - q)^other dq / b   over   b^same (1 - b)^other

grows if it is. For every true share of at least b each bet loses on average, so all of them together do. The
other side is the mirror image.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum

import msgspec

GRID = 100
"""Shares at which bets are placed. The test is valid for any number; more would only bet more finely."""

PRECISION = 1e-4


class Decision(StrEnum):
    """What the test says so far."""

    OPEN = "not decided, for a bar"
    BELOW = "below the bar"
    ABOVE = "above the bar"


class SequentialTest(msgspec.Struct, frozen=True, kw_only=True):
    """Is the share at least `bar`? `alpha` is the chance of a false verdict on either side, for ever."""

    bar: float = 0.9
    alpha: float = 0.01


def decide(test: SequentialTest, same: int, other: int) -> Decision:
    """What so many same and other choices say about the bar."""
    limit = -math.log(test.alpha)
    if log_wealth_below(test.bar, same, other) >= limit:
        return Decision.BELOW
    if log_wealth_below(1 - test.bar, other, same) >= limit:
        return Decision.ABOVE
    return Decision.OPEN


def log_wealth_below(bar: float, same: int, other: int) -> float:
    """The logarithm of the wealth of one who bets that the share is below the bar.

    With nothing seen it is about 0. It is computed in logarithms: a thousand calls would underflow.
    """
    fair = same * math.log(bar) + other * math.log(1 - bar)
    bets = []
    for number in range(GRID):
        share = bar * (number + 0.5) / GRID
        bets.append(same * math.log(share) + other * math.log(1 - share) - fair)
    highest = max(bets)
    return highest + math.log(sum(math.exp(bet - highest) for bet in bets) / GRID)


def bound_share(same: int, other: int, *, alpha: float = 0.05) -> tuple[float, float]:
    """The interval in which the share lies with a chance of 1 - alpha, whenever one looks.

    A share is left out as soon as a mixture of bets against it has 1 / alpha times its stake. The mixture is
    Jeffreys' prior. Looking at any time has its price: at 970 of 1,000 the interval is about twice as wide as
    one for a fixed number of calls.
    """
    if same + other == 0:
        return 0.0, 1.0
    mean = same / (same + other)
    limit = -math.log(alpha)

    def is_out(share: float) -> bool:
        return _log_wealth_against(share, same, other) >= limit

    low = 0.0
    high = 1.0
    if same > 0:
        low = _bisect(0.0, mean, is_out)
    if other > 0:
        high = _bisect(1.0, mean, is_out)
    return low, high


def _bisect(outside: float, inside: float, is_out: Callable[[float], bool]) -> float:
    """The border between a share that is out and one that is not, up to PRECISION."""
    while abs(outside - inside) > PRECISION:
        middle = (outside + inside) / 2
        if is_out(middle):
            outside = middle
        else:
            inside = middle
    return inside


def _log_wealth_against(share: float, same: int, other: int) -> float:
    mixture = (
        math.lgamma(same + 0.5)
        + math.lgamma(other + 0.5)
        - math.lgamma(same + other + 1)
        - 2 * math.lgamma(0.5)
    )
    fair = _times_log(same, share) + _times_log(other, 1 - share)
    return mixture - fair


def _times_log(count: int, share: float) -> float:
    """`count` times the logarithm of a share. Nothing seen of an impossible thing says nothing."""
    if count == 0:
        return 0.0
    if share <= 0:
        return -math.inf
    return count * math.log(share)
