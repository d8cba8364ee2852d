"""A collector for tests, as a process: takes OTLP over HTTP, and prints each span and metric as JSON.

    python -m tests.servers.collector

Its first line is its port. It reads the messages with the official package `opentelemetry-proto`.
"""

from __future__ import annotations

import importlib
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

to_dict: Any = importlib.import_module("google.protobuf.json_format").MessageToDict
_PACKAGE = "opentelemetry.proto.collector"
metrics_service: Any = importlib.import_module(f"{_PACKAGE}.metrics.v1.metrics_service_pb2")
trace_service: Any = importlib.import_module(f"{_PACKAGE}.trace.v1.trace_service_pb2")


class Collector(BaseHTTPRequestHandler):
    """Answers each export with success."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/v1/traces":
            self._print_spans(body)
        else:
            self._print_metrics(body)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Keep standard error for errors."""

    def _print_spans(self, body: bytes) -> None:
        message = to_dict(trace_service.ExportTraceServiceRequest.FromString(body))
        for resource in message["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    print(json.dumps({"span": span, "resource": resource["resource"]}), flush=True)

    def _print_metrics(self, body: bytes) -> None:
        message = to_dict(metrics_service.ExportMetricsServiceRequest.FromString(body))
        for resource in message.get("resourceMetrics", ()):
            for scope in resource["scopeMetrics"]:
                for metric in scope["metrics"]:
                    print(json.dumps({"metric": metric}), flush=True)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    print(server.server_port, flush=True)
    server.serve_forever()
