"""What to do about a request that its API refused, at every door: which refusals have a remedy, and budgets.

A request that was too long is made as small as the API asked for. If it cannot be that small, it is made as
small as it can be: it may be accepted all the same. A server that refuses unbound thinking is asked to drop
it, and one that does not know that switch is asked no more. Each remedy is tried once for a request.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from lamina.core.values import Budget
from lamina.dialects.anthropic.server import refuses_binding_switch, refuses_thinking
from lamina.dialects.overflow import Overflow, read_overflow

SWITCH_REFUSED = "refused for what it asks of the server"
THINKING_REFUSED = "refused for its thinking"
TOO_LONG = "refused as too long"

UNCOUNTED = Budget(window=1 << 40)
"""A budget that nothing exceeds: for counting, and for what passes."""


class MendableRefusal(NamedTuple):
    """Why an API refused a request, in a case that has a remedy. The record has `why` at the next request."""

    why: str
    overflow: Overflow = Overflow()


def read_refusal(status: int | None, message: str) -> MendableRefusal | None:
    """What an error says, if there is a remedy."""
    if refuses_binding_switch(status, message):
        return MendableRefusal(SWITCH_REFUSED)
    if refuses_thinking(status, message):
        return MendableRefusal(THINKING_REFUSED)
    overflow = read_overflow(status, message)
    if overflow is None:
        return None
    return MendableRefusal(TOO_LONG, overflow)


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
