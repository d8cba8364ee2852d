"""Reads what the provider reported of each call of a trace. No token is counted."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from lamina.caches import Tally
from lamina.conversations.lost_caches import PaidCall
from lamina.costs.logs.values import RecordedUsage, Trace
from lamina.dialects.json_values import list_or_empty
from lamina.fitting.recalls import RECALL

# `[trimmed: read_file src/app.py · 4,310 bytes · recall("k7f3qlwutqypsivab")]`; JSON escapes its quotes.
_HANDLE = re.compile(rb'\[trimmed: [^\]]{0,400}recall\(\\"k[a-z2-7]{15,}')


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


def tally_recorded(usage: RecordedUsage) -> Tally:
    """What was reported of a call, as a tally of the cache."""
    return Tally(
        read=usage.read, written=usage.written, written_long=usage.written_long, uncached=usage.uncached
    )
