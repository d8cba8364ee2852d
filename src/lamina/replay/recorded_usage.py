"""Adds up what the records themselves say: tokens and money that a trace took, and where its cache was lost.

Nothing is simulated and no token is counted: only what the provider reported of each call is read. The
reason for a loss is the first that holds of those that a record can show. Why a client changed what it sent
is for `lamina.diagnose.differences`, which has the requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from lamina.caches import CacheRules, Tally, rules_for
from lamina.conversations.costs import price_tally
from lamina.dialects.json_values import list_or_empty
from lamina.fitting.recalls import RECALL
from lamina.replay.account_sums import sum_fields
from lamina.replay.outcomes import input_equivalents
from lamina.replay.values import LostCache, RecordedUsage, Reported, Trace

# `[trimmed: read_file src/app.py · 4,310 bytes · recall("k7f3qlwutqypsivab")]`; JSON escapes its quotes.
_HANDLE = re.compile(rb'\[trimmed: [^\]]{0,400}recall\(\\"k[a-z2-7]{15,}')

LOST_SHARE = 0.5
"""A call that reads less than this share of what it could have read lost the cache."""

SHORTENED_SHARE = 0.9
"""A call that sends less than this share of the one before it left something out."""


class _ReportedCall(NamedTuple):
    """One call: its number from 1, the place of its answer, what was reported, and which model answered."""

    number: int
    place: int
    usage: RecordedUsage
    model: str
    dialect: str
    rules: CacheRules


def sum_recorded_usage(trace: Trace) -> Reported:
    """The sums of what was reported of one trace; all are 0 where the records have no usage.

    Writes for both lifetimes are one sum.
    """
    calls = _reported_calls(trace)
    usages = [call.usage for call in calls]
    return Reported(
        trace=trace.id,
        source=trace.source,
        place=trace.place,
        client=trace.client or trace.source,
        user=trace.user,
        model=trace.model,
        calls=len(calls),
        written=sum(usage.written + usage.written_long for usage in usages),
        equivalents=sum(
            input_equivalents(_tally(call.usage), call.rules, call.rules.read_share(call.model))
            for call in calls
        ),
        dollars=_sum_dollars(trace, calls),
        lost=tuple(_find_losses(trace, calls)),
        compactions=len(trace.compacted),
        under_lamina=ran_under_lamina(trace),
        project=trace.project,
        began=trace.began,
        title=trace.title,
        **sum_fields(usages, ["read", "uncached", "output"]),
    )


def ran_under_lamina(trace: Trace) -> bool:
    """Whether lamina fitted the requests that were recorded: they have its recall tool, or its handles.

    A client's own log has neither, since lamina stands between the client and the API. What lamina recorded
    itself says so.
    """
    if trace.under_lamina:
        return True
    if any(map(_is_recall_tool, list_or_empty(trace.head.get("tools")))):
        return True
    return any(_HANDLE.search(msgspec.json.encode(item)) for item in trace.items)


def _is_recall_tool(tool: Any) -> bool:
    return RECALL.description.encode() in msgspec.json.encode(tool).replace(rb"\"", b'"')


def _reported_calls(trace: Trace) -> list[_ReportedCall]:
    """The calls with a reported usage. One that names no model was a call to the trace's own.

    The rules of each model are looked up once.
    """
    rules: dict[str, CacheRules] = {}
    calls = []
    reports = sorted([*trace.used.items(), *trace.repeated], key=_order_of_report)
    for number, (place, usage) in enumerate(reports, start=1):
        name = usage.model or trace.model
        if name not in rules:
            rules[name] = rules_for(name, dialect=trace.dialect)
        calls.append(_ReportedCall(number, place, usage, name, trace.dialect, rules[name]))
    return calls


def _order_of_report(report: tuple[int, RecordedUsage]) -> tuple[int, float]:
    """By the place of the answer, and in time where several requests have the same place."""
    place, usage = report
    return place, usage.at or 0.0


def _sum_dollars(trace: Trace, calls: Sequence[_ReportedCall]) -> float | None:
    """The cost at the prices of the time; None if no call was reported, or if one has no price."""
    if not calls or trace.unreported:
        return None
    total = 0.0
    for call in calls:
        dollars = _price(_tally(call.usage), call, output=call.usage.output)
        # a sum without some of its calls would look like a cheap session
        if dollars is None:
            return None
        total += dollars
    return total


def _tally(usage: RecordedUsage) -> Tally:
    """What was reported of a call, as a tally of the cache."""
    return Tally(
        read=usage.read, written=usage.written, written_long=usage.written_long, uncached=usage.uncached
    )


def _price(tally: Tally, call: _ReportedCall, *, output: int = 0) -> float | None:
    usage = call.usage
    return price_tally(tally, call.model, output=output, dialect=call.dialect, at=usage.at, tier=usage.tier)


def _find_losses(trace: Trace, calls: Sequence[_ReportedCall]) -> Iterator[LostCache]:
    """Each call that read less than half of what it shares, at most, with the call before it.

    A call of 10,000 tokens after one of 9,000 that read 2,000 lost 7,000: it could have read 9,000.
    """
    for last, call in pairwise(calls):
        shared = min(last.usage.total, call.usage.total)
        # what is below the minimum was never cached, so it cannot be lost
        smallest_cached = max(call.rules.least(call.model), 1)
        if shared >= smallest_cached and call.usage.read < LOST_SHARE * shared:
            tokens = shared - call.usage.read
            yield LostCache(
                call=call.number,
                tokens=tokens,
                why=_explain_loss(trace, calls, last, call),
                dollars=_price_of_loss(call, tokens),
            )


def _price_of_loss(call: _ReportedCall, tokens: int) -> float | None:
    """What these tokens cost more than reading them would have. They were written if the call wrote any.

    Tokens that were written anew cost the price of writing less that of reading.
    """
    if call.usage.written_long:
        paid = Tally(written_long=tokens)
    elif call.usage.written:
        paid = Tally(written=tokens)
    else:
        paid = Tally(uncached=tokens)
    paid_dollars = _price(paid, call)
    read_dollars = _price(Tally(read=tokens), call)
    if paid_dollars is None or read_dollars is None:
        return None
    return paid_dollars - read_dollars


def _explain_loss(  # noqa: PLR0911 - one return for each reason
    trace: Trace, calls: Sequence[_ReportedCall], last: _ReportedCall, call: _ReportedCall
) -> str:
    """The first reason that holds. What a client can change comes before what was merely read."""
    if last.model != call.model:
        return f"the model changed from {last.model} to {call.model}"
    if any(last.place < compaction <= call.place for compaction in trace.compacted):
        return "the client compacted its history"
    # before what was sent: a pause explains a call that also sends less
    idle = _idle_before(last, call) or 0.0
    lifetime = _longest_lifetime(calls, call)
    if idle > lifetime:
        return f"idle for {_describe_span(idle)}, past the lifetime of {_describe_span(lifetime)}"
    if call.usage.total < SHORTENED_SHARE * last.usage.total:
        return "the client sent less than before"
    if not any(each.usage.read for each in calls):
        return "no call of it read anything"
    if call.usage.read == 0:
        return "nothing was read"
    if call.usage.read <= calls[0].usage.total:
        return "only the head was read, and no later message"
    return "only a part of the messages was read"


def _idle_before(last: _ReportedCall, call: _ReportedCall) -> float | None:
    """Seconds between two answers; None if a time was not recorded."""
    if last.usage.at is None or call.usage.at is None:
        return None
    return call.usage.at - last.usage.at


def _longest_lifetime(calls: Sequence[_ReportedCall], call: _ReportedCall) -> float:
    """Seconds that what was written before a call could be read: the longest lifetime, if one was bought.

    With lifetimes of 5 minutes and an hour it is an hour, once anything was written for an hour.
    """
    rules = call.rules
    lifetimes = [rules.seconds("")]
    if any(earlier.usage.written_long for earlier in calls[: call.number - 1]):
        lifetimes += [rules.seconds(word) for word in rules.lifetimes]
    return max(lifetimes)


def _describe_span(seconds: float) -> str:
    """Such as "40 seconds", "7 minutes" or "3 hours".

    The next unit begins at one and a half of it: 80 seconds, but 2 minutes.
    """
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.0f} hours"
