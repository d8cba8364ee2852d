"""Rows of the table from what lamina recorded of a conversation: every request that was answered.

No body is read. What the gateway measured of a request stands beside its answer. A session measures nothing:
there the tokens that its cuts left out, as lamina counted them, say what a request would have been.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from lamina.conversations.costs import is_refused, tally_usage
from lamina.conversations.lost_caches import LostCache, PaidCall, find_losses
from lamina.conversations.record import RecordedCall
from lamina.costs.requests import Provenance, Request, RequestPricer
from lamina.costs.uncut_requests import AnsweredRequest
from lamina.dialects.usage import Usage


def price_recorded_calls(
    calls: Sequence[RecordedCall], name: str = "", *, parent: str = "", origin: Provenance | None = None
) -> list[Request | None]:
    """A row for each request of a record; None for one that nobody answered, or that was refused."""
    pricer = RequestPricer(origin)
    rows: list[Request | None] = []
    for answer in _list_answers(calls, name, parent):
        row = None
        if answer is not None and answer.input:
            row = pricer.price(answer)
        elif answer is not None:
            row = pricer.add_unreported(answer)
        rows.append(row)
    reported = [(at, row) for at, row in enumerate(rows) if row is not None and row.tokens is not None]
    for loss in find_losses([_read_paid(calls[at]) for at, _ in reported]):
        at, row = reported[loss.call - 1]
        rows[at] = add_loss(row, loss)
    return rows


def add_loss(row: Request, loss: LostCache) -> Request:
    """A row with what its cache lost. What a cut of lamina's cost is meant, and no loss."""
    if loss.is_cut:
        return row
    return msgspec.structs.replace(
        row,
        lost=loss.tokens,
        lost_dollars=loss.dollars,
        cause=loss.cause,
        lost_by=loss.by,
        why=loss.why,
        advice=loss.advice,
    )


def _list_answers(calls: Sequence[RecordedCall], name: str, parent: str) -> Iterator[AnsweredRequest | None]:
    last: RecordedCall | None = None
    for call in calls:
        answer = call.answer
        if answer is None or is_refused(call):
            yield None
            continue
        measured = answer.account
        if answer.usage is not None and not measured:
            measured = _measure_by_cut(call, last, answer.usage)
        usage = answer.usage or Usage()
        facts = {
            **msgspec.structs.asdict(usage),
            **measured,
            "id": call.request.id,
            "conversation": name,
            "parent": parent,
            "at": answer.at or call.request.at or None,
            "model": call.request.model,
            "dialect": call.request.dialect,
            "window": call.request.window,
            "cut": call.request.is_cut,
            "recalled": answer.recalled,
        }
        last = call
        try:
            yield msgspec.convert(facts, AnsweredRequest)
        except msgspec.ValidationError:  # fields of another release
            yield None


def _measure_by_cut(call: RecordedCall, last: RecordedCall | None, usage: Usage) -> dict[str, Any]:
    """What lamina's own counts say of a request that no door has measured.

    After a request of 30,000 tokens, a cut from 32,000 to 12,000 has 2,000 new tokens and hides 20,000.
    """
    request = call.request
    measured: dict[str, Any] = {"full": usage.input, "counted": request.tokens}
    if last is not None:
        measured["gap"] = max(request.at - last.request.at, 0.0)
    if request.cut is not None and request.is_cut and request.tokens:
        scale = usage.input / request.tokens
        measured["full"] = usage.input + round((request.cut.before - request.cut.after) * scale)
        measured["new"] = max(request.cut.before - (last.request.tokens if last else 0), 0)
    elif last is not None:
        measured["new"] = max(request.tokens - last.request.tokens, 0)
    return measured


def _read_paid(call: RecordedCall) -> PaidCall:
    usage = Usage()
    if call.answer is not None and call.answer.usage is not None:
        usage = call.answer.usage
    return PaidCall(
        tally=tally_usage(usage),
        model=call.request.model,
        dialect=call.request.dialect,
        at=call.request.at or None,
        tier=usage.tier,
        cut=call.request.cut,
    )
