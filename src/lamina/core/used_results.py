"""Short results that the model goes on working with: later calls ask for what stands in them.

A recipe, a plan or the details of a booking are read once and needed to the end, though nobody names them
again. What they list turns up in the arguments of one call after the other. A digest quotes such results as
a whole, as long as there is room for them beside the names.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

from lamina.core.entries import begins_with
from lamina.core.passages import list_terms
from lamina.core.values import Entry, Ref, ToolCall, ToolResult
from lamina.core.wording import text_of

LONGEST = 1_200
"""Characters of a result that is quoted as a whole."""

FEWEST_STEPS = 2
"""Steps between a result and a call that uses it: nearly every call asks for what the last result showed."""

FEWEST_CALLS = 2
"""Calls that must have used a result. By one call it may have been used up."""

HALF_LIFE = 50
"""Steps after which a use weighs half as much as a new one."""

MOST_SHARED = 4
"""A call uses the results that have a term of it in common, if there are no more than these: a term that
stands everywhere says nothing about one of them."""

_PRECISION = 1_000_000
"""Weights are whole numbers, so that every machine agrees."""


class UsedResults:
    """How much later calls made of each short result in a request. It is read when a digest has room."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    @cached_property
    def weights(self) -> dict[Ref, int]:
        """The weight of each result that was used: the more calls asked for it, and the later, the more."""
        uses = self._count_uses()
        now = self._entries[-1].step
        weights: dict[Ref, int] = {}
        for place, steps in uses.items():
            if len(steps) >= FEWEST_CALLS:
                weight = len(steps) * _PRECISION // (HALF_LIFE + now - steps[-1])
                weights[self._entries[place].ref] = weight
        return weights

    def _count_uses(self) -> dict[int, list[int]]:
        """The steps of the calls that used each result, by the position of the result."""
        places: dict[str, list[int]] = defaultdict(list)
        uses: dict[int, list[int]] = defaultdict(list)
        for at, entry in enumerate(self._entries):
            parts = entry.source.parts
            if begins_with(parts, ToolCall):
                for place in self._find_used(entry, places):
                    uses[place].append(entry.step)
            elif begins_with(parts, ToolResult):
                text = text_of(parts)
                if len(text) <= LONGEST:
                    for term in set(list_terms(text)).difference(_list_asked(entry)):
                        places[term].append(at)
        return uses

    def _find_used(self, call: Entry, places: dict[str, list[int]]) -> list[int]:
        """The results of earlier steps that have something in common with a call."""
        shared: Tally[int] = Tally()
        for term in set(list_terms(text_of(call.source.parts))):
            with_term = places.get(term, ())
            for place in with_term:
                shared[place] += _PRECISION // len(with_term)
        last_step = call.step - FEWEST_STEPS
        least = _PRECISION // MOST_SHARED
        return [at for at, part in shared.items() if part >= least and self._entries[at].step <= last_step]


def _list_asked(result: Entry) -> list[str]:
    """The terms of a result's own call. That they stand in the result says nothing new."""
    if result.asked is None:
        return []
    return list_terms(result.asked.arguments)
