"""Clients and upstreams that hold a connection, leave it at a bad moment, or send without an end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from threading import Event
from typing import Any

import pytest
from anyio import to_thread

from lamina.core import Counter
from lamina.fitting import Fitted, fit_request
from lamina.relay import fit_call, limits
from tests.gateway.growing import chat_request, dump
from tests.gateway.running import RunningGateway, proxied, run_gateway, settings_for, until
from tests.gateway.test_wire import BODY, CLOSE, HOST, OK, get, post
from tests.gateway.upstream_stub import Stub, run_stub

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Both event loops: the gateway runs on uvloop, whose connections have rules of their own."""
    return "asyncio", {"use_uvloop": request.param}


PROBE = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Silent:
    """An upstream that reads requests and answers when it is told. `left` counts closed connections."""

    def __init__(self) -> None:
        self.asked: list[asyncio.StreamWriter] = []
        self.left = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            self.asked.append(writer)
            await reader.read()
            while await reader.read(1 << 16):
                continue
        self.left += 1
        writer.close()


@asynccontextmanager
async def before_silence() -> AsyncIterator[tuple[Silent, RunningGateway]]:
    """A gateway in front of an upstream that says nothing."""
    upstream = Silent()
    async with await asyncio.start_server(upstream.serve, "127.0.0.1") as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with run_gateway(settings_for(url)) as gateway:
            yield upstream, gateway


async def connect(gateway: RunningGateway) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(gateway.url.rpartition(":")[2]))


@pytest.mark.parametrize(
    "data", [get(b"/v1/models"), post(b"/v1/files"), post(headers=b"x-lamina: off\r\n"), post()]
)
async def test_a_client_that_leaves_while_the_upstream_thinks_cancels_its_request(data: bytes) -> None:
    async with before_silence() as (upstream, gateway):
        _, writer = await connect(gateway)
        writer.write(data)
        assert await until(lambda: bool(upstream.asked))
        writer.close()
        assert await until(lambda: upstream.left == 1, 5)


async def test_a_fit_ends_when_its_client_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread cannot be ended: it would count on for nobody, and four such requests held a gateway up."""
    counted: list[int] = []
    has_begun, may_go_on, has_ended = Event(), Event(), Event()

    def count(text: str) -> int:
        counted.append(len(text))
        has_begun.set()
        may_go_on.wait()
        return len(text) // 4

    def fit_watched(*args: Any, **options: Any) -> Fitted:
        try:
            return fit_request(*args, **options)
        finally:
            has_ended.set()

    monkeypatch.setattr(fit_call, "fit_request", fit_watched)
    policy = {"counter": Counter(name="slow", count=count), "budget": 2_000}
    async with run_stub() as stub, run_gateway(settings_for(stub, upstream=policy)) as gateway:
        _, writer = await connect(gateway)
        writer.write(post(body=dump(chat_request(40))))
        assert await to_thread.run_sync(has_begun.wait, 60)
        writer.close()
        assert await until(lambda: bool(gateway.events("client gone")))
        may_go_on.set()
        assert await to_thread.run_sync(has_ended.wait, 60)
    assert len(counted) == 1


async def test_an_answer_that_comes_when_the_client_leaves_is_closed() -> None:
    async with before_silence() as (upstream, gateway):
        body = dump(chat_request(2) | {"stream": True})
        for number in range(8):
            _, writer = await connect(gateway)
            writer.write(post(body=body))
            assert await until(lambda number=number: len(upstream.asked) > number)  # type: ignore[misc]
            upstream.asked[number].write(STREAM_HEAD + b"5\r\n: a\n\n\r\n")
            writer.transport.abort()
        assert await until(lambda: upstream.left == 8, 5)


async def test_pipelined_requests_of_a_client_that_has_left_are_cancelled() -> None:
    async with before_silence() as (upstream, gateway):
        _, writer = await connect(gateway)
        writer.write(post() * 3)
        assert await until(lambda: bool(upstream.asked))
        writer.transport.abort()
        assert await until(lambda: upstream.left == 1, 5)
        assert len(upstream.asked) == 1


async def test_a_client_that_takes_nothing_loses_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it could hold all connections that there may be."""
    monkeypatch.setattr(limits, "CLIENT_SECONDS", 0.2)
    async with before_silence() as (upstream, gateway):
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", int(gateway.url.rpartition(":")[2])))
            client.sendall(post())
            assert await until(lambda: bool(upstream.asked))
            upstream.asked[0].write(
                b"HTTP/1.1 200 OK\r\ncontent-length: 90000000\r\n\r\n" + b"x" * (16 << 20)
            )
            assert await until(lambda: not gateway.server.server_state.connections, 10)
        assert await until(lambda: upstream.left == 1, 5)


async def test_a_body_that_an_upstream_does_not_read_is_not_held_after_its_request() -> None:
    """A server that hangs would fill the memory with the bodies that it was sent."""
    received: list[int] = []
    may_read = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await may_read.wait()
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        size = 0
        with suppress(ConnectionError):
            while piece := await reader.read(1 << 20):
                size += len(piece)
        received.append(size)
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1") as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with run_gateway(settings_for(url, first_byte_seconds=0.3)) as gateway:
            reader, writer = await connect(gateway)
            request = {"model": "m", "input": "x" * (20 << 20), "previous_response_id": "r"}
            writer.write(post(b"/v1/responses", CLOSE, dump(request)))
            assert (await reader.read()).startswith(b"HTTP/1.1 504 ")
            writer.close()
            may_read.set()
            assert await until(lambda: bool(received), 5)
    assert received[0] < 19 << 20


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Stub, RunningGateway]]:
    async with run_stub() as stub, run_gateway(settings_for(stub)) as gateway:
        yield stub, gateway


async def send_until_closed(gateway: RunningGateway, first: bytes, piece: bytes, most: int) -> bytes:
    """Send pieces until the gateway closes the connection or has taken `most` of them. What it said."""
    reader, writer = await connect(gateway)
    said = b""
    with suppress(ConnectionError):
        writer.write(first)
        for _ in range(most):
            if reader.at_eof() or writer.is_closing():  # uvloop refuses to write then
                said = await reader.read(1 << 16)
                break
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.001)
        else:
            said = b"<open>"
    writer.close()
    return said


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (b"GET / HTTP/1.1\r\n" + HOST + b"x: ", b"y" * 65_536),
        (b"GET /" + b"y" * 10, b"y" * 65_536),
        (
            b"POST /v1/files HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n0\r\nx: ",
            b"y" * 65_536,
        ),
        (b"POST /v1/files HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n1;", b"y" * 65_536),
    ],
)
async def test_a_line_without_an_end_is_not_kept(first: bytes, piece: bytes) -> None:
    async with before_silence() as (_, gateway):
        assert not (await send_until_closed(gateway, first, piece, 40)).startswith(b"<open>")


async def test_requests_that_wait_for_their_turn_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PIPELINED", 4)
    async with running() as (_, gateway):
        reader, writer = await connect(gateway)
        writer.write(PROBE * 4)
        answers = b""
        while answers.count(b"200 OK") < 4:
            answers += await reader.read(1 << 16)
        writer.write(PROBE * 2_000)
        rest = b""
        with suppress(ConnectionError):
            while piece := await reader.read(1 << 16):
                rest += piece
        assert rest.count(b"200 OK") < 10
        writer.close()


async def test_offers_of_another_protocol_in_a_row_are_read_one_by_one(
    capfd: pytest.CaptureFixture[str],
) -> None:
    offer = PROBE.replace(b"\r\n\r\n", b"\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n")
    async with running() as (stub, gateway):
        reader, writer = await connect(gateway)
        last = post(headers=b"connection: upgrade, close\r\nupgrade: h2c\r\n")
        writer.write(offer * 3 + last)
        answers = await reader.read()
        assert answers.count(b"200 Said") + answers.count(b"200 OK") == 4
        assert stub.seen[0].body == BODY
        writer.close()
        _, writer = await connect(gateway)
        writer.write(offer * 1_500)
        assert await until(lambda: not gateway.server.server_state.connections, 5)
        writer.close()
    assert "Recursion" not in capfd.readouterr().err


async def test_blank_lines_do_not_hold_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEADER_SECONDS", 0.2)
    async with proxied() as (_, gateway, _client):
        reader, writer = await connect(gateway)
        writer.write(PROBE)
        assert b"200 OK" in await reader.readuntil(b"ok\n")
        writer.write(b"\r\n")
        async with asyncio.timeout(5):
            assert b" 408 " in await reader.read()
        writer.close()


CHUNKED = b"transfer-encoding: chunked\r\n" + CLOSE + b"\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)


@pytest.mark.parametrize("is_whole", [True, False])
async def test_a_server_that_leaves_a_waiting_connection_costs_no_body(*, is_whole: bool) -> None:
    """One that comes in pieces could not be sent again. The server closes what was idle for a moment."""
    data = post(b"/v1/files", CLOSE)
    if not is_whole:
        data = b"POST /v1/files HTTP/1.1\r\n" + HOST + CHUNKED
    served: list[int] = []

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            served.append(len(head))
            if b"content-length" in head:
                await reader.readexactly(len(BODY))
            elif b"chunked" in head:
                await reader.readuntil(b"0\r\n\r\n")
            writer.write(OK)
            await reader.read(1)  # the next request is not read any more
        writer.close()

    async with await asyncio.start_server(answer_once, "127.0.0.1") as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with run_gateway(settings_for(url)) as gateway:
            reader, writer = await connect(gateway)
            writer.write(get(b"/v1/models").replace(CLOSE, b""))
            await reader.readuntil(b"choices")
            writer.write(data)
            assert b"HTTP/1.1 200 OK" in await reader.read()
            writer.close()
    assert len(served) == 2


async def test_an_upstream_that_drops_a_body_that_is_still_coming_is_a_502() -> None:
    dropped = asyncio.Event()

    async def drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()
        dropped.set()

    async with await asyncio.start_server(drop, "127.0.0.1") as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with run_gateway(settings_for(url)) as gateway:
            reader, writer = await connect(gateway)
            end = len(BODY)
            writer.write(
                (b"POST /v1/files HTTP/1.1\r\n" + HOST + CHUNKED)[:-end]
            )  # a small body is read first
            await dropped.wait()
            await asyncio.sleep(0.2)  # so that the gateway has seen it, too
            writer.write(CHUNKED[-end:])
            assert (await reader.read()).startswith(b"HTTP/1.1 502 ")
            assert not gateway.events("failed")
            writer.close()
