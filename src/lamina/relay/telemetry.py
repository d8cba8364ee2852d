"""The gateway's traces and metrics over OTLP, if its settings say `telemetry = "otlp"`.

Where to send them, and how, is said by OpenTelemetry's own variables: OTEL_EXPORTER_OTLP_ENDPOINT,
OTEL_EXPORTER_OTLP_HEADERS, OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER and others.
"""

from __future__ import annotations

from lamina.dialects.usage import Usage
from lamina.errors import BadInput
from lamina.relay.calls import IncomingRequest, OutgoingRequest
from lamina.relay.config import GatewaySettings
from lamina.relay.usage import AnswerFacts
from lamina.telemetry import CallTrace, Telemetry


def open_telemetry(settings: GatewaySettings) -> Telemetry:
    """The telemetry of the settings. Without it nothing is imported."""
    if settings.telemetry == "off":
        return Telemetry()
    from lamina.telemetry.otel import open_otlp  # noqa: PLC0415 - an extra

    try:
        return open_otlp()
    except ImportError as error:
        raise BadInput(str(error), place="telemetry", hint="pip install 'lamina-context[otel]'") from None


def record_prepared(trace: CallTrace, incoming: IncomingRequest, outgoing: OutgoingRequest) -> None:
    """What was done to a request before it is sent."""
    if not trace.is_on:
        return
    trace.describe(
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
    trace.record_fit(tokens=tokens, outcome=outgoing.outcome, cut=cut)


def record_answered(trace: CallTrace, usage: Usage, facts: AnswerFacts, *, recalled: bool) -> None:
    """What the upstream reported. `recalled`: the answer was for the gateway, and the request goes on."""
    trace.record_answer(answer_id=facts.id, model=facts.model, finish_reasons=facts.finish_reasons)
    if recalled:
        trace.record_recalls(1)
    trace.record_usage(
        sent=usage.input,
        cached=usage.cached,
        written=usage.written,
        output=usage.output,
    )
