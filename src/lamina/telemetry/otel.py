"""Traces and metrics by OpenTelemetry: spans and instruments with the names of the GenAI conventions.

`opentelemetry-semantic-conventions` 0.66 has these names as incubating, and says that they go on in a
repository of their own, so they are written out here.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from lamina.core.values import Cut
from lamina.errors import BadInput
from lamina.telemetry.port import CallTrace, RawHeaders, Telemetry

SCOPE = "lamina"

PROVIDERS = {
    "anthropic": "anthropic",
    "openai_chat": "openai",
    "openai_responses": "openai",
    "gemini": "gcp.gemini",
    "ollama": "ollama",
    "bedrock_converse": "aws.bedrock",
}
"""The provider's name in the conventions, by dialect: that of the API, whoever serves it."""

TRACE_HEADERS = ("traceparent", "tracestate")

DEFAULT_PORTS = {"http": 80, "https": 443}

MOST_NAMES = 100
"""Names of models that metrics tell apart. A client that makes them up must not fill a database."""

CALL_BUCKETS = [0.01 * 2**power for power in range(14)]
TOKEN_BUCKETS = [4**power for power in range(14)]
"""The boundaries that the GenAI conventions name: 10 ms to 81.92 s, and 1 token to 67,108,864."""

FIT_BUCKETS = [0.0001 * 2**power for power in range(14)]
"""A build takes a hundredth of a call: 0.1 ms to 0.8192 s."""

LONGEST_NAME = 100
OTHER = "other"
"""The label of models beyond those."""


def open_otlp() -> OtelTelemetry:
    """Telemetry that is sent over OTLP, as OpenTelemetry's own variables say. Raises ImportError."""
    resources: Any = importlib.import_module("opentelemetry.sdk.resources")
    tracing: Any = importlib.import_module("opentelemetry.sdk.trace")
    batching: Any = importlib.import_module("opentelemetry.sdk.trace.export")
    measuring: Any = importlib.import_module("opentelemetry.sdk.metrics")
    reading: Any = importlib.import_module("opentelemetry.sdk.metrics.export")
    spans: Any = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    metrics: Any = importlib.import_module("opentelemetry.exporter.otlp.proto.http.metric_exporter")
    names = {"service.name": os.environ.get("OTEL_SERVICE_NAME", "lamina-gateway")}
    resource = resources.Resource.create(names)
    tracer_provider = tracing.TracerProvider(resource=resource)
    tracer_provider.add_span_processor(batching.BatchSpanProcessor(spans.OTLPSpanExporter()))
    reader = reading.PeriodicExportingMetricReader(metrics.OTLPMetricExporter())
    meter_provider = measuring.MeterProvider(resource=resource, metric_readers=[reader])
    return OtelTelemetry(tracer_provider=tracer_provider, meter_provider=meter_provider)


class OtelTelemetry(Telemetry):
    """Starts traces with a tracer, and adds to instruments of a meter."""

    is_on = True

    def __init__(self, *, tracer_provider: Any = None, meter_provider: Any = None) -> None:
        try:
            self.trace: Any = importlib.import_module("opentelemetry.trace")
            metrics: Any = importlib.import_module("opentelemetry.metrics")
            propagation: Any = importlib.import_module("opentelemetry.trace.propagation.tracecontext")
        except ImportError:
            hint = "pip install 'lamina-context[otel]'"
            raise BadInput("the package opentelemetry-api is missing", place="telemetry", hint=hint) from None
        self.model_names = BoundedNames()
        self.propagator = propagation.TraceContextTextMapPropagator()
        self._providers = [each for each in (tracer_provider, meter_provider) if each is not None]
        self.tracer = self.trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self.instruments = Instruments(metrics.get_meter(SCOPE, meter_provider=meter_provider))

    def start_request(self, method: str, path: str, headers: RawHeaders) -> CallTrace:
        carrier: dict[str, str] = {}
        for raw_name, value in headers:
            name = raw_name.lower().decode("latin-1")
            if name in TRACE_HEADERS:
                carrier[name] = value.decode("latin-1")
        parent = self.propagator.extract(carrier)
        attributes = {"http.request.method": method, "url.path": path}
        span = self.tracer.start_span(
            f"{method} {path}", context=parent, kind=self.trace.SpanKind.SERVER, attributes=attributes
        )
        return OtelCallTrace(self, span, is_request=True)

    def start_call(self, dialect: str, model: str) -> CallTrace:
        span = self.tracer.start_span(f"chat {model}", kind=self.trace.SpanKind.CLIENT)
        call = OtelCallTrace(self, span, is_request=False)
        call.describe(dialect=dialect, model=model)
        return call

    def start_build(self, model: str) -> CallTrace:
        call = OtelCallTrace(self, self.tracer.start_span("lamina.fit"), is_request=True)
        call.describe(model=model)
        return call

    def count_recalls(self, count: int) -> None:
        self.instruments.recalls.add(count)

    def count_usage(self, dialect: str, model: str, *, sent: int, cached: int, output: int) -> None:
        labels = self._make_labels(dialect, model)
        self.instruments.token_usage.record(sent, labels | {"gen_ai.token.type": "input"})
        self.instruments.token_usage.record(output, labels | {"gen_ai.token.type": "output"})
        self.instruments.reported.add(cached, labels)

    def count_miss(self, dialect: str, model: str, *, cause: str, by: str, lost: int) -> None:
        labels = self._make_labels(dialect, model) | {"lamina.cause": cause, "lamina.by": by}
        self.instruments.misses.add(1, labels)
        self.instruments.lost.add(lost, labels)

    def _make_labels(self, dialect: str, model: str) -> dict[str, str]:
        return {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": PROVIDERS.get(dialect, dialect),
            "gen_ai.request.model": self.model_names.bound(model),
        }

    def close(self) -> None:
        for provider in self._providers:
            provider.shutdown()


class Instruments:
    """What is counted and measured."""

    def __init__(self, meter: Any) -> None:
        self.token_usage = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Tokens that a call took, by type.",
            explicit_bucket_boundaries_advisory=TOKEN_BUCKETS,
        )
        self.duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="How long a call of a model took.",
            explicit_bucket_boundaries_advisory=CALL_BUCKETS,
        )
        self.fit_duration = meter.create_histogram(
            "lamina.fit.duration",
            unit="s",
            description="How long a build took.",
            explicit_bucket_boundaries_advisory=FIT_BUCKETS,
        )
        self.cuts = meter.create_counter("lamina.cuts", unit="{cut}", description="Cuts.")
        self.recalls = meter.create_counter("lamina.recalls", unit="{recall}", description="Recalls.")
        self.misses = meter.create_counter(
            "lamina.cache.misses", unit="{miss}", description="Requests that lost their cache, by cause."
        )
        self.lost = meter.create_counter(
            "lamina.cache.lost", unit="{token}", description="Cached input that was paid again, by cause."
        )
        self.reported = meter.create_counter(
            "lamina.cache.reported", unit="{token}", description="Input that the provider read from a cache."
        )


class OtelCallTrace(CallTrace):
    """State: the spans of one call that have not ended, and the attributes of its metrics."""

    is_on = True

    def __init__(self, telemetry: OtelTelemetry, span: Any, *, is_request: bool) -> None:
        self._telemetry = telemetry
        self._is_request = is_request
        self._root = span
        self._call_span: Any = None
        if not is_request:  # a wrapped client has one span for the call and all that belongs to it
            self._call_span = span
        self._context = telemetry.trace.set_span_in_context(span)
        self._labels: dict[str, Any] = {"gen_ai.operation.name": "chat"}
        self._attributes: dict[str, Any] = {}
        self._call_began = monotonic()
        self._span_usage: dict[str, int] = {}
        self._has_ended = False

    @contextmanager
    def fitting(self) -> Iterator[None]:
        began = monotonic()
        # The caller may raise: `start_as_current_span` records that in the span.
        with self._telemetry.tracer.start_as_current_span("lamina.fit", context=self._context):
            yield
        self._telemetry.instruments.fit_duration.record(monotonic() - began, self._labels)

    def describe(
        self, *, dialect: str = "", model: str = "", conversation: str = "", server: str = "", **more: Any
    ) -> None:
        attributes = {f"lamina.{name}": value for name, value in more.items()}
        if dialect:
            self._labels["gen_ai.provider.name"] = PROVIDERS.get(dialect, dialect)
            attributes["lamina.dialect"] = dialect
        if model:
            self._labels["gen_ai.request.model"] = self._telemetry.model_names.bound(model)
            attributes["gen_ai.request.model"] = model
        if conversation:
            attributes["gen_ai.conversation.id"] = conversation
        if server:
            attributes |= _read_address(server)
        self._attributes |= attributes
        self._root.set_attributes(self._labels | self._attributes)

    def record_fit(self, *, tokens: int | None, outcome: str = "", cut: Cut | None = None) -> None:
        attributes: dict[str, Any] = {"lamina.cut": cut is not None}
        if tokens is not None:
            attributes["lamina.tokens"] = tokens
        if outcome:
            attributes["lamina.outcome"] = outcome
        self._attributes |= attributes
        self._root.set_attributes(attributes)
        if cut is None:
            return
        event = {
            "lamina.cut.reason": cut.reason,
            "lamina.cut.before": cut.before,
            "lamina.cut.after": cut.after,
            "lamina.cut.lowered": cut.lowered,
        }
        self._root.add_event("lamina.cut", event)
        self._telemetry.instruments.cuts.add(1, self._labels)

    def record_recalls(self, count: int) -> None:
        self._root.add_event("lamina.recall", {"lamina.recalls": count})
        self._telemetry.instruments.recalls.add(count, self._labels)

    def start_sending(self) -> Mapping[str, str]:
        if self._call_span is None:
            model = self._attributes.get("gen_ai.request.model", "")
            self._call_began = monotonic()
            self._span_usage = {}
            self._call_span = self._telemetry.tracer.start_span(
                f"chat {model}".rstrip(" "),
                context=self._context,
                kind=self._telemetry.trace.SpanKind.CLIENT,
                attributes=self._labels | self._attributes,
            )
        carrier: dict[str, str] = {}
        context = self._telemetry.trace.set_span_in_context(self._call_span)
        self._telemetry.propagator.inject(carrier, context=context)
        return carrier

    def record_usage(self, *, sent: int = 0, cached: int = 0, written: int = 0, output: int = 0) -> None:
        if not sent:
            return
        reported = {
            "gen_ai.usage.input_tokens": sent,
            "gen_ai.usage.output_tokens": output,
            "gen_ai.usage.cache_read.input_tokens": cached,
            "gen_ai.usage.cache_creation.input_tokens": written,
        }
        for name, amount in reported.items():
            # A wrapped client has one span for a call and the recalls in it, so they are summed.
            self._span_usage[name] = self._span_usage.get(name, 0) + amount
        (self._call_span or self._root).set_attributes(self._span_usage)
        instruments = self._telemetry.instruments
        instruments.token_usage.record(sent, self._labels | {"gen_ai.token.type": "input"})
        instruments.token_usage.record(output, self._labels | {"gen_ai.token.type": "output"})
        instruments.reported.add(cached, self._labels)

    def record_answer(
        self, *, answer_id: str = "", model: str = "", finish_reasons: Sequence[str] = ()
    ) -> None:
        attributes: dict[str, Any] = {}
        if answer_id:
            attributes["gen_ai.response.id"] = answer_id
        if model:
            attributes["gen_ai.response.model"] = model
        if finish_reasons:
            attributes["gen_ai.response.finish_reasons"] = list(finish_reasons)
        (self._call_span or self._root).set_attributes(attributes)

    def record_status(self, status: int) -> None:
        self._root.set_attribute("http.response.status_code", status)
        if status >= 500:
            self._root.set_status(self._telemetry.trace.StatusCode.ERROR)
            self._root.set_attribute("error.type", str(status))

    def end_call(self, error: str = "") -> None:
        span = self._call_span
        if span is None:
            return
        self._call_span = None
        labels = dict(self._labels)
        if error:
            labels["error.type"] = error
            self._mark_failed(span, error)
        self._telemetry.instruments.duration.record(monotonic() - self._call_began, labels)
        span.end()

    def end(self, error: str = "") -> None:
        if self._has_ended:
            return
        self._has_ended = True
        if error and self._call_span is None:  # else the span of the call has the error
            self._mark_failed(self._root, error)
        self.end_call(error)
        if self._is_request:
            self._root.end()

    def _mark_failed(self, span: Any, error: str) -> None:
        span.set_status(self._telemetry.trace.StatusCode.ERROR)
        span.set_attribute("error.type", error)


class BoundedNames:
    """Names for the labels of metrics. Clients choose the names of models, and each one is a new series."""

    def __init__(self, limit: int = MOST_NAMES) -> None:
        self._limit = limit
        self._names: set[str] = set()

    def bound(self, name: str) -> str:
        """The name, or `OTHER` if there are too many already."""
        if name in self._names:
            return name
        if len(self._names) >= self._limit or len(name) > LONGEST_NAME:
            return OTHER
        self._names.add(name)
        return name


def _read_address(url: str) -> dict[str, Any]:
    """The attributes of a server: `https://api.example` is `api.example`, port 443."""
    parts = urlsplit(url)
    return {
        "server.address": parts.hostname or "",
        "server.port": parts.port or DEFAULT_PORTS.get(parts.scheme, 0),
    }
