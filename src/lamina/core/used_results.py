"""Short results that the model goes on working with: later calls ask for what stands in them.

A recipe, a plan or the details of a booking are read once and needed to the end, though nobody names them
again. What they list turns up in the arguments of one call after the other. A digest quotes such results as
a whole, as long as there is room for them beside the names.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain

from lamina.core.entries import begins_with
from lamina.core.text.terms import find_terms
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

MOST_RESULTS = 16
"""A term that more results have is skipped: else thousands of calls go through thousands of results."""

_PRECISION = 1_000_000
"""Weights are whole numbers, so that every machine agrees."""


class _ShortResult:
    """What one or more calls returned word for word, and the steps of the calls that used it later."""

    def __init__(self, read_at: int) -> None:
        self.read_at = read_at
        self.refs: list[Ref] = []
        self.used_at: list[int] = []


class UsedResults:
    """How much later calls made of each short result in a request. It is read when a digest has room."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    @cached_property
    def weights(self) -> dict[Ref, int]:
        """The weight of each result that was used: the more calls asked for it, and the later, the more."""
        now = self._entries[-1].step
        weights: dict[Ref, int] = {}
        for result in self._list_results():
            steps = result.used_at
            if len(steps) >= FEWEST_CALLS:
                weight = len(steps) * _PRECISION // (HALF_LIFE + now - steps[-1])
                weights.update(dict.fromkeys(result.refs, weight))
        return weights

    def _list_results(self) -> Iterable[_ShortResult]:
        """All short results, each with the steps of the calls that used it."""
        results: dict[str, _ShortResult] = {}
        results_with: dict[str, list[_ShortResult]] = defaultdict(list)
        for entry in self._entries:
            if not begins_with(entry.source.parts, ToolResult):
                continue
            text = text_of(entry.source.parts)
            if len(text) > LONGEST:
                continue
            if text not in results:
                results[text] = _ShortResult(entry.step)
                for term in find_terms(text) - _find_asked(entry):
                    results_with[term].append(results[text])
            results[text].refs.append(entry.ref)
        for at, terms in self._read_calls().items():
            step = self._entries[at].step
            for result in _find_shared(terms, results_with):
                if result.read_at <= step - FEWEST_STEPS:
                    result.used_at.append(step)
        return results.values()

    def _read_calls(self) -> dict[int, set[str]]:
        """The terms of each call, by its position, without those that stand in more than one call in four."""
        terms_of_calls: dict[int, set[str]] = {}
        for at, entry in enumerate(self._entries):
            if begins_with(entry.source.parts, ToolCall):
                terms_of_calls[at] = find_terms(text_of(entry.source.parts))
        calls_with = Tally(chain.from_iterable(terms_of_calls.values()))
        most_calls = max(len(terms_of_calls) // MOST_SHARED, MOST_SHARED)
        common = {term for term, calls in calls_with.items() if calls > most_calls}
        return {at: terms - common for at, terms in terms_of_calls.items()}


def _find_shared(terms: set[str], results_with: dict[str, list[_ShortResult]]) -> list[_ShortResult]:
    """The results that have something in common with a call, and do not share it with too many others."""
    shared: Tally[_ShortResult] = Tally()
    for term in terms:
        with_term = results_with.get(term, ())
        if len(with_term) <= MOST_RESULTS:
            for result in with_term:
                shared[result] += _PRECISION // len(with_term)
    return [result for result, part in shared.items() if part >= _PRECISION // MOST_SHARED]


def _find_asked(result: Entry) -> set[str]:
    """The terms of a result's own call. That they stand in the result says nothing new."""
    if result.asked is None:
        return set()
    return find_terms(result.asked.arguments)
