from __future__ import annotations

import asyncio
import base64
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from lamina import Budget
from lamina.gateway.metrics import METRICS, METRICS_FOLDER_VARIABLE
from lamina.relay.events import AnsweredEvent, CallSpans
from lamina.relay.usage import UsageReader
from lamina.telemetry.otel import BoundedNames, OtelTelemetry
from tests.gateway.running import open_client, run_gateway, settings_for
from tests.gateway.test_recall import NAMES, QUESTION, Wire, long_history, recall_once, serve
from tests.gateway.upstream_stub import run_stub

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parent.parent.parent
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
HEADERS = {"traceparent": f"00-{TRACE}-{CALLER}-01", "content-type": "application/json"}


def conversation(turns: int) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Mend the parser."}]
    for turn in range(turns):
        messages += [
            {"role": "assistant", "content": f"Step {turn}: " + "a remark about it " * 60},
            {"role": "user", "content": f"Go on with {turn}."},
        ]
    return {"model": "claude-opus-4-6", "max_tokens": 100, "messages": messages}


async def ask(url: str, *bodies: dict[str, Any]) -> None:
    async with open_client() as client:
        for body in bodies:
            async with client.post(f"{url}/v1/messages", json=body, headers=HEADERS) as answer:
                assert answer.status == 200
                await answer.read()


def in_hex(encoded: str) -> str:
    return base64.b64decode(encoded).hex()


def attributes_of(span: dict[str, Any]) -> dict[str, Any]:
    return {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A collector in another process: its address, and the file with what it got."""
    pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.http", reason="lamina-context[otel] is not installed"
    )
    output = tmp_path / "collected"
    with output.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-m", "tests.servers.collector"], stdout=file, cwd=ROOT)
    while not output.read_bytes().endswith(b"\n"):
        assert process.poll() is None
        time.sleep(0.05)
    yield f"http://127.0.0.1:{int(output.read_text())}", output
    process.terminate()
    process.wait()


async def test_a_trace_goes_from_client_through_gateway_to_upstream(
    collector: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    address, output = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    async with run_stub() as stub:
        upstream = {"budget": Budget(window=9_000, reserve=500)}
        settings = settings_for(stub, tmp_path / "chats.db", telemetry="otlp", upstream=upstream)
        async with run_gateway(settings) as gateway:
            await ask(gateway.url, conversation(2), conversation(60))
        sent_headers = [each.header_map["traceparent"] for each in stub.seen]
    lines = [json.loads(line) for line in output.read_text().splitlines()[1:]]
    spans = [line["span"] for line in lines if "span" in line]
    assert {in_hex(span["traceId"]) for span in spans} == {TRACE}
    requests = [span for span in spans if span["name"] == "POST /v1/messages"]
    calls = [span for span in spans if span["name"] == "chat claude-opus-4-6"]
    fits = [span for span in spans if span["name"] == "lamina.fit"]
    assert [in_hex(span["parentSpanId"]) for span in requests] == [CALLER, CALLER]
    assert {span["parentSpanId"] for span in fits + calls} == {span["spanId"] for span in requests}
    assert sorted(sent_headers) == sorted(f"00-{TRACE}-{in_hex(span['spanId'])}-01" for span in calls)
    small_request, large_request = map(attributes_of, requests)
    assert "lamina.tokens" not in small_request  # it was passed on without a count, and 0 would be wrong
    assert int(large_request["lamina.tokens"]) > 0
    attributes = attributes_of(calls[0])
    assert attributes["gen_ai.provider.name"] == "anthropic"
    assert int(attributes["gen_ai.usage.input_tokens"]) > int(
        attributes["gen_ai.usage.cache_read.input_tokens"]
    )
    assert attributes["gen_ai.conversation.id"]
    (cut,) = [event for span in requests for event in span.get("events", ()) if event["name"] == "lamina.cut"]
    assert int(attributes_of(cut)["lamina.cut.before"]) > int(attributes_of(cut)["lamina.cut.after"]) > 0
    metrics = {line["metric"]["name"] for line in lines if "metric" in line}
    assert metrics >= {
        "gen_ai.client.token.usage", "gen_ai.client.operation.duration", "lamina.fit.duration", "lamina.cuts",
        "lamina.cache.reported",
    }  # fmt: skip
    assert "parser" not in output.read_text()


async def test_without_telemetry_the_clients_trace_passes_as_it_is() -> None:
    async with run_stub() as stub, run_gateway(settings_for(stub)) as gateway:
        await ask(gateway.url, conversation(1))
        assert stub.seen[0].header_map["traceparent"] == HEADERS["traceparent"]


def test_nothing_of_opentelemetry_is_imported_unless_it_is_turned_on() -> None:
    program = (
        "import sys, lamina.wrapped.client, lamina.sessions.session, lamina.gateway.app\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


NOT_COUNTED_HERE = {
    "lamina_failures_total", "lamina_misses_total", "lamina_overflows_total", "lamina_recalls_total",
    "lamina_retries_total",
}  # fmt: skip
"""Counters that appear if something goes wrong, if the model recalls something, or if they are asked for."""


def test_the_dashboard_asks_only_for_what_the_gateway_measures(tmp_path: Path) -> None:
    async def read_metrics() -> str:
        async with run_stub() as stub:
            upstream = {"budget": Budget(window=9_000, reserve=500)}
            async with run_gateway(settings_for(stub, tmp_path / "chats.db", upstream=upstream)) as gateway:
                await ask(gateway.url, conversation(2), conversation(60))
                async with open_client() as client:
                    while True:  # the usage of an answer is counted after the answer
                        async with client.get(f"{gateway.url}/metrics") as answer:
                            text = await answer.text()
                        if 'part="whole"' in text:
                            return text

    metrics = asyncio.run(read_metrics())
    dashboard = json.loads((ROOT / "deploy/grafana/lamina-gateway.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    names = {name for query in queries for name in re.findall(r"lamina_[a-z_]+", query)}
    assert {name.removesuffix("_bucket") for name in names} <= METRICS.keys()
    assert {name for name in METRICS if f"\n{name}" in f"\n{metrics}"} == METRICS.keys() - NOT_COUNTED_HERE
    for query in queries:
        (name,) = set(re.findall(r"lamina_[a-z_]+", query)[:1])
        if name in NOT_COUNTED_HERE:
            continue
        labels = set(re.findall(r'([a-z]+="[a-z]+")', query))
        grouped = re.search(r"by \(([a-z, ]+)\)", query)
        labels |= {f'{label}="' for label in (grouped[1].split(", ") if grouped else ())}
        lines = [line for line in metrics.splitlines() if line.startswith("lamina_")]
        assert all(any(label in line for line in lines) for label in labels), query


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What collects the spans of a gateway in this process."""
    tracing = pytest.importorskip("opentelemetry.sdk.trace", reason="lamina-context[otel] is not installed")
    processors = pytest.importorskip("opentelemetry.sdk.trace.export")
    export = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    memory = export.InMemorySpanExporter()
    provider = tracing.TracerProvider()
    provider.add_span_processor(processors.SimpleSpanProcessor(memory))
    monkeypatch.setattr(
        "lamina.gateway.app.open_telemetry", lambda _: OtelTelemetry(tracer_provider=provider)
    )
    return memory


@pytest.mark.parametrize("name", NAMES)
def test_a_call_that_recalls_has_a_span_of_its_own_and_every_token_is_in_one(name: str, spans: Any) -> None:
    wire = Wire(name, streams=True)
    with serve(wire, recall_once) as served:
        wire.ask(served.gateway.url, [*long_history(wire), wire.user(QUESTION)])
        address = urlsplit(served.api.url)
    answered = served.gateway.events("answered")
    finished = spans.get_finished_spans()
    calls = [span for span in finished if span.name.startswith("chat ")]
    (request,) = [span for span in finished if span.kind.name == "SERVER"]
    assert [span.parent.span_id for span in calls] == [request.context.span_id] * 2
    if name != "openai_chat":  # the SDK did not ask for usage
        reported = [(event["input"], event["output"]) for event in answered]
        noted = [
            (span.attributes["gen_ai.usage.input_tokens"], span.attributes["gen_ai.usage.output_tokens"])
            for span in calls
        ]
        assert noted == reported
        assert len(noted) == 2
    assert [event.name for event in request.events].count("lamina.recall") == 1
    for span in calls:
        assert span.attributes["server.address"] == address.hostname
        assert span.attributes["server.port"] == address.port
        assert len(span.attributes["gen_ai.response.finish_reasons"]) == 1
        assert span.attributes["gen_ai.response.model"]
        assert name == "ollama" or span.attributes["gen_ai.response.id"]
    assert request.attributes["gen_ai.conversation.id"]


def test_models_that_a_client_makes_up_are_no_labels() -> None:
    names = BoundedNames(limit=2)
    assert [names.bound(name) for name in ("a", "b", "c", "a", "x" * 1_000)] == [
        "a",
        "b",
        "other",
        "a",
        "other",
    ]


def test_a_scrape_of_any_worker_has_the_counters_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counters of two processes, one of which has ended."""
    monkeypatch.setenv(METRICS_FOLDER_VARIABLE, str(tmp_path))
    program = (
        "from lamina.gateway.metrics import GatewayMetrics\n"
        "metrics = GatewayMetrics()\n"
        "metrics.add('lamina_cuts_total', 3, upstream='claude')\n"
        "metrics.observe('lamina_request_seconds', 0.004, part='fit')\n"
        "print(metrics.write())\n"
    )
    for count in (1, 2):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert f'lamina_cuts_total{{upstream="claude"}} {3.0 * count}' in done.stdout
        assert f'lamina_request_seconds_count{{part="fit"}} {1.0 * count}' in done.stdout


@pytest.mark.parametrize("recalled", [False, True])
def test_a_span_counts_an_answer_to_the_gateway_as_a_recall(*, recalled: bool) -> None:
    recalls: list[int] = []
    trace: Any = SimpleNamespace(
        record_answer=lambda **_: None,
        record_recalls=recalls.append,
        record_usage=lambda **_: None,
        end_call=lambda **_: None,
    )
    sent: Any = SimpleNamespace(id="1")
    reply: Any = SimpleNamespace(status=200)
    reader = UsageReader("application/json", "")
    CallSpans(trace).answered(AnsweredEvent(sent, reply, reader, recalled=recalled))
    assert recalls == [1] * recalled
