"""Serves the pages with the standard library alone: `lamina inspect` needs nothing else installed."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from lamina.errors import BadInput, LaminaError
from lamina.inspector.page_cookies import make_key
from lamina.inspector.pages import (
    SECONDS_BETWEEN_LOOKS,
    Access,
    PageAnswer,
    answer_request,
    refuse_stranger,
    write_event,
)
from lamina.inspector.progress import ReaderGone, watch_reader
from lamina.inspector.views import Inspector

LARGEST_PORT = 65_535
LOOPBACK = frozenset(("127.0.0.1", "::1", "localhost"))

_MILLISECONDS_TO_RETRY = 1000
"""After how long a browser tries again if the server has ended."""

_MOST_EVENTS = 600
"""Events of one live connection; the browser then connects again by itself."""


def make_server(inspector: Inspector, *, host: str = "127.0.0.1", port: int = 0, token: str = "") -> Server:
    """A server that is not running yet. Port 0 takes a free one. A public address needs a token."""
    if host not in LOOPBACK and not token:
        raise BadInput(
            f"{host} can be reached by others",
            place="host",
            hint="give a token, or leave the address at 127.0.0.1",
        )
    if port > LARGEST_PORT:
        raise BadInput(f"there is no port {port}", place="port", hint=f"the largest is {LARGEST_PORT}")
    try:
        return Server(inspector, host, port, token)
    except OSError as error:
        raise BadInput(
            f"port {port} cannot be used: {error.strerror}", place="port", hint="choose another, or none"
        ) from error


class Server(ThreadingHTTPServer):
    """One thread for each connection, so that a live page does not block the others."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, inspector: Inspector, host: str, port: int, token: str) -> None:
        super().__init__((host, port), _Connection)
        self.inspector = inspector
        self.stopping = threading.Event()
        names = {host}
        if host in LOOPBACK:
            names |= {"127.0.0.1", "localhost", "[::1]"}
        self.access = Access(
            hosts=frozenset(f"{name}:{self.port}" for name in names), token=token, cookie_key=make_key()
        )
        self.host = host

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        """Where a browser finds the page."""
        address = f"http://{self.host}:{self.port}/"
        if self.access.token:
            address += f"?token={self.access.token}"
        return address

    @contextmanager
    def running(self) -> Iterator[Server]:
        """Serve in a thread until the block ends."""
        thread = threading.Thread(target=self.serve_forever, name="lamina-inspector", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.stopping.set()
            self.shutdown()
            self.server_close()
            thread.join()


class _Connection(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        if self.path.partition("?")[0] == "/api/live":
            self._send_events()
            return
        with watch_reader(self._has_reader_gone):
            try:
                answer = self._answer()
            except ReaderGone:
                self.close_connection = True
                return
        self._send(answer)

    def _has_reader_gone(self) -> bool:
        """Whether the browser has closed the connection: it can be read from, and there is nothing."""
        try:
            readable, _, _ = select.select([self.connection], [], [], 0)
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def do_HEAD(self) -> None:
        self._send(self._answer())

    def do_POST(self) -> None:
        self.close_connection = True  # the body is not read
        self._send(self._answer())

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_POST  # noqa: N815 - the names that the server asks for

    def _headers(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers.items()}

    def _answer(self) -> PageAnswer:
        return answer_request(
            self.server.inspector, self.command, self.path, self._headers(), self.server.access
        )

    def _send(self, answer: PageAnswer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        try:
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)
        except ConnectionError:
            self.close_connection = True  # the reader went on to another view, and did not wait for this one

    def _send_events(self) -> None:
        """Tell a live page whenever a file has changed."""
        refusal = refuse_stranger(self.path, self._headers(), self.server.access)
        if refusal is not None:
            self._send(refusal)
            return
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        last_state = ""
        try:
            self.wfile.write(f"retry: {_MILLISECONDS_TO_RETRY}\n\n".encode())
            for _ in range(_MOST_EVENTS):
                state = self.server.inspector.sessions.state()
                self.wfile.write(write_event(state, last_state))
                self.wfile.flush()
                last_state = state
                if self.server.stopping.wait(SECONDS_BETWEEN_LOOKS):
                    return
        except OSError:
            return  # the page was closed
        except LaminaError:
            return  # a file or a store cannot be read now; the page connects again by itself

    def log_message(self, *_arguments: object) -> None:
        """Nothing is printed: addresses can hold what people search for."""


def wait_until_stopped(server: Server) -> None:
    with server.running():
        while True:
            time.sleep(3600)
