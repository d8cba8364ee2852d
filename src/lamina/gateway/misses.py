"""Compares the cache reads that were predicted with those that an upstream reports, and names why one missed.

If a request continues the last one, its cache should give back what the last one held. If the upstream
reports far fewer tokens, `lamina.diagnose` compares the two requests as they were sent, and the gateway logs
the cause. If the upstream itself says why its cache missed, the log has its word beside lamina's cause, and
whether the two agree. The comparison runs in a thread after the answer, one at a time, and delays nobody.
"""

from __future__ import annotations

import asyncio
from typing import Any

from anyio import to_thread

from lamina.caches import rules_for
from lamina.diagnose import Agreement, Difference, check_report
from lamina.dialects.cache_reports import HIT, NO_REPORT, CacheReport
from lamina.dialects.usage import Usage
from lamina.errors import LaminaError
from lamina.gateway.calls import IncomingRequest, OutgoingRequest
from lamina.gateway.journal import Journal
from lamina.gateway.metrics import GatewayMetrics
from lamina.gateway.sizes import ChosenWindow
from lamina.gateway.uncut_sizes import measure_uncut

SMALLEST = 2048
"""Tokens of the last request below which a miss costs nothing worth a line."""

EXPECTED_SHARE = 0.5
"""A read of less than this share of the last request is a miss."""

WAITING = 16
"""Comparisons with a provider's word that may wait at a time. Each holds two requests in memory."""


class MissReporter:
    """Compares each request with the one before it, where its cache gave back too little."""

    def __init__(self, metrics: GatewayMetrics, journal: Journal) -> None:
        self._metrics = metrics
        self._journal = journal
        self._one_at_a_time = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

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
        """Log the cache reads that were expected beside those that were reported, and begin a diagnosis.

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
            provider_cause=report.cause,
            **account,
            **window_facts,
        )
        if sent.previous is not None:
            self._compare_later(incoming, sent, usage, report, sent_id=sent_id)
        return account

    def _compare_later(
        self,
        incoming: IncomingRequest,
        sent: OutgoingRequest,
        usage: Usage,
        report: CacheReport,
        *,
        sent_id: str,
    ) -> None:
        """Begin a diagnosis, if the cache gave back too little or the upstream says why it missed."""
        is_missed = _is_missed(sent, usage)
        if report.cause == HIT and not is_missed:
            agreement = Agreement(verdict="agrees", provider=HIT, own="nothing")
            self._log_agreement(sent, report, agreement, sent_id=sent_id)
            return
        # One miss at a time is enough to name a cause. A provider's word is rare, so it may wait in line.
        longest_line = 1
        if report.cause:
            longest_line = WAITING
        if len(self._tasks) >= longest_line:
            return
        if is_missed or report.cause:
            diagnosis = self._diagnose(incoming, sent, usage, report, sent_id=sent_id, is_missed=is_missed)
            task = asyncio.ensure_future(diagnosis)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _diagnose(
        self,
        incoming: IncomingRequest,
        sent: OutgoingRequest,
        usage: Usage,
        report: CacheReport,
        *,
        sent_id: str,
        is_missed: bool,
    ) -> None:
        try:
            async with self._one_at_a_time:
                difference, agreement = await to_thread.run_sync(_compare, incoming, sent, report)
        except LaminaError as error:
            self._journal.write("miss not diagnosed", error=type(error).__name__)
            return
        if report.cause:
            self._log_agreement(sent, report, agreement, sent_id=sent_id, difference=difference)
        if not is_missed:
            return
        self._metrics.add("lamina_misses_total", upstream=incoming.upstream.name, cause=difference.cause)
        self._journal.write(
            "miss",
            conversation=sent.conversation_name,
            cause=difference.cause,
            place=difference.place,
            predicted=difference.kept,
            cached=usage.cached,
            lost=difference.lost,
            price=difference.price,
            advice=difference.advice,
        )

    def _log_agreement(
        self,
        sent: OutgoingRequest,
        report: CacheReport,
        agreement: Agreement,
        *,
        sent_id: str,
        difference: Difference | None = None,
    ) -> None:
        """Log a provider's word beside lamina's. A finding names both requests and the byte that differs.

        The log has no content. With `keep = "all"` the record has both bodies under these ids.
        """
        self._metrics.add("lamina_cache_reports_total", verdict=agreement.verdict)
        facts: dict[str, Any] = {}
        if difference is not None:
            facts = {"cause": difference.cause, "place": difference.place}
        if agreement.verdict == "differs" and difference is not None:
            facts |= {"byte": difference.byte, "offset": difference.offset, "previous": sent.previous_id}
        self._journal.write(
            "cache report",
            id=sent_id,
            conversation=sent.conversation_name,
            provider=report.cause,
            missed=report.missed,
            verdict=agreement.verdict,
            own=agreement.own,
            why=agreement.why,
            **facts,
        )


def _is_missed(sent: OutgoingRequest, usage: Usage) -> bool:
    """Whether the cache gave back far less than the last request held. After a cut that is no news."""
    if sent.cut or sent.previous_reported < SMALLEST:
        return False
    return usage.cached < EXPECTED_SHARE * sent.previous_reported


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


def _compare(
    incoming: IncomingRequest, sent: OutgoingRequest, report: CacheReport
) -> tuple[Difference, Agreement]:
    assert sent.previous is not None  # noqa: S101 - only then a request is compared
    return check_report(
        report,
        sent.previous,
        sent.request,
        rules=rules_for(incoming.model, dialect=incoming.dialect.name),
        gap=sent.gap,
        tokens=sent.previous_reported,
        dialect=incoming.dialect,
    )
