"""Cost against recall: what the cheapest of some points costs at a given recall."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from lamina.replay.values import ReplayOutcome

SLACK = 1e-9


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """One way to send a conversation: what it costs, what could be seen, and the tokens of a mean request."""

    cost: float
    recall: float
    cuts: int = 0
    mean: int = 0

    @staticmethod
    def of(found: ReplayOutcome) -> Shown:
        recall = found.visible / found.needed if found.needed else 1.0
        mean = found.sent // max(found.calls - found.failed, 1)
        return Shown(cost=found.equivalents, recall=recall, cuts=found.cuts, mean=mean)


def cost_at(recall: float, points: Sequence[Shown]) -> float:
    """The lowest cost at this recall: of a point that has it, or between one below it and one above."""
    above = [p for p in points if p.recall >= recall - SLACK]
    below = [p for p in points if p.recall < recall - SLACK]
    between = [_between(recall, low, high) for low in below for high in above]
    return min([p.cost for p in above] + between, default=float("inf"))


def _between(recall: float, low: Shown, high: Shown) -> float:
    share = (recall - low.recall) / (high.recall - low.recall)
    return low.cost + share * (high.cost - low.cost)
