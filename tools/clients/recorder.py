"""Keeps what a client sends to a gateway, and passes it on byte for byte.

Each request gets a connection of its own, which is closed after the answer. If the gateway dies in the middle
of an answer, the client sees what it would see without the recorder: a connection that breaks off.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple
from urllib.parse import urlsplit

SET_TARGET = "/recorder-target/"
PIECE = 1 << 16


class Recorded(NamedTuple):
    """A request of the client, with the status that it got, and what the gateway says that it did."""

    method: str
    path: str
    body: bytes
    status: int
    outcome: str
    answer: bytes


class Recorder:
    """Passes requests on to `target`, an address."""

    def __init__(self) -> None:
        self.url = ""
        self.target = ""
        self.recorded: list[Recorded] = []
        self._open: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[asyncio.current_task()] = writer
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, ValueError):
                await self._pass_on(reader, writer)
        finally:
            del self._open[asyncio.current_task()]
            writer.close()

    async def end_connections(self) -> None:
        """End those that clients keep open, and wait until each has been let go."""
        for writer in self._open.values():
            writer.transport.abort()
        await asyncio.gather(*filter(None, self._open))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        line, *fields = head.split(b"\r\n")
        method, path, _ = line.decode("latin-1").split(" ")
        if path.startswith(SET_TARGET):
            self.target = "http://" + path.removeprefix(SET_TARGET)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            return
        body = await _read_body(reader, fields)
        kept = [line]
        for field in fields:
            name = field.partition(b":")[0].lower()
            if name == b"host":
                kept.append(b"host: " + self.target.removeprefix("http://").encode())
            elif field and name not in (b"connection", b"transfer-encoding", b"content-length"):
                kept.append(field)
        kept += [b"connection: close"]
        if body or method == "POST":
            kept.append(b"content-length: " + str(len(body)).encode())
        address = urlsplit(self.target)
        gateway_reader, gateway_writer = await asyncio.open_connection(address.hostname, address.port)
        gateway_writer.write(b"\r\n".join(kept) + b"\r\n\r\n" + body)
        answer = bytearray()
        try:
            while piece := await gateway_reader.read(PIECE):
                answer += piece
                writer.write(piece)
                await writer.drain()
        finally:
            gateway_writer.close()
            self.recorded.append(_describe(method, path, body, bytes(answer)))


async def _read_body(reader: asyncio.StreamReader, fields: list[bytes]) -> bytes:
    by_name = {}
    for field in fields:
        name, _, value = field.partition(b":")
        by_name[name.lower()] = value.strip()
    if b"chunked" in by_name.get(b"transfer-encoding", b""):
        body = b""
        while size := int((await reader.readline()).strip(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
        return body
    return await reader.readexactly(int(by_name.get(b"content-length", b"0")))


def _describe(method: str, path: str, body: bytes, answer: bytes) -> Recorded:
    head = answer.partition(b"\r\n\r\n")[0].decode("latin-1")
    status_line, *fields = head.split("\r\n")
    status = int(status_line.split(" ")[1]) if status_line else 0
    outcome = ""
    for field in fields:
        name, _, value = field.partition(":")
        if name.lower() == "x-lamina":
            outcome = value.strip()
    return Recorded(method, path, body, status, outcome, answer)


@contextmanager
def run_recorder() -> Iterator[Recorder]:
    """A recorder in a thread of its own. Connections that are open at the end are closed."""
    recorder = Recorder()
    ready = threading.Event()
    loop: asyncio.AbstractEventLoop
    stop: asyncio.Event

    async def main() -> None:
        nonlocal loop, stop
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(recorder.serve, "127.0.0.1", 0, limit=1 << 26)
        recorder.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ready.set()
        await stop.wait()
        await asyncio.sleep(0.05)  # a server that closes drops what it has just accepted without closing it
        server.close()
        await recorder.end_connections()

    thread = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
    thread.start()
    ready.wait()
    try:
        yield recorder
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(5)
