"""Chooses which tools to defer, when one search may find several of them: the set that saves most.

Deferring a tool saves what its definition would have taken. Each search that it makes necessary costs. Tools
that an answer calls for the first time together are found by one search, so the tools cannot be judged one by
one: two may be worth deferring together and neither alone. This is the problem of the most valuable closed
set, and a minimal cut of a small network solves it exactly. Nothing here knows what a token is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise


def choose_deferred(gains: Mapping[str, int], searches: Mapping[frozenset[str], int]) -> frozenset[str]:
    """The tools that save most if they are deferred: their gains less the searches that any needs.

    `searches` has the cost of all searches that would look for exactly these tools. Of sets that save the
    same, the smallest is returned: without a gain, a tool is loaded.
    """
    payments = _Payments(gains, searches)
    while payments.pay_more():
        pass
    return payments.tools_with_gain_left()


class _Payments:
    """The searches, as far as the gains of tools pay for them.

    A search is paid by any of the tools that it finds. What is left of the gains when nothing more can be
    paid is what deferral saves, and the tools that it is left to, or could be passed on to, are the set.
    """

    def __init__(self, gains: Mapping[str, int], searches: Mapping[frozenset[str], int]) -> None:
        # a tool without a gain is loaded, so it pays for no search
        self._gains = {tool: gain for tool, gain in gains.items() if gain > 0}
        self._unpaid = {tools: cost for tools, cost in searches.items() if cost > 0}
        self._paid: dict[tuple[str, frozenset[str]], int] = {}
        self._searches_of: dict[str, list[frozenset[str]]] = {tool: [] for tool in self._gains}
        for tools in self._unpaid:
            for tool in tools & self._gains.keys():
                self._searches_of[tool].append(tools)

    def pay_more(self) -> bool:
        """Pay for a search with the shortest chain of tools that can; returns whether there was one."""
        came_from = self._reach()
        unpaid = next((tools for tools in came_from.searches if self._unpaid[tools] > 0), None)
        if unpaid is None:
            return False
        # in a chain, a tool takes over what another has paid, and that one pays for another search
        chain = came_from.chain_to(unpaid)
        amount = min(self._gains[chain[0][0]], self._unpaid[unpaid])
        for (_, tools), (next_tool, _) in pairwise(chain):
            amount = min(amount, self._paid[next_tool, tools])
        self._gains[chain[0][0]] -= amount
        self._unpaid[unpaid] -= amount
        for tool, tools in chain:
            self._paid[tool, tools] = self._paid.get((tool, tools), 0) + amount
        for (_, tools), (next_tool, _) in pairwise(chain):
            self._paid[next_tool, tools] -= amount
        return True

    def tools_with_gain_left(self) -> frozenset[str]:
        return frozenset(self._reach().tools)

    def _reach(self) -> _Reached:
        """What can be reached from the tools that have a gain left, the nearest first."""
        reached = _Reached()
        waiting = deque(tool for tool, gain in self._gains.items() if gain > 0)
        reached.tools.update(dict.fromkeys(waiting))
        while waiting:
            tool = waiting.popleft()
            for tools in self._searches_of[tool]:
                if tools in reached.searches:
                    continue
                reached.searches[tools] = tool
                # sorted, so that the same sessions give the same advice in every process
                for other in sorted(tools & self._gains.keys()):
                    if other not in reached.tools and self._paid.get((other, tools), 0) > 0:
                        reached.tools[other] = tools
                        waiting.append(other)
        return reached


class _Reached:
    """Tools by the search through which they were reached, None for the first; searches by their tool."""

    def __init__(self) -> None:
        self.tools: dict[str, frozenset[str] | None] = {}
        self.searches: dict[frozenset[str], str] = {}

    def chain_to(self, last: frozenset[str]) -> list[tuple[str, frozenset[str]]]:
        """Who pays for what, from the tool that has a gain left to the search that is not paid."""
        chain: list[tuple[str, frozenset[str]]] = []
        tools: frozenset[str] | None = last
        while tools is not None:
            payer = self.searches[tools]
            chain.append((payer, tools))
            tools = self.tools[payer]
        return chain[::-1]
