"""Connections to upstreams, byte by byte: what is sent, when a connection is used again, how answers end."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lamina.gateway import upstream_connection
from lamina.gateway.upstream_connection import UpstreamConnections, UpstreamReply
from lamina.relay import limits
from lamina.relay.upstream_port import BadAnswer, CannotConnect, DroppedByUpstream, read_origin
from tests.gateway.running import until
from tests.gateway.test_security import make_certificate

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Both event loops: the gateway runs on uvloop, whose connections have rules of their own."""
    return "asyncio", {"use_uvloop": request.param}


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Upstream(NamedTuple):
    """A server that sends one thing for each request. `heads` are what it was sent, by connection."""

    url: str
    heads: list[list[bytes]]
    connections: UpstreamConnections

    async def ask(
        self, method: str = "GET", headers: Sequence[tuple[bytes, bytes]] = (), body: Any = None
    ) -> UpstreamReply:
        return await self.connections.ask(method, read_origin(self.url), b"/x?y=%2F", headers, body)


async def read_all(reply: UpstreamReply) -> bytes:
    pieces: list[bytes] = []
    while piece := await reply.read():
        pieces.append(piece)
    reply.release()
    return b"".join(pieces)


@asynccontextmanager
async def serve(
    *answers: bytes, closes: bool = False, context: ssl.SSLContext | None = None
) -> AsyncIterator[Upstream]:
    heads: list[list[bytes]] = []
    left = list(answers)

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own: list[bytes] = []
        heads.append(own)
        try:
            while left:
                head = await reader.readuntil(b"\r\n\r\n")
                own.append(head)
                if b"content-length: 100000" in head:
                    await reader.readexactly(100_000)
                writer.write(left.pop(0))
                await writer.drain()
                if closes:
                    break
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        writer.close()

    connections = UpstreamConnections()
    server = await asyncio.start_server(serve_one, "127.0.0.1", 0, ssl=context, limit=1 << 20)
    scheme = "http" if context is None else "https"
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield Upstream(f"{scheme}://127.0.0.1:{port}/base/", heads, connections)
        connections.close()
        for _ in range(5):  # so that both sides see the end
            await asyncio.sleep(0.001)


async def test_a_request_is_its_line_its_headers_and_what_its_framing_needs() -> None:
    async with serve(OK) as upstream:
        reply = await upstream.ask("POST", [(b"x-a", "é".encode())], b"body")
        assert (reply.status, await read_all(reply)) == (200, b"ok")
    host = upstream.url.removeprefix("http://").partition("/")[0].encode()
    assert upstream.heads == [
        [b"POST /base/x?y=%2F HTTP/1.1\r\nhost: " + host + b"\r\nx-a: \xc3\xa9\r\ncontent-length: 4\r\n\r\n"]
    ]


@pytest.mark.parametrize(
    ("method", "first", "is_used_again"),
    [
        ("GET", OK, True),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (
            "GET",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nlink: x\r\n\r\n",
            True,
        ),
        ("GET", b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n" + OK, True),
        ("GET", b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok", False),
        ("GET", b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", False),
        ("GET", OK + OK, False),
        ("GET", OK + b"and no more", False),
        ("GET", b"HTTP/1.1 204 No Content\r\ncontent-length: 2\r\n\r\nok", False),
        ("HEAD", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", False),
    ],
)
async def test_a_connection_is_used_again_only_if_its_answer_has_ended_and_nothing_follows(
    method: str, first: bytes, *, is_used_again: bool
) -> None:
    async with serve(first, OK) as upstream, asyncio.timeout(5):
        reply = await upstream.ask(method)
        assert await read_all(reply) in (b"", b"ok")
        assert b"link" not in dict(reply.raw_headers)
        assert await read_all(await upstream.ask()) == b"ok"
    assert len(upstream.heads) == (1 if is_used_again else 2)


async def test_what_was_not_read_to_its_end_or_waits_for_too_long_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serve(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", OK, OK) as upstream:
        (await upstream.ask()).release()
        await read_all(await upstream.ask())
        monkeypatch.setattr(upstream_connection, "IDLE_SECONDS", -1.0)
        await read_all(await upstream.ask())
    assert len(upstream.heads) == 3


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", DroppedByUpstream),
        (b"HTTP/1.1 200 OK\r\n", BadAnswer),
        (b"HTTP/1.1 102 Processing\r\n\r\n", BadAnswer),
        (b"\x16\x03\x01 what?\r\n\r\n", BadAnswer),
        (b"HTTP/1.1 000 No\r\ncontent-length: 2\r\n\r\nok", BadAnswer),
        (b"HTTP/1.1 103 Hint\r\n\r\n" * 20_000, BadAnswer),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nabc", BadAnswer),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * (300 << 10) + b"\r\n\r\n", BadAnswer),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", BadAnswer),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n", BadAnswer),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nno size\r\n", BadAnswer),
        (b"HTTP/1.1 200 OK\r\n\r\nok", None),
    ],
)
async def test_an_answer_that_breaks_off_is_an_error_unless_its_end_is_that_of_the_connection(
    answer: bytes, error: type[Exception] | None
) -> None:
    async with serve(answer, closes=True) as upstream:
        if error is None:
            assert await read_all(await upstream.ask()) == b"ok"
            return
        with pytest.raises(error):
            await read_all(await upstream.ask())


async def test_what_came_before_an_answer_broke_off_is_read_first() -> None:
    async with serve(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", closes=True) as upstream:
        reply = await upstream.ask()
        assert await until(lambda: reply._error is not None)  # noqa: SLF001 - all of it has come
        assert await reply.read() == b"ok"
        with pytest.raises(BadAnswer):
            await reply.read()


async def send_slowly(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        await asyncio.sleep(0.01)
        yield piece


@pytest.mark.parametrize("says_length", [True, False])
async def test_a_body_is_sent_as_it_comes(*, says_length: bool) -> None:
    received: list[bytes] = []

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        end = b"c" if says_length else b"0\r\n\r\n"
        received.append(await reader.readuntil(b"\r\n\r\n"))
        received.append(await reader.readuntil(end))
        writer.write(OK)
        writer.close()

    connections = UpstreamConnections()
    async with await asyncio.start_server(serve_one, "127.0.0.1", 0) as server:
        origin = read_origin(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        headers = [(b"content-length", b"3")] if says_length else []
        reply = await connections.ask("POST", origin, b"/", headers, send_slowly(b"ab", b"c"))
        assert await read_all(reply) == b"ok"
        connections.close()
    assert received[1] == (b"abc" if says_length else b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")
    assert (b"transfer-encoding: chunked" in received[0]) is not says_length


async def test_an_answer_before_the_end_of_the_request_ends_it_and_the_connection() -> None:
    """An upstream that refuses a large file does not read it, and the rest of it is no next request."""

    async def send_without_end() -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(0)
            yield b"x" * 65_536

    served: list[bytes] = []

    async def answer_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)
        while await reader.read(1 << 16):
            continue
        writer.close()

    connections = UpstreamConnections()
    async with await asyncio.start_server(answer_early, "127.0.0.1", 0) as server, asyncio.timeout(20):
        origin = read_origin(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        for body in (send_without_end(), None):
            assert await read_all(await connections.ask("POST", origin, b"/", (), body)) == b"ok"
        connections.close()
        await asyncio.sleep(0.01)
    assert len(served) == 2


async def test_an_answer_that_nobody_reads_is_not_taken_from_the_upstream() -> None:
    size = 32 << 20
    async with serve(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size) as upstream:
        reply = await upstream.ask()
        await asyncio.sleep(0.2)
        first = await reply.read()
        assert len(first) < 2 << 20
        assert len(first) + len(await read_all(reply)) == size


async def test_a_connection_that_its_server_closes_is_forgotten() -> None:
    async with serve(OK, closes=True) as upstream:
        await read_all(await upstream.ask())
        idle = upstream.connections._idle  # noqa: SLF001 - it must not grow
        assert await until(lambda: [*map(len, idle.values())] == [0])


async def test_no_more_connections_wait_than_a_server_is_likely_to_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upstream_connection, "IDLE_CONNECTIONS", 2)
    async with serve(*[OK] * 5) as upstream:
        for reply in await asyncio.gather(*(upstream.ask() for _ in range(4))):
            await read_all(reply)
        waiting = [*map(len, upstream.connections._idle.values())]  # noqa: SLF001 - it must not grow
    assert waiting == [2]


async def test_a_request_that_is_cancelled_closes_its_connection() -> None:
    async with serve(b"", OK) as upstream:
        first = asyncio.create_task(upstream.ask())
        assert await until(lambda: any(upstream.heads))
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await read_all(await upstream.ask()) == b"ok"
    assert len(upstream.heads) == 2


async def test_a_header_cannot_begin_another_one() -> None:
    async with serve(OK) as upstream:
        with pytest.raises(ValueError, match="line break"):
            await upstream.ask(headers=[(b"x-api-key", b"key\r\nhost: evil.example")])
    assert upstream.heads == []


async def test_a_secure_connection_is_used_again_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=tmp_path / "server.pem")
    trusting.check_hostname = False  # the certificate of these tests names nobody
    monkeypatch.setattr(upstream_connection, "_load_authorities", lambda: trusting)
    async with serve(OK, OK, context=context) as upstream:
        for _ in range(2):
            assert await read_all(await upstream.ask("POST", body=b"x" * 100_000)) == b"ok"
    assert len(upstream.heads) == 1


@pytest.mark.parametrize("place", ["127.0.0.1:9", "no-such-host.invalid"])
async def test_a_server_that_takes_no_connection_is_told_with_its_cause(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONNECT_SECONDS", 5.0)
    with pytest.raises(CannotConnect) as caught:
        await UpstreamConnections().ask("GET", read_origin(f"http://{place}"), b"/", (), None)
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # uvloop asks the system for addresses
async def test_another_address_of_a_server_is_tried_if_the_first_takes_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    async with serve(OK) as upstream:
        port = read_origin(upstream.url).port

        async def list_two(*_: Any, **__: Any) -> list[Any]:
            return [(2, 1, 6, "", ("127.0.0.2", port)), (2, 1, 6, "", ("127.0.0.1", port))]

        monkeypatch.setattr(loop, "getaddrinfo", list_two)
        assert await read_all(await upstream.ask()) == b"ok"


@pytest.mark.parametrize(
    ("address", "host", "port", "authority", "base"),
    [
        ("https://api.anthropic.com", "api.anthropic.com", 443, "api.anthropic.com", ""),
        ("http://[::1]:8000/v1/", "::1", 8000, "[::1]:8000", "/v1"),
        ("http://bücher.example", "xn--bcher-kva.example", 80, "xn--bcher-kva.example", ""),
    ],
)
def test_the_server_of_an_address_is_read(
    address: str, host: str, port: int, authority: str, base: str
) -> None:
    origin = read_origin(address)
    assert (origin.host, origin.port, origin.authority, origin.base) == (host, port, authority, base)
    assert origin.is_secure is address.startswith("https")


async def test_a_connection_whose_answer_nobody_read_answers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more was taken from it while the answer waited."""
    monkeypatch.setattr(upstream_connection, "UNREAD_BYTES", 1)
    async with serve(OK, OK) as upstream, asyncio.timeout(5):
        (await upstream.ask()).release()
        assert await read_all(await upstream.ask()) == b"ok"
    assert len(upstream.heads) == 1


async def test_an_answer_that_is_left_twice_takes_no_connection_from_the_next_one() -> None:
    async with serve(OK, OK, OK) as upstream, asyncio.timeout(5):
        left = await upstream.ask()
        await read_all(left)
        left.release()
        second = await upstream.ask()
        third = await upstream.ask()
        assert [await read_all(second), await read_all(third)] == [b"ok", b"ok"]
    assert [len(heads) for heads in upstream.heads] == [2, 1]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # uvloop asks the system for addresses
async def test_an_address_that_swallows_everything_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some networks have IPv6 addresses and no way there: no answer comes, and no error."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as silent, socket.socket() as waiting:
        waiting.connect(silent.getsockname())  # it takes the only place, so that the next one is not answered
        async with serve(OK) as upstream:
            port = read_origin(upstream.url).port
            places = [
                (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address)
                for address in (silent.getsockname(), ("127.0.0.1", port))
            ]

            async def list_places(*_: Any, **__: Any) -> list[Any]:
                return places

            monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", list_places)
            monkeypatch.setattr(limits, "CONNECT_SECONDS", 5.0)
            async with asyncio.timeout(4):
                assert await read_all(await upstream.ask()) == b"ok"
