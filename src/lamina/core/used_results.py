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
from itertools import chain

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
"""A call uses a result that has a term of it, if no more than so many results have that term, and no more
than one call in so many: what stands everywhere says nothing about one of them."""

MOST_PLACES = 16
"""A term that more results have is skipped: else thousands of calls go through thousands of results."""

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
        terms_of_calls = self._read_calls()
        places: dict[str, list[int]] = defaultdict(list)
        uses: dict[int, list[int]] = defaultdict(list)
        for at, entry in enumerate(self._entries):
            parts = entry.source.parts
            if at in terms_of_calls:
                latest = entry.step - FEWEST_STEPS
                for place in _find_shared(terms_of_calls[at], places):
                    if self._entries[place].step <= latest:
                        uses[place].append(entry.step)
            elif begins_with(parts, ToolResult):
                text = text_of(parts)
                if len(text) <= LONGEST:
                    for term in set(list_terms(text)).difference(_list_asked(entry)):
                        places[term].append(at)
        return uses

    def _read_calls(self) -> dict[int, set[str]]:
        """The terms of each call, by its position, without those that stand in more than one call in four."""
        terms_of_calls: dict[int, set[str]] = {}
        for at, entry in enumerate(self._entries):
            if begins_with(entry.source.parts, ToolCall):
                terms_of_calls[at] = set(list_terms(text_of(entry.source.parts)))
        calls_with = Tally(chain.from_iterable(terms_of_calls.values()))
        most_calls = max(len(terms_of_calls) // MOST_SHARED, MOST_SHARED)
        common = {term for term, calls in calls_with.items() if calls > most_calls}
        return {at: terms - common for at, terms in terms_of_calls.items()}


def _find_shared(terms: set[str], places: dict[str, list[int]]) -> list[int]:
    """The results that have something in common with a call, and do not share it with too many others."""
    shared: Tally[int] = Tally()
    for term in terms:
        with_term = places.get(term, ())
        if len(with_term) <= MOST_PLACES:
            for place in with_term:
                shared[place] += _PRECISION // len(with_term)
    return sorted(place for place, part in shared.items() if part >= _PRECISION // MOST_SHARED)


def _list_asked(result: Entry) -> list[str]:
    """The terms of a result's own call. That they stand in the result says nothing new."""
    if result.asked is None:
        return []
    return list_terms(result.asked.arguments)
