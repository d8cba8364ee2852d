from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from lamina import telemetry
from lamina.core.values import Budget
from lamina.wrapped import wrap
from tests.plain_client import plain_client

USAGE = {"prompt_tokens": 90, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 40}}


def chat_client() -> Any:
    """A client of Chat Completions; a message of one word makes it fail."""

    def answer(request: Any) -> Any:
        if request["messages"][-1]["content"] == "fail":
            raise httpx2.ConnectError("no way")
        message = {"role": "assistant", "content": "Done."}
        return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": USAGE}

    return plain_client(answer, "chat.completions")


@pytest.fixture
def exporter() -> Iterator[Any]:
    """What collects the spans, in memory, while telemetry is on."""
    tracing = pytest.importorskip("opentelemetry.sdk.trace", reason="lamina-context[otel] is not installed")
    export = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    processors = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = export.InMemorySpanExporter()
    provider = tracing.TracerProvider()
    provider.add_span_processor(processors.SimpleSpanProcessor(memory))
    telemetry.turn_on(tracer_provider=provider)
    yield memory
    telemetry.turn_off()


def test_a_wrapped_client_has_a_span_for_each_call_with_its_build_and_its_usage(exporter: Any) -> None:
    client = wrap(chat_client(), budget=Budget(window=4_000, reserve=500))
    messages = [{"role": "user", "content": "Begin."}]
    for step in range(40):
        messages += [
            {"role": "assistant", "content": f"{step} " + "remark " * 80},
            {"role": "user", "content": "Go on."},
        ]
    client.chat.completions.create(model="gpt-5.4", messages=messages)
    fit, call = exporter.get_finished_spans()
    assert (fit.name, call.name) == ("lamina.fit", "chat gpt-5.4")
    assert fit.parent.span_id == call.context.span_id
    assert call.attributes["gen_ai.provider.name"] == "openai"
    assert call.attributes["gen_ai.usage.input_tokens"] == 90
    assert call.attributes["gen_ai.usage.cache_read.input_tokens"] == 40
    assert [event.name for event in call.events] == ["lamina.cut"]


def test_a_call_that_fails_ends_its_span_with_the_error(exporter: Any) -> None:
    client = wrap(chat_client(), budget=Budget(window=4_000, reserve=500))
    with pytest.raises(httpx2.ConnectError):
        client.chat.completions.create(model="gpt-5.4", messages=[{"role": "user", "content": "fail"}])
    call = exporter.get_finished_spans()[-1]
    assert call.attributes["error.type"] == "ConnectError"
    assert not call.status.is_ok


def test_conversations_without_a_name_have_an_id_of_their_own(exporter: Any) -> None:
    client = wrap(chat_client(), budget=Budget(window=4_000, reserve=500))
    other_client = wrap(chat_client(), budget=Budget(window=4_000, reserve=500))
    messages = [{"role": "user", "content": "Begin."}]
    more_messages = [
        *messages,
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "And?"},
    ]
    client.chat.completions.create(model="gpt-5.4", messages=messages)
    client.chat.completions.create(model="gpt-5.4", messages=more_messages)
    other = [{"role": "user", "content": "Begin otherwise."}]
    other_client.chat.completions.create(model="gpt-5.4", messages=other)
    spans = [span for span in exporter.get_finished_spans() if span.name == "chat gpt-5.4"]
    first, second, third = [span.attributes["gen_ai.conversation.id"] for span in spans]
    assert first == second != third


def test_histograms_have_the_buckets_of_the_conventions() -> None:
    """In the default buckets of the SDK every call of less than five seconds falls into one."""
    measuring = pytest.importorskip(
        "opentelemetry.sdk.metrics", reason="lamina-context[otel] is not installed"
    )
    reading = pytest.importorskip("opentelemetry.sdk.metrics.export")
    reader = reading.InMemoryMetricReader()
    telemetry.turn_on(meter_provider=measuring.MeterProvider(metric_readers=[reader]))
    try:
        wrap(chat_client()).chat.completions.create(
            model="gpt-5.4", messages=[{"role": "user", "content": "Begin."}]
        )
    finally:
        telemetry.turn_off()
    boundaries: dict[str, tuple[float, ...]] = {}
    for scope in reader.get_metrics_data().resource_metrics[0].scope_metrics:
        for metric in scope.metrics:
            boundaries[metric.name] = tuple(getattr(metric.data.data_points[0], "explicit_bounds", ()))
    seconds = boundaries["gen_ai.client.operation.duration"]
    assert (seconds[:3], seconds[-1]) == ((0.01, 0.02, 0.04), 81.92)
    tokens = boundaries["gen_ai.client.token.usage"]
    assert (tokens[:3], tokens[-1]) == ((1, 4, 16), 67_108_864)
    assert boundaries["lamina.fit.duration"][0] == 0.0001


def test_a_request_that_nobody_counted_has_no_tokens(exporter: Any) -> None:
    trace = telemetry.active().start_build("gpt-5.4")
    trace.record_fit(tokens=None, outcome="unchanged")
    trace.end()
    (span,) = exporter.get_finished_spans()
    assert span.attributes["lamina.outcome"] == "unchanged"
    assert "lamina.tokens" not in span.attributes
