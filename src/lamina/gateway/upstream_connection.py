"""Speaks HTTP/1.1 with upstreams: a request is one write, and its answer is read as it arrives.

A connection carries one request at a time and is used again. Nothing is added to a request but what its
framing needs, and nothing is unpacked: no cookies, no redirects, no proxies of the environment. The parser is
llhttp, as in the gateway's own server. notes/libraries.md says why no library does this.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from functools import cache
from time import monotonic

import httptools
from aiohappyeyeballs import start_connection

from lamina.relay import limits
from lamina.relay.security import Headers
from lamina.relay.upstream_port import BadAnswer, CannotConnect, DroppedByUpstream, Origin

IDLE_SECONDS = 15.0
"""How long a connection that nobody uses is used again. Servers close theirs after some time, too."""

IDLE_CONNECTIONS = 64
"""How many connections wait for the next request to a server.

A body that comes in pieces takes none of them, and leaves one: without a limit, 24 clients left 1,100.
"""

LEFT_SECONDS = 1.0
"""How soon a server that has left a connection says so. Later it may have worked on the request.

Then a request of any method is sent again over a new one, as curl does it.
"""

NEXT_ADDRESS_SECONDS = 0.25
"""How long one address of a server is tried alone."""

BARREN_BYTES = 256 << 10
"""Bytes of an answer that may come without a byte of its body: headers, hints, trailers, chunk extensions.

The parser keeps a header in memory until its line ends, however long that is.
"""

UNREAD_BYTES = 256 << 10
"""Bytes of an answer that wait to be passed on before no more are taken from the connection."""

JOINED_BODY = 32 << 10
"""Bytes up to which a body is copied behind its headers, since one small write costs less than two."""


class UpstreamReply:
    """The answer to one request. What has arrived is read here; the rest is waited for.

    `headers` are by their names in lower case; of one that came twice the first counts. `is_complete`: all
    of the answer has arrived.
    """

    def __init__(self, connection: UpstreamConnection, *, has_no_body: bool) -> None:
        self._connection = connection
        self._has_no_body = has_no_body
        self._pieces: list[bytes] = []
        self._size = 0
        self._barren_bytes = 0
        self._error: ConnectionError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._may_use_again = False
        self.is_complete = False
        self.status = 0
        self.raw_headers: list[tuple[bytes, bytes]] = []
        self.headers: dict[str, str] = {}

    @property
    def is_at_hand(self) -> bool:
        """Whether the next `read` does not wait."""
        return bool(self._pieces) or self.is_complete or self._error is not None

    @property
    def is_read(self) -> bool:
        """Whether all of it has been read."""
        return self.is_complete and not self._pieces

    async def read(self) -> bytes:
        """The next bytes; b"" after the last ones. Raises ConnectionError if the rest will not come."""
        while not self.is_at_hand:
            await self._wait()
        if not self._pieces and self._error is not None:
            raise self._error
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        self._connection.resume_reading()
        return data

    async def wait_for_headers(self) -> None:
        while not self.status:
            await self._wait()

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def release(self) -> None:
        """Let the connection be used again, or close it if more of this answer may come."""
        self._connection.release(self, may_use_again=self._may_use_again)

    def feed(self, data: bytes) -> None:
        """Take what came from the upstream."""
        self._barren_bytes += len(data)
        try:
            self._connection.parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # a status of 101
            self.is_complete = True
        except httptools.HttpParserError as error:
            self.end(BadAnswer(str(error)))
        if self._barren_bytes > BARREN_BYTES:
            self.end(BadAnswer("its headers are too long"))
        self._wake()

    def end(self, error: Exception | None) -> None:
        """Nothing more comes. That is also the end of an answer that does not say how long it is."""
        has_length = self.headers.keys() & {"content-length", "transfer-encoding"}
        if error is None and self.status and not has_length:
            self.is_complete = True
        elif not self.status and not self._barren_bytes:  # else it has begun, and was paid for
            self._error = DroppedByUpstream("before it answered")
        elif not self.is_complete:
            self._error = BadAnswer(str(error or "it ended too early"))
        self._wake()
        self._connection.release(self, may_use_again=False)

    # What the parser calls

    def on_message_begin(self) -> None:
        if self.is_complete:  # nobody asked for another answer
            self._may_use_again = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # later ones are trailers
            self.raw_headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.status:
            return
        status = self._connection.parser.get_status_code()
        if status < 100:  # with 0 the answer would look as if it had not begun
            raise BadAnswer(f"its status is {status}")
        if 100 <= status < 200 and status != 101:  # a hint, and the answer follows
            self.raw_headers.clear()
            return
        self.status = status
        for name, value in self.raw_headers:
            self.headers.setdefault(name.lower().decode("latin-1"), value.decode("utf-8", "replace"))
        self.is_complete = self._has_no_body
        self._connection.resume_writing()  # an answer may come before all of the request was sent

    def on_body(self, body: bytes) -> None:
        if self.is_complete:
            return
        self._barren_bytes = 0
        self._pieces.append(body)
        self._size += len(body)
        if self._size > UNREAD_BYTES:
            self._connection.pause_reading()

    def on_message_complete(self) -> None:
        if self.status and not self.is_complete:
            self._may_use_again = self._connection.is_ready and self._connection.parser.should_keep_alive()
            self.is_complete = True


class UpstreamConnection(asyncio.Protocol):
    """A connection to an upstream, and the answer that it carries now."""

    _transport: asyncio.Transport
    parser: httptools.HttpResponseParser

    def __init__(self, idle: deque[UpstreamConnection]) -> None:
        self._idle = idle
        self._reply: UpstreamReply | None = None  # only this has both, and no circle is left when it goes
        self._writable: asyncio.Future[None] | None = None
        self._is_paused = False
        self._has_sent_all = False
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reply is not None:
            self._reply.end(exc)
        elif self in self._idle:
            self._idle.remove(self)
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._reply is None:  # nobody asked
            self.close()
        else:
            self._reply.feed(data)

    def pause_writing(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Let whoever waits go on to write."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def pause_reading(self) -> None:
        """Take no more from the upstream until somebody has read what is here."""
        if not self._is_paused and self.is_open:
            self._is_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_paused and self.is_open:
            self._is_paused = False
            self._transport.resume_reading()

    @property
    def is_ready(self) -> bool:
        """Whether all of the last request has left, so that another one may follow."""
        return self._has_sent_all and not self._transport.get_write_buffer_size()

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    def close(self) -> None:
        """Close the connection now.

        Otherwise a body that the upstream does not read would be held until it does.
        """
        self._transport.abort()

    def release(self, reply: UpstreamReply, *, may_use_again: bool) -> None:
        """Wait for the next request, or close the connection.

        Only the first time: after that it may carry somebody else's answer.
        """
        if self._reply is not reply:
            return
        self._reply = None
        del self.parser  # it holds the answer
        if not may_use_again:
            self.close()
            return
        self.resume_reading()  # somebody may have left an answer that nobody read
        self.idle_since = monotonic()
        self._idle.append(self)
        if len(self._idle) > IDLE_CONNECTIONS:
            self._idle.popleft().close()

    async def ask(
        self, head: bytes, body: bytes | AsyncIterator[bytes], *, has_no_body: bool
    ) -> UpstreamReply:
        """Send a request. Returns its answer as soon as that has begun."""
        reply = UpstreamReply(self, has_no_body=has_no_body)
        self._reply = reply
        self.parser = httptools.HttpResponseParser(reply)
        self._has_sent_all = isinstance(body, bytes)
        try:
            if not isinstance(body, bytes):
                self._transport.write(head)
                await self._write_pieces(body, reply)
            elif len(body) <= JOINED_BODY:
                self._transport.write(head + body)
            else:
                self._transport.write(head)
                self._transport.write(body)
            await reply.wait_for_headers()
        except BaseException:
            reply.release()
            raise
        return reply

    async def _write_pieces(self, pieces: AsyncIterator[bytes], reply: UpstreamReply) -> None:
        """Send a body as it comes, until its end or until the upstream has answered."""
        async for piece in pieces:
            if self.is_open:  # it may have ended meanwhile, and uvloop refuses to write then
                self._transport.write(piece)
            if self._writable is not None:
                await self._writable
            if reply.status or not self.is_open:
                return
        self._has_sent_all = True


async def _frame_chunks(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The pieces of a body whose length nobody knows, each with its own, and the end."""
    async for piece in pieces:
        yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


class UpstreamConnections:
    """The connections of one gateway process to all of its upstreams."""

    def __init__(self) -> None:
        self._idle: defaultdict[Origin, deque[UpstreamConnection]] = defaultdict(deque)

    async def ask(
        self,
        method: str,
        origin: Origin,
        target: bytes,
        headers: Headers,
        body: bytes | AsyncIterator[bytes] | None,
        *,
        is_again: bool = False,
    ) -> UpstreamReply:
        """Send a request. Raises CannotConnect, or ConnectionError if no answer comes.

        `is_again`: the first try failed, so none of the connections is taken that the upstream may have left.
        """
        begin = f"{method} {origin.base}".encode()
        lines = [b"%b%b HTTP/1.1\r\nhost: %b" % (begin, target, origin.authority.encode())]
        names: set[bytes] = set()
        for name, value in headers:
            if b"\r" in value or b"\n" in value:
                raise ValueError(f"the header {name.decode('latin-1')} has a line break")
            names.add(name)
            lines.append(b"%b: %b" % (name, value))
        if isinstance(body, bytes):
            lines.append(b"content-length: %d" % len(body))
        elif body is None:
            body = b""
            if method in ("POST", "PUT", "PATCH"):  # some servers ask for it
                lines.append(b"content-length: 0")
        elif b"content-length" not in names:
            body = _frame_chunks(body)
            lines.append(b"transfer-encoding: chunked")
        head = b"\r\n".join(lines) + b"\r\n\r\n"
        connection = None
        # A body that comes in pieces cannot be sent again if the server has left.
        if isinstance(body, bytes) and not is_again:
            connection = self._take_idle(origin)
        if connection is None:
            connection = await self._connect(origin)
            return await connection.ask(head, body, has_no_body=method == "HEAD")
        began = monotonic()
        try:
            return await connection.ask(head, body, has_no_body=method == "HEAD")
        except DroppedByUpstream as dropped:
            dropped.had_left = monotonic() - began < LEFT_SECONDS
            raise

    def _take_idle(self, origin: Origin) -> UpstreamConnection | None:
        """The connection that was used last, if it is still there. Those that are too old are closed."""
        idle = self._idle[origin]
        while idle and idle[0].idle_since < monotonic() - IDLE_SECONDS:
            idle.popleft().close()
        while idle:
            connection = idle.pop()
            if connection.is_open:
                return connection
        return None

    async def _connect(self, origin: Origin) -> UpstreamConnection:
        """A new connection, to whichever address of the server answers first.

        An address that swallows what is sent to it, as IPv6 does in some networks, costs a quarter of a
        second.
        """
        loop = asyncio.get_running_loop()
        idle = self._idle[origin]
        context = None
        server_hostname = None
        if origin.is_secure:
            context = _load_authorities()
            server_hostname = origin.host
        try:
            async with asyncio.timeout(limits.CONNECT_SECONDS):
                places = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
                sock = await start_connection(places, happy_eyeballs_delay=NEXT_ADDRESS_SECONDS, interleave=1)
                _, connection = await loop.create_connection(
                    lambda: UpstreamConnection(idle), sock=sock, ssl=context, server_hostname=server_hostname
                )
        except OSError as error:
            raise CannotConnect from error
        return connection

    def close(self) -> None:
        """Close what nobody uses."""
        for idle in self._idle.values():
            while idle:
                idle.pop().close()


@cache
def _load_authorities() -> ssl.SSLContext:
    """Who vouches for certificates. To load them takes tens of milliseconds."""
    return ssl.create_default_context()
