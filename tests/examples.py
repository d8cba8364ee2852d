"""How many examples a property gets that needs more than most, in whichever profile tests run."""

from __future__ import annotations

from hypothesis import settings

MOST_TIMES = 3


def up_to(count: int) -> int:
    """`count`, and in a quick run three times what other properties get."""
    return min(count, MOST_TIMES * settings().max_examples)
