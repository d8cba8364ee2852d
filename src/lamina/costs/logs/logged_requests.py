"""Reads a file of recorded sessions as rows of the table of requests: a pure function of the file.

So a pool of processes, Dask or Ray can map it over files. Nothing is known of other files here: an answer
that stands in several has the same digest in each, and the table takes the first.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from lamina.conversations.lost_caches import find_losses
from lamina.costs.logs import TraceFile, read_file
from lamina.costs.logs.growing_requests import find_answer_starts, is_answer
from lamina.costs.logs.own_answers import WITHOUT_TIMES, digest_answers, find_first_words, is_own_answer
from lamina.costs.logs.recorded_usage import list_answered, ran_under_lamina
from lamina.costs.logs.values import RecordedUsage, Trace, UnreadableLine
from lamina.costs.recorded_calls import add_loss
from lamina.costs.requests import Provenance, Request, RequestPricer
from lamina.costs.uncut_requests import AnsweredRequest
from lamina.dialects.json_values import list_or_empty, mapping_or_empty, text_or_empty
from lamina.errors import LaminaError

_WORKERS_DIED = "every worker that read it died: it may need more memory than a worker has"


class PricedFile(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a file, and what of it was skipped."""

    file: str
    requests: tuple[Request, ...] = ()
    skipped: tuple[UnreadableLine, ...] = ()


def price_file(file: TraceFile, *, since: float | None = None) -> PricedFile:
    """Every request of a file, since a moment."""
    requests: list[Request] = []
    skipped: list[UnreadableLine] = []
    for record in read_file(file):
        try:
            priced = _price_record(record, str(file), since)
        except (LaminaError, RecursionError) as error:
            priced = UnreadableLine(place=record.place, reason=str(error))
        if isinstance(priced, UnreadableLine):
            skipped.append(priced)
        else:
            requests += priced
    return PricedFile(file=str(file), requests=tuple(requests), skipped=tuple(skipped))


def give_up_file(file: TraceFile) -> PricedFile:
    """A file with which every worker died."""
    line = UnreadableLine(place=str(file), reason=_WORKERS_DIED)
    return PricedFile(file=str(file), skipped=(line,))


def _price_record(
    record: Trace | UnreadableLine, file: str, since: float | None
) -> list[Request] | UnreadableLine:
    if isinstance(record, UnreadableLine):
        return record
    requests = price_trace(record, file)
    if since is None:
        return requests
    if requests and all(request.at is None for request in requests):
        return UnreadableLine(place=record.place, reason=WITHOUT_TIMES, foreign=True)
    return [request for request in requests if request.at is not None and request.at >= since]


def price_trace(trace: Trace, file: str = "") -> list[Request]:
    """The requests of one session. One that has no time came with the one before it."""
    origin = Provenance(
        file=file,
        client=trace.client or trace.source,
        client_session=trace.client_session,
        user=trace.user,
        project=trace.project,
        title=trace.title or find_first_words(trace.items),
    )
    pricer = RequestPricer(origin)
    reports = _list_reports(trace)
    if not reports:
        return [pricer.add_unreported(_read_report(trace, None)) for _ in _list_unreported(trace)]
    digests = {place: digest.hex() for place, digest in digest_answers(trace).items()}
    is_shortened = ran_under_lamina(trace)
    paid_calls = list_answered(trace)
    requests: list[Request] = []
    last_at: float | None = None
    at = trace.began
    for (place, usage), paid in zip(reports, paid_calls, strict=True):
        pause = None
        if usage.at is not None and last_at is not None:
            pause = max(usage.at - last_at, 0.0)
        request = pricer.price(_read_report(trace, usage, pause))
        last_at = usage.at
        at = usage.at or at
        if is_shortened:  # the log has what lamina sent, and not what it left out
            request = msgspec.structs.replace(request, whole=None, dollars_uncut=None, dollars_without=None)
        request = msgspec.structs.replace(
            request,
            at=at,
            pause=pause,
            compacted=paid.compacted,
            tools=" ".join(_list_tools(trace, place)),
            answer=digests.get(place),
        )
        requests.append(request)
    for loss in find_losses(paid_calls):
        requests[loss.call - 1] = add_loss(requests[loss.call - 1], loss)
    return requests


def _list_reports(trace: Trace) -> list[tuple[int, RecordedUsage]]:
    """What was reported, by the place of the answer, in the order of `list_answered`."""
    return sorted([*trace.used.items(), *trace.repeated], key=lambda report: (report[0], report[1].at or 0.0))


def _list_unreported(trace: Trace) -> list[int]:
    """The answers of a session that reports no usage. Of any other, those that are reported count."""
    return [place for place in find_answer_starts(trace.items) if is_own_answer(trace, place)]


def _read_report(trace: Trace, usage: RecordedUsage | None, pause: float | None = None) -> AnsweredRequest:
    report = usage or RecordedUsage(at=trace.began)
    return AnsweredRequest(
        conversation=trace.id,
        at=report.at,
        model=report.model or trace.model,
        dialect=trace.dialect,
        input=report.total,
        full=report.total,
        cached=report.read,
        written=report.written + report.written_long,
        written_long=report.written_long,
        output=report.output,
        tier=report.tier,
        gap=pause or 0.0,
    )


def _list_tools(trace: Trace, place: int) -> Iterator[str]:
    """The names of the tools that an answer calls, in the words of its dialect."""
    for item in trace.items[place:]:
        if not is_answer(item):
            return
        calls = [*list_or_empty(item.get("content")), *list_or_empty(item.get("tool_calls"))]
        if "role" not in item:  # an item of the Responses API is the call itself
            calls = [item]
        for call in calls:
            fields = mapping_or_empty(call)
            name = fields.get("name") or mapping_or_empty(fields.get("function")).get("name")
            if name:
                yield text_or_empty(name)
