"""Speaks HTTP/1.1 with clients: a request is read as it arrives, and its answer is written as it is made.

A client may send the next request before it has the answer to the last one: they are answered in their order.
What a hostile client could do without an end has a limit here: the time and the size of its headers, lines
that never end, requests that wait for their turn, and answers that it does not take. The parser is llhttp, as
in `upstream_connection`. `uvicorn.Server` listens, and makes a connection of this class for each client.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from http import HTTPStatus
from urllib.parse import unquote

import httptools
import uvicorn
from uvicorn.server import ServerState

from lamina.core.text.characters import lower_ascii
from lamina.relay import limits
from lamina.relay.client_request import LastHead, RequestLine
from lamina.relay.stream import ClientGone

KEEP_ALIVE_SECONDS = 65.0
"""How long a connection waits for its next request. Balancers keep theirs for a minute."""

UNREAD_BYTES = 512 << 10
"""Bytes of a body that wait to be read before no more are taken from the connection."""

_LOGGER = logging.getLogger("uvicorn.error")

_OFFER_HEADERS = (b"upgrade", b"connection", b"http2-settings")

_NOT_IN_NAMES = re.compile(rb'[\x00-\x1f\x7f()<>@,;:\[\]={} \t\\"]')
_NOT_IN_VALUES = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")

_STATUS_LINES = {status: b"HTTP/1.1 %d \r\n" % status for status in range(100, 600)}
_STATUS_LINES |= {each.value: f"HTTP/1.1 {each.value} {each.phrase}\r\n".encode() for each in HTTPStatus}


class ClientCall:
    """One request of a client, and the answer to it.

    `wants_whole_body`: the reader need not be woken for each piece. `body_is_complete`: nothing of it is
    still to come. `has_left`: the client has closed the connection. `keep_alive`: another request may follow.
    """

    def __init__(
        self, connection: ClientConnection, line: RequestLine, *, keep_alive: bool, expects: bool
    ) -> None:
        self._connection = connection
        self._pieces: list[bytes] = []
        self._size = 0
        self._news = asyncio.Event()  # of the body, or that the client has left, or that all is over
        self._on_leaving: Callable[[], object] | None = None
        self._must_say_continue = expects
        self._held_head = b""
        self._has_body = line.method != "HEAD"
        self._length: int | None = None  # what is left of an answer that says how long it is
        self.line = line
        self.last_head = connection.last_head
        self.keep_alive = keep_alive
        self.wants_whole_body = False
        self.body_is_complete = False
        self.has_left = False
        self.is_started = False
        self.is_answered = False

    # The request

    async def read(self) -> bytes:
        """What has come of the body since the last time. It waits until there is something.

        Returns b"" if the client leaves, and after the answer.
        """
        if self._must_say_continue and not self.is_started:
            self._must_say_continue = False
            self._connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if not self.has_left and not self.is_answered:
            self._connection.resume_reading()
            await self._news.wait()
            self._news.clear()
        body = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        return body

    def feed(self, piece: bytes) -> None:
        """Take a piece of the body, and no more of them before somebody has read this much."""
        if self.is_answered:
            return
        self._pieces.append(piece)
        self._size += len(piece)
        is_full = self._size > UNREAD_BYTES
        if is_full:
            self._connection.pause_reading()
        if is_full or not self.wants_whole_body:
            self._news.set()

    def end_body(self) -> None:
        self.body_is_complete = True
        self._news.set()

    def note_leaving(self) -> None:
        """The client has closed the connection."""
        self.has_left = True
        self._news.set()
        if self._on_leaving is not None:
            self._on_leaving()

    async def work_until_left(self, work: Awaitable[None]) -> None:
        """Do the work in this task. It is cancelled when the client closes the connection.

        A connection that is not read would not show it, so it is read on.
        """
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker
        if self.has_left:
            task.cancel()
        self._on_leaving = task.cancel
        self._connection.resume_reading()
        try:
            await work
        except asyncio.CancelledError:
            if not self.has_left:
                raise
            task.uncancel()
            raise ClientGone("while it was answered") from None
        finally:
            self._on_leaving = None

    # The answer

    @property
    def is_write_paused(self) -> bool:
        """Whether the client does not take what was written, so that sending waits."""
        return not self._connection.can_write.is_set()

    async def send_head(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], *, joins_body: bool = False
    ) -> None:
        """Begin the answer. `joins_body`: it waits for its body, as two small writes cost more than one."""
        await self._connection.can_write.wait()
        self.is_started = True
        lines = [_STATUS_LINES[status]]
        for name, value in [*self._connection.default_headers, *headers]:
            if _NOT_IN_NAMES.search(name) or _NOT_IN_VALUES.search(value):
                raise ValueError(f"the header {name!r} has a character that must not be in it")
            match name.lower():
                case b"content-length":
                    self._length = int(value)
                case b"connection" if b"close" in value.lower():
                    self.keep_alive = False
                    continue
            lines.append(b"%b: %b\r\n" % (name.lower(), value))
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        if status in (204, 304):
            self._has_body = False
        if self._has_body and self._length is None:
            lines.append(b"transfer-encoding: chunked\r\n")
        head = b"".join(lines) + b"\r\n"
        if joins_body:
            self._held_head = head
        else:
            self._connection.write(head)

    async def send_body(self, piece: bytes, *, is_last: bool = False) -> None:
        """Send a piece of the answer, as its head has announced it."""
        await self._connection.can_write.wait()
        data = piece
        if not self._has_body:
            data = b""
        elif self._length is None:
            if piece:
                data = b"%x\r\n%b\r\n" % (len(piece), piece)
            if is_last:
                data += b"0\r\n\r\n"
        else:
            self._length -= len(piece)
            if self._length < 0 or (is_last and self._length):
                raise ValueError("the answer is not as long as its head says")
        if self._held_head:
            data = self._held_head + data
            self._held_head = b""
        self._connection.write(data)
        if is_last:
            self.is_answered = True
            self._news.set()
            self._connection.end_answer(self)

    def abort(self) -> None:
        """Drop the connection. One that is closed waits until the client has taken the rest."""
        self._connection.transport.abort()


class ClientConnection(asyncio.Protocol):
    """A connection of a client, and its requests that have no whole answer yet, in their order.

    `_reading` is the request whose body is read, and `_barren_bytes` came since the parser last found
    something: it keeps a header until its line ends.
    """

    transport: asyncio.Transport

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: object,
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        del app_state
        self._answer: Callable[[ClientCall], Awaitable[None]] = config.loaded_app.answer
        self._state = server_state
        self._loop = _loop or asyncio.get_running_loop()
        self._parser = self._make_parser()
        self._calls: deque[ClientCall] = deque()
        self._reading: ClientCall | None = None
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._header_bytes = 0
        self._barren_bytes = 0
        self._reads_headers = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_at_rest = False
        self._is_paused = False
        self.can_write = asyncio.Event()
        self.can_write.set()
        self.last_head = LastHead()

    def _make_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # A request that says `connection: close` is answered, whatever the client sends after it.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """The date, which uvicorn writes once a second."""
        return self._state.default_headers

    # What the event loop and the server call

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self._state.connections.add(self)  # type: ignore[arg-type]
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._state.connections.discard(self)
        self._stop_timer()
        self.can_write.set()
        for call in self._calls:
            call.note_leaving()
        del self._parser  # it holds this connection

    def pause_writing(self) -> None:
        self.can_write.clear()

    def resume_writing(self) -> None:
        self.can_write.set()

    def shutdown(self) -> None:
        """The server stops: close the connection, or do so after the requests that it has sent."""
        if self._calls:
            self._calls[-1].keep_alive = False
        else:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Read what came.

        A request may offer to go on in another protocol: Java's client and `curl --http2` offer h2c. The
        parser then takes its body for that protocol. So such a request is read once more without the offer.
        """
        if self._is_at_rest:
            self._stop_timer()
        self._barren_bytes += len(data)
        while data and not self.transport.is_closing():
            try:
                self._parser.feed_data(data)
                break
            except httptools.HttpParserUpgrade as offer:
                if not self._offers_other_protocol():
                    break
                data = self._write_without_offer() + data[offer.args[0] :]
            except httptools.HttpParserError:
                self.refuse(400)
        if self._barren_bytes > 2 * limits.HEADER_BYTES:
            self.refuse(431)
        # With nothing to answer or to read, blank lines came before a request.
        if self._timer is None and (self._reads_headers or not (self._calls or self._reading)):
            self._await_headers()

    # What the parser calls

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = []
        self._header_bytes = 0
        self._barren_bytes = 0
        self._reads_headers = True
        self._reading = None

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count_bytes(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._reads_headers:  # later ones are trailers
            self._headers.append((name.lower(), value))
        self._count_bytes(len(name) + len(value) + 4)

    def on_headers_complete(self) -> None:
        self._reads_headers = False
        self._barren_bytes = 0
        self._stop_timer()
        if self.transport.is_closing() or self._offers_other_protocol():
            return
        if len(self._calls) > limits.PIPELINED:
            self.transport.abort()
            return
        expects = (b"expect", b"100-continue") in ((name, value.lower()) for name, value in self._headers)
        keep_alive = self._parser.get_http_version() != "1.0" and self._parser.should_keep_alive()
        call = ClientCall(self, self._read_line(), keep_alive=keep_alive, expects=expects)
        if self._calls:
            self.pause_reading()
        elif max(len(self._state.connections), len(self._state.tasks)) >= limits.CONNECTIONS:
            self.refuse(503)
            return
        self._reading = call
        self._calls.append(call)
        if len(self._calls) == 1:
            self._start(call)

    def on_body(self, body: bytes) -> None:
        self._barren_bytes = 0
        if self._reading is not None:
            self._reading.feed(body)

    def on_message_complete(self) -> None:
        if self._offers_other_protocol():
            return
        self._barren_bytes = 0
        if self._reading is not None:
            self._reading.end_body()
            self._reading = None

    def _read_line(self) -> RequestLine:
        url = httptools.parse_url(self._url)
        path = unquote(url.path.decode("ascii"))
        method = self._parser.get_method().decode("ascii")
        return RequestLine(method, path, url.path, url.query or b"", self._headers)

    def _offers_other_protocol(self) -> bool:
        """Whether the parser stops after the headers. Websockets have no body, and are refused later."""
        if not self._parser.should_upgrade():
            return False
        headers = dict(self._headers)  # CONNECT has no such header
        tokens = lower_ascii(headers.get(b"connection", b"").decode("latin-1")).split(",")
        if "upgrade" not in (token.strip(" \t") for token in tokens):
            return False
        return headers.get(b"upgrade", b"websocket").lower() != b"websocket"

    def _write_without_offer(self) -> bytes:
        """The head of the request, for a new parser."""
        head = [self._parser.get_method(), b" ", self._url, b" HTTP/1.1\r\n"]
        for name, value in self._headers:
            if name == b"connection" and "close" in lower_ascii(value.decode("latin-1")):
                head.append(b"connection: close\r\n")
            if name not in _OFFER_HEADERS:
                head += [name, b": ", value, b"\r\n"]
        self._parser = self._make_parser()
        return b"".join(head) + b"\r\n"

    def _count_bytes(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > limits.HEADER_BYTES:
            self.refuse(431)

    # Requests and their answers

    def _start(self, call: ClientCall) -> None:
        task = self._loop.create_task(self._answer_call(call))
        self._state.tasks.add(task)
        task.add_done_callback(self._state.tasks.discard)

    async def _answer_call(self, call: ClientCall) -> None:
        try:
            await self._answer(call)
        except BaseException:
            _LOGGER.exception("a request failed")
        if not call.is_answered:
            self.refuse(500)

    def end_answer(self, call: ClientCall) -> None:
        """The answer is written: begin with the next request, or wait for one."""
        self._calls.popleft()
        if not call.keep_alive:
            self._close()
        if self.transport.is_closing():
            return
        self.resume_reading()
        if self._calls:
            self._start(self._calls[0])
        elif self._timer is None:
            self._is_at_rest = True
            # If it was closed, a client that reads nothing could hold it for ever.
            self._timer = self._loop.call_later(KEEP_ALIVE_SECONDS, self.transport.abort)

    def write(self, data: bytes) -> None:
        if data and not self.transport.is_closing():
            self.transport.write(data)

    def refuse(self, status: int) -> None:
        """Close the connection, with a status if no answer has begun."""
        if not (self._calls and self._calls[0].is_started):
            self.write(_STATUS_LINES[status] + b"connection: close\r\ncontent-length: 0\r\n\r\n")
        self._close()

    def _close(self) -> None:
        """Close the connection when the client has taken what was written, and soon."""
        if not self.transport.is_closing():
            self._stop_timer()
            self._timer = self._loop.call_later(limits.CLIENT_SECONDS, self.transport.abort)
            self.transport.close()

    def pause_reading(self) -> None:
        if not self._is_paused and not self.transport.is_closing():
            self._is_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_paused and not self.transport.is_closing():
            self._is_paused = False
            self.transport.resume_reading()

    def _await_headers(self) -> None:
        self._timer = self._loop.call_later(limits.HEADER_SECONDS, partial(self.refuse, 408))

    def _stop_timer(self) -> None:
        self._is_at_rest = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
