"""From figures to places in a drawing: round ticks, short labels, labels that do not cover each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

STEPS = (1, 2, 2.5, 5, 10)


class PlotScale(NamedTuple):
    """A straight line from figures `low … high` to places `start … end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, figure: float) -> float:
        span = (self.high - self.low) or 1
        return round(self.start + (figure - self.low) / span * (self.end - self.start), 1)

    def ticks(self, count: int = 5) -> list[float]:
        """Round figures from low to high, about `count` of them."""
        step = round_step((self.high - self.low) / count)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [step * number for number in range(first, last + 1)]


def round_step(size: float) -> float:
    """The smallest of 1, 2, 2.5 and 5 times a power of ten that is not below a size.

    Of 3 it is 5, of 230 it is 250, of 0.08 it is 0.1.
    """
    if size <= 0 or not math.isfinite(size):
        return 1.0
    power = 10.0 ** math.floor(math.log10(size))
    for step in STEPS:
        if step * power >= size * (1 - 1e-9):
            return step * power
    return 10 * power


def round_up(figure: float) -> float:
    """The end of an axis from 0: the next tick above a figure."""
    step = round_step(figure / 5)
    return step * max(math.ceil(figure / step - 1e-9), 1)


def short_figure(figure: float) -> str:
    """12,500,000 as 12.5M: for axes, where the table has the figure itself.

    Figures below a thousand have no letter: 0.25 stays 0.25.
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(figure) >= size:
            return f"{figure / size:.3g}{letter}"
    return f"{figure:.3g}"


def spread_apart(places: Sequence[float], *, least: float, end: float) -> list[float]:
    """The same places in the same order, no two closer than `least` and none past `end`.

    Places are first moved down past the one above them, then up again where that went past the end.
    """
    order = sorted(range(len(places)), key=lambda at: places[at])
    moved = list(places)
    lowest_allowed = -math.inf
    for at in order:
        moved[at] = max(places[at], lowest_allowed)
        lowest_allowed = moved[at] + least
    highest_allowed = end
    for at in reversed(order):
        moved[at] = min(moved[at], highest_allowed)
        highest_allowed = moved[at] - least
    return moved
