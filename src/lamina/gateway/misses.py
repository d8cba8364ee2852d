"""Compares the cache reads that were predicted with those that an upstream reports, and names why one missed.

If a request continues the last one, its cache should give back what the last one held. If the upstream
reports far fewer tokens, `lamina.diagnose` compares the two requests as they were sent, and the gateway logs
the cause. The comparison runs in a thread after the answer, one at a time, and delays nobody. If the client
has asked the upstream why its cache missed, the log has the upstream's word, too.
"""

from __future__ import annotations

import asyncio
from typing import Any

from anyio import to_thread

from lamina.caches import rules_for
from lamina.diagnose import Difference, diff
from lamina.dialects.cache_reports import NO_REPORT, CacheReport
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


class MissReporter:
    """Compares each request with the one before it, where its cache gave back too little."""

    def __init__(self, metrics: GatewayMetrics, journal: Journal) -> None:
        self._metrics = metrics
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
            tier=usage.tier,
            provider_cause=report.cause,
            **account,
            **window_facts,
        )
        # One diagnosis at a time is enough to name a cause.
        is_busy = self._task is not None and not self._task.done()
        if sent.previous is not None and _is_missed(sent, usage) and not is_busy:
            self._task = asyncio.ensure_future(self._diagnose(incoming, sent, usage))
        return account

    async def _diagnose(self, incoming: IncomingRequest, sent: OutgoingRequest, usage: Usage) -> None:
        try:
            difference = await to_thread.run_sync(_compare, incoming, sent)
        except LaminaError as error:
            self._journal.write("miss not diagnosed", error=type(error).__name__)
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


def _compare(incoming: IncomingRequest, sent: OutgoingRequest) -> Difference:
    assert sent.previous is not None  # noqa: S101 - only then a request is compared
    return diff(
        sent.previous,
        sent.request,
        rules=rules_for(incoming.model, dialect=incoming.dialect.name),
        gap=sent.gap,
        tokens=sent.previous_reported,
        dialect=incoming.dialect,
    )
