"""A server in a thread, for as long as a test needs it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

PATIENCE = 10.0
"""Seconds for a handler to notice that its connection was ended."""


@contextmanager
def serve_http(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve requests with this handler, at the address that it gives.

    It is shut down however the test ends, also by a skip. If only the socket were closed, its thread would
    ask it for ever, and slow down all later tests of the process.
    """
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            server.end_connections()


class _Server(ThreadingHTTPServer):
    """Ends the connections that clients keep open: a later test would find them when they are collected."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._connections: list[tuple[Thread, socket.socket]] = []

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = Thread(target=self.process_request_thread, args=(request, client_address), daemon=True)
        self._connections.append((thread, request))
        thread.start()

    def end_connections(self) -> None:
        for thread, connection in self._connections:
            with suppress(OSError):  # it has ended
                connection.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a client that goes away is no error here."""
