"""What the records themselves say: the tokens and the money that a trace took, and where its cache was lost.

Nothing is simulated and no token is counted: only what the provider reported of each call is read. A reason
is the first that holds of those that a record can show; why a client changed what it sent is for
`lamina.part`, which has the requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

from lamina.errors import BadInput
from lamina.lab.values import Reported, Trace, Used
from lamina.models import Model, model
from lamina.rules import Rules, Tally, cost, rules_for

HALF = 0.5
"""A call that reads less than this share of what it could have read lost the cache."""

LESS = 0.9
"""A call that sends less than this share of the one before it left something out."""


class _Call(NamedTuple):
    """One call: its number from 1, the place of its answer, and what was reported."""

    number: int
    place: int
    used: Used


def reported(trace: Trace) -> Reported:
    """The account of the records of one trace; empty where they have no usage."""
    calls = [_Call(number, *pair) for number, pair in enumerate(sorted(trace.used.items()), start=1)]
    used = [call.used for call in calls]
    rules = rules_for(trace.model, dialect=trace.dialect)
    return Reported(
        trace=trace.id,
        source=trace.source,
        model=trace.model,
        calls=len(calls),
        read=sum(each.read for each in used),
        written=sum(each.written for each in used),
        uncached=sum(each.uncached for each in used),
        output=sum(each.output for each in used),
        dollars=_dollars(used, trace.model, rules),
        lost=tuple(_lost(trace, calls, rules)),
    )


def _dollars(used: Sequence[Used], name: str, rules: Rules) -> float | None:
    """At today's prices; None where no call was reported, or no price of the model is known."""
    try:
        known = model(name)
        return sum(_price(each, known, rules) for each in used) if used else None
    except BadInput:
        return None


def _price(used: Used, known: Model, rules: Rules) -> float:
    tally = Tally(read=used.read, written=used.written, uncached=used.uncached)
    at = None if used.at is None else datetime.fromtimestamp(used.at, UTC)
    return cost(tally, known, rules=rules, output=used.output, at=at).total


def _lost(trace: Trace, calls: Sequence[_Call], rules: Rules) -> Iterator[tuple[int, int, str]]:
    """Each call that read less than half of what it shares, at most, with the call before it."""
    for last, call in pairwise(calls):
        shared = min(last.used.total, call.used.total)
        if shared >= max(rules.least(trace.model), 1) and call.used.read < HALF * shared:
            yield call.number, shared - call.used.read, _why(trace, calls, last, call, rules)


def _why(trace: Trace, calls: Sequence[_Call], last: _Call, call: _Call, rules: Rules) -> str:
    idle, lives = _between(last.used, call.used), rules.seconds("")
    first = calls[0].used.total
    known = (
        (any(last.place < cut <= call.place for cut in trace.compacted), "the client compacted its history"),
        (idle > lives, f"idle for {_span(idle)}, past the lifetime of {_span(lives)}"),
        (call.used.total < LESS * last.used.total, "the client sent less than before"),
        (not any(each.used.read for each in calls), "no call of it read anything"),
        (call.used.read == 0, "nothing was read"),
        (call.used.read <= first, "only the head was read, and no later message"),
    )
    return next((why for holds, why in known if holds), "only a part of the messages was read")


def _between(last: Used, call: Used) -> float:
    return 0.0 if last.at is None or call.at is None else call.at - last.at


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.0f} hours"
