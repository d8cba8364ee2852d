"""Dynamic programming over cuts: the cheapest way through a conversation, with a price on what is hidden.

Each `Left` is a node, and a way goes from cut to cut: between two of them every call reads what the one
before it sent. A request over the room is not forbidden but so dear that it is taken only where nothing else
is left. It sees sizes and counts, and no message.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import msgspec

from bench.schedules.ground import Ground, Left
from bench.schedules.tariff import Tariff

OVER = 20.0
"""What a token over the room costs, at full price one."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Cuts as (call, depth), in order; `otherwise` is the depth of those that must be made besides.

    `cost` and `hidden` are what the model of it says.
    """

    cuts: tuple[tuple[int, int], ...]
    otherwise: int = 10
    cost: float = 0.0
    hidden: int = 0


class Paths:
    """All ways through a conversation by these cuts."""

    def __init__(self, ground: Ground, cuts: Sequence[Left]) -> None:
        self.ground = ground
        self.nodes = [ground.uncut, *sorted(cuts, key=lambda left: (left.call, left.depth))]
        self.kept = [
            [ground.kept(p, s) for p in self.nodes[:at] if p.call < s.call or not p.depth]
            for at, s in enumerate(self.nodes)
        ]

    def best(self, tariff: Tariff, prices: Sequence[float]) -> list[Schedule]:
        """The cheapest schedule for each price of a hidden term."""
        runs = [self._run(node, tariff) for node in self.nodes]
        entries = [self._entered(at, tariff) for at in range(len(self.nodes))]
        return [self._cheapest(price, runs, entries) for price in prices]

    def _run(self, node: Left, tariff: Tariff) -> list[float]:
        """What the calls after a node's own cost together, up to each; the node's own is not in it."""
        ground, costs = self.ground, []
        if not node.depth:
            costs.append(tariff.spent(node.size(0), 0, 0.0))
        for call in range(node.call + 1, ground.calls):
            size, before = node.size(call), node.size(call - 1)
            over = max(size - ground.limit, 0)
            costs.append(tariff.spent(size, before, ground.idle[call]) + OVER * over)
        sums = list(accumulate(costs, initial=0.0))
        return sums if not node.depth else [0.0, *sums]

    def _entered(self, at: int, tariff: Tariff) -> list[float]:
        """What the call of a cut costs, for each node that it may come from."""
        node, ground = self.nodes[at], self.ground
        over = OVER * max(node.size(node.call) - ground.limit, 0)
        found = (min(kept, ground.head) if tariff.by_head else kept for kept in self.kept[at])
        return [tariff.spent(node.size(node.call), kept, ground.idle[node.call]) + over for kept in found]

    def _cheapest(self, price: float, runs: list[list[float]], entries: list[list[float]]) -> Schedule:
        nodes, calls = self.nodes, self.ground.calls
        worth: list[float] = [0.0]
        came: list[int] = [0]
        for at in range(1, len(nodes)):
            call = nodes[at].call
            ways = [
                worth[p] + runs[p][call - nodes[p].call] + price * nodes[p].missed(call) + entry
                for p, entry in enumerate(entries[at])
            ]
            came.append(min(range(len(ways)), key=ways.__getitem__))
            worth.append(ways[came[-1]])
        ends = [
            worth[at] + runs[at][calls - node.call] + price * node.missed(calls)
            for at, node in enumerate(nodes)
        ]
        return self._told(min(range(len(ends)), key=ends.__getitem__), ends, came, price)

    def _told(self, at: int, ends: list[float], came: list[int], price: float) -> Schedule:
        total, until, hidden = ends[at], self.ground.calls, 0
        cuts: list[tuple[int, int]] = []
        while True:
            node = self.nodes[at]
            hidden += node.missed(until)
            if not node.depth:
                return Schedule(cuts=tuple(cuts[::-1]), cost=total - price * hidden, hidden=hidden)
            cuts.append((node.call, node.depth))
            at, until = came[at], node.call
