"""Adds up what the records themselves say: tokens and money that a trace took, and where its cache was lost.

No token is counted: only what the provider reported of each call is read.
`lamina.conversations.lost_caches` says what a cache lost, and why.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from lamina.caches import Tally
from lamina.caches.prices import WorkingCost
from lamina.conversations.costs import price_tally
from lamina.conversations.lost_caches import PaidCall, find_losses
from lamina.dialects.json_values import list_or_empty
from lamina.fitting.recalls import RECALL
from lamina.replay.account_sums import sum_fields
from lamina.replay.outcomes import input_equivalents
from lamina.replay.savings import price_settings
from lamina.replay.values import RecordedUsage, Reported, Trace

# `[trimmed: read_file src/app.py · 4,310 bytes · recall("k7f3qlwutqypsivab")]`; JSON escapes its quotes.
_HANDLE = re.compile(rb'\[trimmed: [^\]]{0,400}recall\(\\"k[a-z2-7]{15,}')


def sum_recorded_usage(trace: Trace) -> Reported:
    """The sums of what was reported of one trace; all are 0 where the records have no usage.

    Writes for both lifetimes are one sum.
    """
    calls = list_answered(trace)
    usages = [*trace.used.values(), *(usage for _, usage in trace.repeated)]
    under_lamina = ran_under_lamina(trace)
    dollars = _sum_dollars(trace, usages)
    by_setting: tuple[WorkingCost, ...] = ()
    if not under_lamina:
        by_setting = price_settings(trace, dollars)
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
            input_equivalents(call.tally, call.rules, call.rules.read_share(call.model)) for call in calls
        ),
        dollars=dollars,
        lost=tuple(find_losses(calls)),
        by_setting=by_setting,
        compactions=len(trace.compacted),
        under_lamina=under_lamina,
        project=trace.project,
        began=trace.began,
        title=trace.title,
        client_session=trace.client_session,
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


def list_answered(trace: Trace) -> list[PaidCall]:
    """The calls with a reported usage. One that names no model was a call to the trace's own."""
    calls: list[PaidCall] = []
    last_place = 0
    for place, usage in sorted([*trace.used.items(), *trace.repeated], key=_order_of_report):
        calls.append(
            PaidCall(
                tally=tally_recorded(usage),
                model=usage.model or trace.model,
                dialect=trace.dialect,
                at=usage.at,
                tier=usage.tier,
                cut=usage.cut,
                saving=usage.saving,
                compacted=any(last_place < compaction <= place for compaction in trace.compacted),
            )
        )
        last_place = place
    return calls


def _order_of_report(report: tuple[int, RecordedUsage]) -> tuple[int, float]:
    """By the place of the answer, and in time where several requests have the same place."""
    place, usage = report
    return place, usage.at or 0.0


def _sum_dollars(trace: Trace, usages: Sequence[RecordedUsage]) -> float | None:
    """The cost at the prices of the time; None if no call was reported, or if one has no price."""
    if not usages or trace.unreported:
        return None
    total = 0.0
    for usage in usages:
        dollars = price_recorded(usage, trace)
        # a sum without some of its calls would look like a cheap session
        if dollars is None:
            return None
        total += dollars
    return total


def price_recorded(usage: RecordedUsage, trace: Trace) -> float | None:
    """What one call cost, at the price of its time; None if its model has none."""
    return price_tally(
        tally_recorded(usage),
        usage.model or trace.model,
        output=usage.output,
        dialect=trace.dialect,
        at=usage.at,
        tier=usage.tier,
    )


def tally_recorded(usage: RecordedUsage) -> Tally:
    """What was reported of a call, as a tally of the cache."""
    return Tally(
        read=usage.read, written=usage.written, written_long=usage.written_long, uncached=usage.uncached
    )
