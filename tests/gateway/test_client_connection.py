"""How an answer is written to a client, and what ends a connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from lamina.gateway.client_connection import ClientCall
from lamina.relay import limits
from lamina.relay.client_request import LastHead, RequestLine
from tests.gateway.running import proxied, run_gateway, settings_for, until
from tests.gateway.test_hostile_connections import connect
from tests.gateway.test_wire import CLOSE, HOST, post
from tests.gateway.upstream_stub import run_stub

pytestmark = pytest.mark.anyio


class Socket:
    """A connection that keeps what is written to it."""

    def __init__(self) -> None:
        self.can_write = asyncio.Event()
        self.can_write.set()
        self.default_headers = [(b"date", b"today")]
        self.last_head = LastHead()
        self.written: list[bytes] = []
        self.answered: list[ClientCall] = []
        self.write = self.written.append
        self.end_answer = self.answered.append


def make_call(method: str = "GET", *, keep_alive: bool = True) -> tuple[ClientCall, Socket]:
    connection: Any = Socket()
    line = RequestLine(method, "/", b"/", b"", [])
    return ClientCall(connection, line, keep_alive=keep_alive, expects=False), connection


async def test_the_head_of_a_whole_answer_is_written_with_its_body() -> None:
    call, connection = make_call()
    await call.send_head(200, [(b"Content-Length", b"8")], joins_body=True)
    assert connection.written == []
    await call.send_body(b"body")
    await call.send_body(b"more", is_last=True)
    head = b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-length: 8\r\n\r\n"
    assert connection.written == [head + b"body", b"more"]
    assert connection.answered == [call]


@pytest.mark.parametrize(
    ("method", "status", "headers", "pieces", "end"),
    [
        (
            "GET",
            529,
            [],
            [b"a", b"", b"bc"],
            b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n0\r\n\r\n",
        ),
        ("GET", 200, [(b"content-length", b"0")], [b""], b"content-length: 0\r\n\r\n"),
        ("HEAD", 200, [(b"content-length", b"9")], [b"123456789"], b"content-length: 9\r\n\r\n"),
        ("GET", 204, [], [b""], b"HTTP/1.1 204 No Content\r\ndate: today\r\n\r\n"),
        ("GET", 304, [(b"etag", b"x")], [b""], b"etag: x\r\n\r\n"),
        (
            "GET",
            200,
            [(b"connection", b"close"), (b"content-length", b"0")],
            [b""],
            b"connection: close\r\n\r\n",
        ),
    ],
)
async def test_an_answer_ends_as_its_head_says(
    method: str, status: int, headers: Sequence[tuple[bytes, bytes]], pieces: list[bytes], end: bytes
) -> None:
    call, connection = make_call(method)
    await call.send_head(status, headers)
    for piece in pieces[:-1]:
        await call.send_body(piece)
    await call.send_body(pieces[-1], is_last=True)
    assert b"".join(connection.written).endswith(end)
    assert call.is_answered
    assert call.keep_alive == (b"close" not in end)


@pytest.mark.parametrize("body", [b"short", b"too long for it"])
async def test_an_answer_that_is_not_as_long_as_it_says_is_not_completed(body: bytes) -> None:
    call, _ = make_call()
    await call.send_head(200, [(b"content-length", b"9")])
    with pytest.raises(ValueError, match="not as long"):
        await call.send_body(body, is_last=True)
    assert not call.is_answered


@pytest.mark.parametrize("header", [(b"x-a", b"b\r\nx-c: d"), (b"x a", b"b"), (b"x-a", b"\x00")])
async def test_a_header_cannot_bring_another_one(header: tuple[bytes, bytes]) -> None:
    call, connection = make_call()
    with pytest.raises(ValueError, match="character"):
        await call.send_head(200, [header])
    assert connection.written == []


async def test_a_client_that_takes_nothing_of_its_last_answer_loses_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was written is in the buffer, so nobody waits for the client any more."""
    monkeypatch.setattr(limits, "CLIENT_SECONDS", 0.2)
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (16 << 20) + b"x" * (16 << 20)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with suppress(ConnectionError):
            writer.write(answer)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with run_gateway(settings_for(url)) as gateway:
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.connect(("127.0.0.1", int(gateway.url.rpartition(":")[2])))
                client.sendall(post(headers=CLOSE))
                assert await until(lambda: bool(gateway.server.server_state.connections), 10)
                assert await until(lambda: not gateway.server.server_state.connections, 10)


async def test_noise_behind_a_request_does_not_get_into_its_answer() -> None:
    async with run_stub() as stub, run_gateway(settings_for(stub)) as gateway:
        reader, writer = await connect(gateway)
        writer.write(b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (await reader.readuntil(b"ok\n")).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.write(b"\x16\x03\x01 what?\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 Bad Request\r\n")
        writer.close()


async def test_a_half_closed_connection_is_one_that_its_client_has_left() -> None:
    async with proxied() as (stub, gateway, _):
        reader, writer = await connect(gateway)
        writer.write(post()[:-10])
        writer.write_eof()
        assert await reader.read() == b""
        assert not stub.seen
        writer.close()
