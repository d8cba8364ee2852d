"""Budgets for a request that its API refused as too long, at every door.

The request is made as small as the API asked for. If it cannot be that small, it is made as small as it can
be: it may be accepted all the same.
"""

from __future__ import annotations

import msgspec

from lamina.core.values import Budget
from lamina.dialects.overflow import Overflow

RETRY_SHARE = 0.75
"""If the API refused a request without naming its limit, the next one may have this share of its tokens."""


def limit_to_report(budget: Budget, overflow: Overflow, counted: int) -> Budget:
    """The budget with the window that the API named for a request which was counted as `counted`."""
    return limit_budget(budget, overflow.window(counted, otherwise=RETRY_SHARE))


def limit_to_floor(budget: Budget, floor: int, counted: int) -> Budget | None:
    """The budget for the smallest request that is possible; None if the refused one was as small.

    No later request would fit the window that the API named, so that one must not be remembered.
    """
    if floor >= counted:
        return None
    return limit_budget(budget, floor, reserve=0)


def limit_budget(budget: Budget, window: int, *, reserve: int | None = None) -> Budget:
    """The budget with a smaller window. The answer's reserve takes at most half of it.

    Of a window of 8,000 with a reserve of 6,000, 4,000 are left for the request.
    """
    if reserve is None and budget.reserve is not None:
        reserve = min(budget.reserve, window // 2)
    return msgspec.structs.replace(budget, window=max(window, 1), reserve=reserve)
