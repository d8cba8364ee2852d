"""Logs each answer with what it reported, and each lost cache with its cause.

`lamina.conversations.lost_caches` says whether a cache was lost, by what the upstream reported of two
requests. Then the two are compared as they were sent, to name the cause. The comparison runs in a thread
after the answer, one at a time, and delays nobody. If the client has asked the upstream why its cache missed,
the log has the upstream's word, too.
"""

from __future__ import annotations

import asyncio
from time import time
from typing import Any

from anyio import to_thread

from lamina.caches import rules_for
from lamina.conversations.costs import tally_usage
from lamina.conversations.lost_caches import (
    LostCache,
    PaidCall,
    compare_requests,
    explain_by_bytes,
    find_loss,
)
from lamina.conversations.record import CutNote, is_compaction
from lamina.diagnose import Difference
from lamina.dialects.cache_reports import NO_REPORT, CacheReport
from lamina.dialects.model_names import find_model
from lamina.dialects.usage import Usage
from lamina.errors import LaminaError
from lamina.gateway.calls import IncomingRequest, OutgoingRequest
from lamina.gateway.journal import Journal
from lamina.gateway.metrics import GatewayMetrics
from lamina.gateway.sizes import ChosenWindow
from lamina.gateway.uncut_sizes import measure_uncut
from lamina.telemetry import Telemetry


class MissReporter:
    """Logs answers, and compares each request that lost its cache with the one before it."""

    def __init__(self, metrics: GatewayMetrics, journal: Journal, telemetry: Telemetry) -> None:
        self._metrics = metrics
        self._telemetry = telemetry
        self._journal = journal
        self._task: asyncio.Task[None] | None = None

    def report(
        self,
        incoming: IncomingRequest,
        sent: OutgoingRequest,
        usage: Usage,
        *,
        sent_id: str,
        recalled: bool = False,
        report: CacheReport = NO_REPORT,
        window: ChosenWindow | None = None,
    ) -> dict[str, Any]:
        """Log what was reported beside what was expected, and begin to say why a cache was lost.

        `sent_id` is the id under which the request was logged when it was sent. `recalled`: the answer
        recalled something, and the same request of the client goes on. `report` is what the upstream says
        about its cache, and `window` the one that the request was fitted into. Returns what the account of
        the request needs besides its usage.
        """
        request = _describe_request(incoming, sent, sent_id, recalled=recalled)
        if not usage.input:
            self._journal.write("answered without usage", **request)
            return {}
        counter = incoming.upstream.settings.policy.find_counter(incoming.model)
        uncut = measure_uncut(sent, usage, counter)
        account = {
            "full": uncut.full,
            "unchanged": uncut.unchanged,
            "counted": uncut.counted,
            "new": uncut.new,
            "held_back": uncut.held_back,
            "gap": round(sent.gap, 1),
            "predicted": sent.predicted_read,
        }
        window_facts: dict[str, Any] = {}
        if window is not None:
            window_facts = {"window": window.tokens, "window_source": window.source}
        self._journal.write(
            "answered",
            **request,
            dialect=incoming.dialect.name,
            outcome=sent.outcome,
            left_out=sent.left_out,
            input=usage.input,
            cached=usage.cached,
            written=usage.written,
            written_long=usage.written_long,
            output=usage.output,
            tier=usage.tier,
            provider_cause=report.cause,
            **account,
            **window_facts,
        )
        loss = _find_loss(incoming, sent, usage)
        if loss is not None and not loss.is_cut:
            self._report_loss(incoming, sent, usage, loss)
        return account

    def _report_loss(
        self, incoming: IncomingRequest, sent: OutgoingRequest, usage: Usage, loss: LostCache
    ) -> None:
        """Log a lost cache, with what the bytes tell if no other comparison is under way."""
        if self._task is not None and not self._task.done():
            self._log_loss(incoming, sent, usage, loss)
            return
        self._task = asyncio.ensure_future(self._diagnose(incoming, sent, usage, loss))

    async def _diagnose(
        self, incoming: IncomingRequest, sent: OutgoingRequest, usage: Usage, loss: LostCache
    ) -> None:
        place = ""
        try:
            difference = await to_thread.run_sync(_compare, incoming, sent, usage)
        except LaminaError as error:
            self._journal.write("miss not diagnosed", error=type(error).__name__)
        else:
            loss = explain_by_bytes(loss, difference)
            place = difference.place
        self._log_loss(incoming, sent, usage, loss, place=place)

    def _log_loss(
        self,
        incoming: IncomingRequest,
        sent: OutgoingRequest,
        usage: Usage,
        loss: LostCache,
        *,
        place: str = "",
    ) -> None:
        self._metrics.add("lamina_misses_total", upstream=incoming.upstream.name, cause=loss.cause)
        self._telemetry.count_miss(
            incoming.dialect.name, incoming.model, cause=loss.cause, by=loss.by, lost=loss.tokens
        )
        self._journal.write(
            "miss",
            conversation=sent.conversation_name,
            cause=loss.cause,
            by=loss.by,
            why=loss.why,
            place=place,
            predicted=loss.tokens + usage.cached,
            cached=usage.cached,
            lost=loss.tokens,
            price=loss.dollars,
            advice=loss.advice,
        )


def _find_loss(incoming: IncomingRequest, sent: OutgoingRequest, usage: Usage) -> LostCache | None:
    """What the cache lost between the last request of the conversation and this one."""
    if sent.previous is None or not sent.previous_usage.input:
        return None
    cut = None
    if sent.new_cuts:
        cut = CutNote.of(max(sent.new_cuts, key=is_compaction))
    dialect = incoming.dialect.name
    at = time()
    last = PaidCall(
        tally=tally_usage(sent.previous_usage),
        model=find_model(sent.previous) or incoming.model,
        dialect=dialect,
        at=at - sent.gap,
    )
    call = PaidCall(
        tally=tally_usage(usage), model=incoming.model, dialect=dialect, at=at, tier=usage.tier, cut=cut
    )
    return find_loss([last], call)


def _describe_request(
    incoming: IncomingRequest, sent: OutgoingRequest, sent_id: str, *, recalled: bool
) -> dict[str, Any]:
    """What the log says about every answer, whether it reports its usage or not."""
    parent = ""
    if sent.conversation is not None:
        parent = sent.conversation.state.parent
    return {
        "id": sent_id,
        "conversation": sent.conversation_name,
        "parent": parent,
        "agent_of": incoming.identity.parent,
        "upstream": incoming.upstream.name,
        "model": incoming.model,
        "cut": sent.cut,
        "recalled": recalled,
    }


def _compare(incoming: IncomingRequest, sent: OutgoingRequest, usage: Usage) -> Difference:
    assert sent.previous is not None  # noqa: S101 - only then a request is compared
    return compare_requests(
        sent.previous,
        sent.request,
        rules=rules_for(incoming.model, dialect=incoming.dialect.name),
        gap=sent.gap,
        tokens=sent.previous_usage.input,
        dialect=incoming.dialect,
        blames_markers=not usage.cached and not usage.written,
    )
