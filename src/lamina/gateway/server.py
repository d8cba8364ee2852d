"""Runs the application on uvicorn, with the deadlines and limits that uvicorn does not have itself.

uvicorn waits for ever for a client that has connected and says nothing, and reads headers of any size. The
protocol class here ends both.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import chain
from math import ceil
from multiprocessing import parent_process
from tempfile import TemporaryDirectory
from time import monotonic
from types import FrameType
from typing import Any

import httptools
import msgspec
import uvicorn
from prometheus_client.multiprocess import mark_process_dead
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.supervisors import multiprocess

from lamina.core.text.characters import lower_ascii
from lamina.gateway.app import PAGE_KEY_VARIABLE, GatewayApp, create_app, tune_garbage_collection
from lamina.gateway.client_connection import LINK, ClientLink
from lamina.gateway.metrics import METRICS_FOLDER_VARIABLE
from lamina.inspector.page_cookies import make_key
from lamina.relay import limits
from lamina.relay.client_request import LastHead
from lamina.relay.config import GatewaySettings

UNREAD_BYTES = 512 << 10
"""Bytes of a body that wait to be read before no more are taken from the connection."""

LAST_WORDS = 5.0
"""Seconds for the errors of requests that are cut off, after `drain_seconds`."""

_LOGGER = logging.getLogger("uvicorn.error")

_OFFER_HEADERS = (b"upgrade", b"connection", b"http2-settings")

SETTINGS_VARIABLE = "LAMINA_GATEWAY_SETTINGS"
"""Has the settings as JSON for the worker processes of one gateway. They hold no secrets."""


Announce = Callable[[int], object]


def run_server(
    settings: GatewaySettings, *, listener: socket.socket | None = None, announce: Announce | None = None
) -> None:
    """Serve until the process is told to stop. A `listener` replaces the address of the settings.

    `announce` is called once, with the port, when requests are answered.
    """
    tune_garbage_collection()
    _allow_open_files()
    if listener is not None or settings.workers == 1:
        app = create_app(settings, is_supervised=listener is not None)
        server = GatewayServer(make_config(settings, app))
        server.announce = announce
        server.run(sockets=[listener] if listener is not None else None)
        return
    os.environ[SETTINGS_VARIABLE] = msgspec.json.encode(settings).decode()
    os.environ[PAGE_KEY_VARIABLE] = make_key().hex()
    config = make_config(settings, "lamina.gateway.server:create_worker_app")
    config.factory = True
    config.workers = settings.workers
    # `Multiprocess` takes no class for its workers, and uvicorn's own would not drain.
    multiprocess.Process = GatewayWorker  # type: ignore[misc]
    with TemporaryDirectory(prefix="lamina-metrics-") as folder:
        os.environ[METRICS_FOLDER_VARIABLE] = folder
        workers = GatewayWorkers(config, [config.bind_socket()])
        workers.announce = announce
        workers.run()


def _allow_open_files() -> None:
    """Let this process and its workers have a file for each connection, to clients and to upstreams.

    Linux gives a process 1,024 by default, and lets it ask for more. With those, a gateway that had 980 idle
    clients could not reach its upstream.
    """
    with suppress(ImportError, OSError, ValueError):  # Windows has no such limit
        import resource  # noqa: PLC0415 - not on every system

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        files = 4 * limits.CONNECTIONS
        if hard != resource.RLIM_INFINITY:
            files = min(files, hard)
        if soft != resource.RLIM_INFINITY:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, files), hard))


def create_worker_app() -> GatewayApp:
    """The application of one worker process, with the settings that its parent left in the environment."""
    settings = msgspec.json.decode(os.environ[SETTINGS_VARIABLE], type=GatewaySettings)
    tune_garbage_collection()
    return create_app(settings)


def make_config(settings: GatewaySettings, app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=BoundedProtocol,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # nothing here depends on what they say
        server_header=False,
        limit_concurrency=limits.CONNECTIONS,
        timeout_keep_alive=65,
        timeout_graceful_shutdown=ceil(settings.drain_seconds + LAST_WORDS),
    )


class GatewayServer(uvicorn.Server):
    """uvicorn's server, which finishes what runs before it ends (`shared.Drain`), and ends with status 0.

    uvicorn closes the port as soon as a signal comes, cancels what runs after a while without a word to the
    client, and then ends by the signal.
    """

    announce: Announce | None = None
    _signal_count = 0
    _closes_at: float | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self.announce is not None:
            self.announce(self.servers[0].sockets[0].getsockname()[1])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop. A second signal cuts off what runs, and a third one ends without a word."""
        del frame
        self._signal_count += 1
        if not self.config.loaded:  # a signal at the very start
            self.should_exit = True
            return
        app = self._app
        match self._signal_count:
            case 1:
                app.drain.is_stopping = True
                notice = 0.0
                if sig == signal.SIGTERM and app.settings.is_public:
                    notice = limits.NOTICE_SECONDS
                self._closes_at = monotonic() + notice
            case 2:
                self.should_exit = True
                asyncio.get_running_loop().call_soon_threadsafe(app.drain.cut_requests)
            case _:
                self.force_exit = True

    async def on_tick(self, counter: int) -> bool:
        if self._closes_at is not None and monotonic() >= self._closes_at:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the port, wait for the requests that run, and cut off those that take too long."""
        app = self._app
        app.drain.close_pages()
        asyncio.get_running_loop().call_later(app.settings.drain_seconds, app.drain.cut_requests)
        await super().shutdown(sockets)

    @property
    def _app(self) -> GatewayApp:
        app: GatewayApp = self.config.loaded_app
        return app


class GatewayWorker(multiprocess.Process):
    """A worker process of uvicorn with the gateway's server in it. It ends when its parent has ended."""

    _has_answered = False

    def target(self, sockets: list[socket.socket] | None = None) -> None:
        threading.Thread(target=_stop_with_parent, daemon=True).start()
        self.child_conn.send(b"everything is imported")
        super().target(sockets)

    def is_alive(self, timeout: float = 5) -> bool:
        """Whether the worker need not be replaced.

        uvicorn kills a worker that does not answer in time, while it still imports too. A slow machine would
        begin workers for ever.
        """
        if not self.process.is_alive():
            return False
        return not self._has_come_up() or self.ping(timeout)

    def is_ready(self, timeout: float = 5) -> bool:
        return self._has_come_up() and super().is_ready(timeout)

    def _has_come_up(self) -> bool:
        if not self._has_answered and self.parent_conn.poll(0):
            self.parent_conn.recv()
            self._has_answered = True
        return self._has_answered

    @property
    def server(self) -> uvicorn.Server:
        if self._server is None:
            self._server = GatewayServer(self.config)
        return self._server


def _stop_with_parent() -> None:
    """Stop when the parent was killed. Its workers would hold the port, and a new gateway could not start."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


class GatewayWorkers(multiprocess.Multiprocess):
    """The parent of the worker processes."""

    announce: Announce | None = None

    def keep_subprocess_alive(self) -> None:
        """Replace workers that died. Their counters stay, and the requests that they answered are over."""
        pids = {process.pid for process in self.processes}
        super().keep_subprocess_alive()
        for pid in pids - {process.pid for process in self.processes}:
            mark_process_dead(pid)  # type: ignore[no-untyped-call]
            _LOGGER.warning("worker %s ended, and another one was started", pid)
        if self.announce is not None and any(worker.is_ready() for worker in self.processes):
            self.announce(self.sockets[0].getsockname()[1])
            self.announce = None

    def terminate_all(self) -> None:
        """Stop the workers, and close the socket here too: clients would wait in its queue for nobody."""
        super().terminate_all()
        for listener in self.sockets:
            listener.close()


class BodyPieces:
    """What came of a body, in the place of the bytearray of uvicorn's cycle.

    uvicorn copies the body into that array, which moves while it grows, and then into bytes. Here the pieces
    are joined once, and a single one is not copied at all.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.size = 0

    def append(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self.size += len(piece)

    def __bytes__(self) -> bytes:
        return b"".join(self._pieces)


class JoinedWrites:
    """A transport for one answer: its head waits for its body, since two small writes cost more than one."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None
        self.close = transport.close
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if self._head is None:
            self._head = data
        else:
            self._transport.write(self._head + data)
            self._head = b""


def _join_writes(cycle: RequestResponseCycle) -> None:
    """Write the head of an answer together with the first bytes of its body."""
    cycle.transport = JoinedWrites(cycle.transport)  # type: ignore[assignment]


class BoundedProtocol(HttpToolsProtocol):
    """Uvicorn's protocol with a deadline for the headers of a request, and a limit on their size.

    `_link` belongs to the newest request, as uvicorn's `cycle` does. `_unanswered` are the cycles of all
    requests without a whole answer, in their order: a client may send some before it has the first answer.
    `_barren_bytes` came since the parser last found something.
    """

    _header_timer: asyncio.TimerHandle | None = None
    _header_bytes = 0
    _header_count = 0
    _barren_bytes = 0
    _reads_headers = False
    _link: ClientLink | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._last_head = LastHead()
        self._unanswered: deque[RequestResponseCycle] = deque()
        self.headers = []
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self.pipeline.clear()
        super().connection_lost(exc)
        for cycle in self._unanswered:  # uvicorn tells the newest one only
            cycle.disconnected = True
            cycle.message_event.set()
            link: ClientLink = cycle.scope[LINK]  # type: ignore[literal-required]
            link.note_leaving()

    def timeout_keep_alive_handler(self) -> None:
        """Drop a silent connection. If it was closed, a client that reads nothing could hold it for ever."""
        self.transport.abort()

    def on_response_complete(self) -> None:
        self._unanswered.popleft()
        super().on_response_complete()

    def on_message_begin(self) -> None:
        self._header_bytes = 0
        self._header_count = 0
        self._barren_bytes = 0
        self._reads_headers = True
        super().on_message_begin()

    def data_received(self, data: bytes) -> None:
        """Read what came.

        A request may offer to go on in another protocol: Java's client and `curl --http2` offer h2c. The
        parser then takes its body for that protocol. So such a request is read once more without the offer.
        """
        self._unset_keepalive_if_required()
        self._barren_bytes += len(data)
        while data and not self.transport.is_closing():
            try:
                self.parser.feed_data(data)
                break
            except httptools.HttpParserUpgrade as offer:
                if not self._offers_other_protocol():
                    break
                data = self._write_without_offer() + data[offer.args[0] :]
            except httptools.HttpParserError:
                self.send_400_response("Invalid HTTP request received.")
        if len(self.headers) > self._header_count:  # unfinished, or after a body
            self._count_headers()
        if self._barren_bytes > 2 * limits.HEADER_BYTES:  # the parser keeps a header until its line ends
            self._refuse(b"431 Request Header Fields Too Large")
        if self._header_timer is None and (self._reads_headers or self._is_idle):
            self._start_timer()

    @property
    def _is_idle(self) -> bool:
        """Whether nothing is to be answered or read. What came then are blank lines before a request."""
        return self._link is not None and self._link.body_is_complete and not self._unanswered

    def _offers_other_protocol(self) -> bool:
        """Whether the parser stops after the headers. Websockets have no body, and are refused later."""
        if not self.parser.should_upgrade():
            return False
        return self._get_upgrade() not in (None, b"websocket")  # CONNECT has no such header

    def _write_without_offer(self) -> bytes:
        """The head of the request, for a new parser."""
        head = [self.parser.get_method(), b" ", self.url, b" HTTP/1.1\r\n"]
        for name, value in self.headers:
            if name == b"connection" and "close" in lower_ascii(value.decode("latin-1")):
                head.append(b"connection: close\r\n")
            if name not in _OFFER_HEADERS:
                head += [name, b": ", value, b"\r\n"]
        self.parser = httptools.HttpRequestParser(self)
        return b"".join(head) + b"\r\n"

    def on_message_complete(self) -> None:
        if self._offers_other_protocol():
            return
        super().on_message_complete()
        self._barren_bytes = 0
        if self._link is not None:
            self._link.body_is_complete = True

    def on_headers_complete(self) -> None:
        self._reads_headers = False
        self._barren_bytes = 0
        self._count_headers()
        self._stop_timer()
        if len(self._unanswered) > limits.PIPELINED:
            self.transport.abort()
        if not self.transport.is_closing() and not self._offers_other_protocol():
            super().on_headers_complete()
            self._link = ClientLink(
                self.flow,
                self._last_head,
                join_writes=partial(_join_writes, self.cycle),
                abort=self.transport.abort,
            )
            self._unanswered.append(self.cycle)
            self.scope[LINK] = self._link  # type: ignore[literal-required]

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body. uvicorn would stop reading after each 64 KiB, and begin again at once."""
        self._barren_bytes = 0
        cycle = self.cycle
        if cycle.response_complete:
            return
        pieces: Any = cycle.body
        if not isinstance(pieces, BodyPieces):
            pieces = BodyPieces()
            cycle.body = pieces
        pieces.append(body)
        is_full = pieces.size > UNREAD_BYTES
        if is_full:
            self.flow.pause_reading()
        if is_full or self._link is None or not self._link.wants_whole_body:
            cycle.message_event.set()

    def _count_headers(self) -> None:
        """Count the headers that have come since the last time, and refuse too many bytes of them."""
        new_headers = self.headers[self._header_count :]
        self._header_count += len(new_headers)
        self._header_bytes += sum(map(len, chain.from_iterable(new_headers))) + 4 * len(new_headers)
        if len(self.url) + self._header_bytes > limits.HEADER_BYTES:
            self._refuse(b"431 Request Header Fields Too Large")

    def _end_slow_client(self) -> None:
        self._refuse(b"408 Request Timeout")

    def _refuse(self, status: bytes) -> None:
        if self.transport.is_closing():
            return
        self.transport.write(b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        self.transport.close()

    def _start_timer(self) -> None:
        self._stop_timer()
        self._header_timer = self.loop.call_later(limits.HEADER_SECONDS, self._end_slow_client)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None
