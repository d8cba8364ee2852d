"""How deep cuts may go so that they hide little of what answers need, by what recorded sessions say.

`lamina replay --hide-at-most 0.05 --write depths.json` measures it in a user's own sessions, and

    Policy(hide_at_most=0.05, depths="depths.json")

makes a target of it: the deepest cut that keeps the limit. What was promised stands in the account of each
request. A depth in a larger window hides no more than in a smaller one, so a window has the bounds of the
next smaller one that was measured.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import msgspec

from lamina.core.values import Budget
from lamina.errors import BadInput

FILE_HINT = "write one with: lamina replay LOGS --hide-at-most SHARE --window N --write FILE"


class DepthBounds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the sessions of one source hide in one window.

    `bounds` has a pair for each depth, from the one that hides least: the share of the room that a cut
    leaves, and the share of needed names that a new session hides at most, with the table's confidence.
    """

    source: str
    window: int
    sessions: int
    bounds: tuple[tuple[float, float], ...]

    def find_depth(self, limit: float) -> tuple[float, float] | None:
        """The deepest cut that keeps the limit, with its bound; None if there is none.

        The first depth that exceeds the limit ends the search, so that none keeps it by luck.
        """
        deepest: tuple[float, float] | None = None
        for depth, bound in self.bounds:
            if bound > limit:
                break
            deepest = depth, bound
        return deepest


class DepthTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was measured of each source and window, with this confidence."""

    confidence: float
    rows: tuple[DepthBounds, ...]

    def find_rows(self, window: int) -> list[DepthBounds]:
        """The rows of the largest window that is no larger than this one."""
        measured = max((row.window for row in self.rows if row.window <= window), default=None)
        return [row for row in self.rows if row.window == measured]


def promise_depth(budget: Budget, limit: float, table: DepthTable) -> Budget:
    """The budget with the deepest target that keeps the limit in the sessions of every source.

    Raises BadInput if the budget has a target of its own, or if no depth can be promised.
    """
    if budget.target is not None:
        hint = "leave one of them out: hide_at_most chooses the target"
        raise BadInput("the budget has a target, and hide_at_most is given too", place="Policy", hint=hint)
    rows = table.find_rows(budget.window)
    if not rows:
        problem = f"hide_at_most is {limit:g}, and nothing was measured for a window of {budget.window:,}"
        raise BadInput(problem, place="Policy", hint=FILE_HINT)
    depths: list[tuple[float, float]] = []
    for row in rows:
        deepest = row.find_depth(limit)
        if deepest is None:
            least = max(row.bounds[0][1] for row in rows)
            hint = f"give {least:.3f} or more, or a larger window"
            problem = (
                f"hide_at_most is {limit:g}, and no cut in a window of {budget.window:,} can promise that"
            )
            raise BadInput(problem, place="Policy", hint=hint)
        depths.append(deepest)
    # A source that needs more of the room left decides for all of them.
    depth, bound = max(depths)
    sessions = sum(row.sessions for row in rows)
    promise = (
        f"a cut leaves {depth:.0%} of the room: so at most {limit:.1%} of the names that answers need are "
        f"hidden in {table.confidence:.0%} of sessions (bound {bound:.1%}, from {sessions:,} sessions)"
    )
    return msgspec.structs.replace(budget, target=depth, promise=promise)


@lru_cache(maxsize=64)
def read_depths(path: str) -> DepthTable:
    """The table of a file that `lamina replay --write` wrote."""
    try:
        return msgspec.json.decode(Path(path).expanduser().read_bytes(), type=DepthTable)
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise BadInput(f"depths cannot be read: {error}", place=path, hint=FILE_HINT) from None
