"""The two events of a request: it has left, and it was answered. Whatever looks at calls listens to them.

    sent ──▶ record, spans          answered ──▶ log, record, spans, metrics, and the door that asked

A call has one `SentEvent` each time that it leaves: once more after a refusal that could be mended, and after
each recall of the model. Each has one `AnsweredEvent`, unless no answer came.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, NamedTuple

from lamina.dialects.usage import NO_REPORT, CacheReport, Usage
from lamina.relay.calls import IncomingRequest, OutgoingRequest
from lamina.relay.observers import CallMetrics
from lamina.relay.sizes import ChosenWindow
from lamina.relay.upstream_port import ProviderReply
from lamina.relay.usage import AnswerFacts, UsageReader
from lamina.telemetry import CallTrace


class SentEvent(NamedTuple):
    """A request leaves now. `began` is when the client's came, and `window` the one that it was fitted into.

    A count has no `id`: it costs nothing, and is not recorded.
    """

    incoming: IncomingRequest
    outgoing: OutgoingRequest
    id: str
    began: float
    window: ChosenWindow | None = None


class AnsweredEvent(NamedTuple):
    """An answer has ended; `error` says why too early. `reader` has read it, or `body` is that of an error.

    `recalled`: it was for lamina, and the request goes on. `account` is how long the request would have been
    with nothing cut, and what else its price without lamina depends on (`lamina.relay.misses`).
    """

    sent: SentEvent
    answer: ProviderReply
    reader: UsageReader | None = None
    body: bytes | None = None
    account: Mapping[str, Any] = {}
    recalled: bool = False
    error: str = ""

    @property
    def is_counted(self) -> bool:
        """Whether a model has answered, and what it reports is paid for."""
        return self.reader is not None and self.answer.status < 300 and bool(self.sent.id)

    @property
    def usage(self) -> Usage:
        return self.reader.usage if self.reader is not None else Usage()

    @property
    def report(self) -> CacheReport:
        """What the upstream says about its cache."""
        return self.reader.report if self.reader is not None else NO_REPORT

    @property
    def facts(self) -> AnswerFacts:
        return self.reader.facts if self.reader is not None else AnswerFacts()


AnswerListener = Callable[[AnsweredEvent], None]


def count_answer(metrics: CallMetrics, event: AnsweredEvent) -> None:
    """Count an answer, and the tokens that it reports."""
    upstream = event.sent.incoming.upstream.name
    metrics.add("lamina_answers_total", upstream=upstream, status=f"{event.answer.status // 100}xx")
    if not event.is_counted:
        return
    for kind in ("input", "cached", "written", "output"):
        amount = getattr(event.usage, kind)
        if amount:
            metrics.add("lamina_tokens_total", amount, kind=kind)
    if event.recalled:
        metrics.add("lamina_recalls_total", upstream=upstream)
    else:
        metrics.observe("lamina_request_seconds", monotonic() - event.sent.began, part="whole")


class CallSpans:
    """Writes the spans of one call."""

    def __init__(self, trace: CallTrace) -> None:
        self._trace = trace

    def sent(self, event: SentEvent) -> None:
        """Record what was done to a request before it is sent."""
        incoming, outgoing = event.incoming, event.outgoing
        if not self._trace.is_on or outgoing.why:  # a request that is sent once more goes on in its spans
            return
        self._trace.describe(
            dialect=incoming.dialect.name,
            model=incoming.model,
            conversation=outgoing.conversation_name,
            upstream=incoming.upstream.name,
            server=incoming.upstream.settings.url,
        )
        cut = None
        tokens = None
        if outgoing.fitted is not None:
            tokens = outgoing.fitted.envelope.tokens
            if outgoing.cut:
                cut = outgoing.fitted.envelope.cut
        self._trace.record_fit(tokens=tokens, outcome=outgoing.outcome, cut=cut)

    def answered(self, event: AnsweredEvent) -> None:
        """Record what the upstream reported, and end the span of the call."""
        error = event.error
        if event.is_counted:
            usage = event.usage
            facts = event.facts
            self._trace.record_answer(
                answer_id=facts.id, model=facts.model, finish_reasons=facts.finish_reasons
            )
            if event.recalled:
                self._trace.record_recalls(1)
            self._trace.record_usage(
                sent=usage.input, cached=usage.cached, written=usage.written, output=usage.output
            )
        elif event.answer.status >= 400:
            error = str(event.answer.status)
        self._trace.end_call(error=error)
