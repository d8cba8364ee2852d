"""A server on the loopback address that answers each POST with JSON, for tests with the official SDKs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.servers.serving import serve_http

Answer = Callable[[str, dict[str, Any], Mapping[str, str]], tuple[int, Any]]
"""Gives the status and the body for a path, a request and its headers."""


@contextmanager
def serve_json(answer: Answer) -> Iterator[str]:
    """The address of a server for as long as the context lasts."""

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            request = json.loads(self.rfile.read(size))
            status, body = answer(self.path.partition("?")[0], request, dict(self.headers.items()))
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with serve_http(Answering) as url:
        yield url
