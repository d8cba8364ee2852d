"""What the records themselves say: the tokens and the money that a trace took, and where its cache was lost.

Nothing is simulated and no token is counted: only what the provider reported of each call is read. A reason
is the first that holds of those that a record can show; why a client changed what it sent is for
`lamina.diagnose.differences`, which has the requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

from lamina.caches import CacheRules, Tally, cost, rules_for
from lamina.errors import BadInput
from lamina.models.facts import Model, model
from lamina.replay.values import RecordedUsage, Reported, Trace

HALF = 0.5
"""A call that reads less than this share of what it could have read lost the cache."""

LESS = 0.9
"""A call that sends less than this share of the one before it left something out."""


class _Call(NamedTuple):
    """One call: its number from 1, the place of its answer, what was reported, and which model answered."""

    number: int
    place: int
    used: RecordedUsage
    model: str
    rules: CacheRules


def reported(trace: Trace) -> Reported:
    """The account of the records of one trace; empty where they have no usage."""
    calls = _calls(trace)
    used = [call.used for call in calls]
    return Reported(
        trace=trace.id,
        source=trace.source,
        model=trace.model,
        calls=len(calls),
        read=sum(each.read for each in used),
        written=sum(each.written + each.written_long for each in used),
        uncached=sum(each.uncached for each in used),
        output=sum(each.output for each in used),
        dollars=_dollars(calls),
        lost=tuple(_lost(trace, calls)),
    )


def _calls(trace: Trace) -> list[_Call]:
    """A call whose record names no model was one to the trace's own."""
    rules = {
        name: rules_for(name, dialect=trace.dialect)
        for name in {each.model or trace.model for each in trace.used.values()}
    }
    named = ((place, each, each.model or trace.model) for place, each in sorted(trace.used.items()))
    return [_Call(number, *call, rules[call[2]]) for number, call in enumerate(named, start=1)]


def _dollars(calls: Sequence[_Call]) -> float | None:
    """At today's prices; None where no call was reported, or the price of one of them is not known."""
    try:
        known = {name: model(name) for name in {call.model for call in calls}}
        return sum(_price(call, known[call.model]) for call in calls) if calls else None
    except BadInput:
        return None


def _price(call: _Call, known: Model) -> float:
    used = call.used
    tally = Tally(
        read=used.read, written=used.written, written_long=used.written_long, uncached=used.uncached
    )
    at = None if used.at is None else datetime.fromtimestamp(used.at, UTC)
    return cost(tally, known, rules=call.rules, output=used.output, at=at).total


def _lost(trace: Trace, calls: Sequence[_Call]) -> Iterator[tuple[int, int, str]]:
    """Each call that read less than half of what it shares, at most, with the call before it."""
    for last, call in pairwise(calls):
        shared = min(last.used.total, call.used.total)
        if shared >= max(call.rules.least(call.model), 1) and call.used.read < HALF * shared:
            yield call.number, shared - call.used.read, _why(trace, calls, last, call)


def _why(trace: Trace, calls: Sequence[_Call], last: _Call, call: _Call) -> str:
    idle, lives = _between(last.used, call.used), _lives(calls, call)
    first = calls[0].used.total
    known = (
        (last.model != call.model, f"the model changed from {last.model} to {call.model}"),
        (any(last.place < cut <= call.place for cut in trace.compacted), "the client compacted its history"),
        (idle > lives, f"idle for {_span(idle)}, past the lifetime of {_span(lives)}"),
        (call.used.total < LESS * last.used.total, "the client sent less than before"),
        (not any(each.used.read for each in calls), "no call of it read anything"),
        (call.used.read == 0, "nothing was read"),
        (call.used.read <= first, "only the head was read, and no later message"),
    )
    return next((why for holds, why in known if holds), "only a part of the messages was read")


def _lives(calls: Sequence[_Call], call: _Call) -> float:
    """Seconds that what was written before a call could be read: the longest lifetime, if one was bought."""
    bought = any(each.used.written_long for each in calls[: call.number - 1])
    words = ("", *call.rules.lifetimes) if bought else ("",)
    return max(map(call.rules.seconds, words))


def _between(last: RecordedUsage, call: RecordedUsage) -> float:
    return 0.0 if last.at is None or call.at is None else call.at - last.at


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.0f} hours"
