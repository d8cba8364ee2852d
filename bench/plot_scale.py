"""A straight line from figures to places in a drawing, with round ticks."""

from __future__ import annotations

import math
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

    def ticks(self, count: int) -> list[float]:
        """Round figures from low to high, about `count` of them."""
        step = round_step((self.high - self.low) / count)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [step * number for number in range(first, last + 1)]


def round_step(size: float) -> float:
    """The smallest of 1, 2, 2.5 and 5 times a power of ten that is not below a size.

    Of 3 it is 5, of 230 it is 250, of 0.08 it is 0.1.
    """
    power = 10.0 ** math.floor(math.log10(size))
    for step in STEPS:
        if step * power >= size * (1 - 1e-9):
            return step * power
    return 10 * power
