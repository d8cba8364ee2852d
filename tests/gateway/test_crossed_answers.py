"""Many requests at once, between an upstream and clients that fail in every way: no answer is another's.

Each request has an id, and so has its answer. Connections are used again, cut, closed between two requests,
left in the middle. At the end nothing is open that nobody uses.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from lamina.relay import upstream_answer
from tests.gateway.running import RunningGateway, run_gateway, settings_for, until

pytestmark = pytest.mark.anyio

CLIENTS = 12
PATHS = ("/v1/chat/completions", "/v1/chat/completions", "/v1/files")
FAULTS = (
    *["none"] * 4,
    *("chunks", "torn", "hints", "until closed", "http 1.0", "closed after", "second answer"),
    *("no answer", "reset", "half a head", "half a body", "half a chunk", "noise", "overloaded", "early"),
)
BROKEN = ("half a body", "half a chunk")
"""What the client sees as an answer that breaks off."""

BREAKS = (ConnectionError, asyncio.IncompleteReadError, ValueError, RuntimeError)
"""How a connection ends here. uvloop raises a RuntimeError where it writes to a closed one."""


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


def answer_of(name: str) -> bytes:
    """The answer to the request of this name. Some are larger than what one read takes."""
    size = Random(name).choice((1, 40, 9_000))  # noqa: S311
    return json.dumps({"id": name, "choices": [], "text": f"{name} " * size}).encode()


def read_name(head: bytes) -> str:
    return head.partition(b"x-name: ")[2].partition(b"\r\n")[0].decode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def tear(data: bytes, chance: Random) -> Iterator[bytes]:
    """The data in up to nine pieces."""
    places = sorted(chance.randrange(len(data)) for _ in range(8))
    for start, end in zip([0, *places], [*places, len(data)], strict=True):
        yield data[start:end]


async def read_message(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """The body of a request or of an answer."""
    lines = head.lower()
    if b"transfer-encoding: chunked" in lines:
        body = b""
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
        return body
    length = lines.partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return await reader.readexactly(int(length or b"0"))


class FaultyUpstream:
    """Fails as the name of a request says. `mixed_up` are requests with the body of another one."""

    def __init__(self) -> None:
        self._chance = Random(1)  # noqa: S311
        self.open = 0
        self.mixed_up: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        with suppress(*BREAKS, TimeoutError):
            while await self._answer(reader, writer):
                await writer.drain()
        self.open -= 1
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request. Whether the connection stays open."""
        async with asyncio.timeout(self._chance.choice((0.005, 0.05, 9.0))):
            head = await reader.readuntil(b"\r\n\r\n")
        name = read_name(head)
        number, _, fault = name.partition("-")
        chance = Random(name)  # noqa: S311
        if fault == "early":
            writer.write(b"HTTP/1.1 413 No\r\nx-name: %b\r\ncontent-length: 0\r\n\r\n" % name.encode())
        if f"<{number}>".encode() not in await read_message(reader, head):
            self.mixed_up.append(name)
        if fault == "early":
            return chance.random() < 0.5
        if fault == "reset":
            writer.transport.abort()
            return False
        data = write_answer(name, fault, chance)
        for piece in tear(data, chance) if fault == "torn" else [data]:
            writer.write(piece)
            await asyncio.sleep(0.001)
        return fault in ("none", "chunks", "torn", "hints", "second answer", "overloaded")


def write_answer(name: str, fault: str, chance: Random) -> bytes:
    body = answer_of(name)
    named = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-name: %b\r\n" % name.encode()
    whole = named + b"content-length: %d\r\n\r\n" % len(body) + body
    chunked = named + b"transfer-encoding: chunked\r\n\r\n"
    chunks = b"".join(chunk(piece) for piece in tear(body, chance) if piece)
    answers = {
        "chunks": chunked + chunks + b"0\r\nx-sum: 1\r\n\r\n",
        "half a chunk": chunked + chunk(body[:9]) + b"fff\r\nabc",
        "hints": b"HTTP/1.1 103 Hint\r\nx-name: no\r\n\r\n" + whole,
        "second answer": whole * 2,
        "until closed": named + b"\r\n" + body,
        "http 1.0": named.replace(b"1.1", b"1.0", 1) + b"\r\n" + body,
        "no answer": b"",
        "half a head": whole[: chance.randrange(1, 40)],
        "half a body": whole[: -chance.randrange(1, len(body))],
        "noise": chance.randbytes(40),
        "overloaded": b"HTTP/1.1 503 No\r\nx-name: %b\r\ncontent-length: 2\r\n\r\nno" % name.encode(),
    }
    return answers.get(fault, whole)


class FaultyClient:
    """Asks again and again, on one connection as long as it holds, and leaves some requests."""

    def __init__(self, gateway: RunningGateway, number: int) -> None:
        self._port = int(gateway.url.rpartition(":")[2])
        self._number = number
        self._chance = Random(number)  # noqa: S311
        self.outcomes: Counter[str] = Counter()

    async def ask_often(self, count: int) -> None:
        streams = None
        for number in range(count):
            if streams is None:
                streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
            name = f"{self._number}.{number}-{self._chance.choice(FAULTS)}"
            stays = False
            with suppress(*BREAKS):
                stays = await asyncio.wait_for(self._ask(*streams, name), 20)
            if not stays:
                streams[1].transport.abort()
                streams = None
        if streams is not None:
            streams[1].close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str) -> bool:
        """Ask once. Whether the connection may be used again."""
        chance = self._chance
        request = {"model": "m", "messages": [{"role": "user", "content": f"<{name.partition('-')[0]}>"}]}
        body = json.dumps(request).encode() + b" " * chance.choice((0, 0, 50_000))
        head = f"POST {chance.choice(PATHS)} HTTP/1.1\r\nhost: 127.0.0.1\r\nx-name: {name}\r\n".encode()
        data = head + b"content-length: %d\r\n\r\n" % len(body) + body
        if chance.random() < 0.3:
            pieces = [chunk(piece) for piece in tear(body, chance) if piece]
            data = head + b"transfer-encoding: chunked\r\n\r\n" + b"".join(pieces) + b"0\r\n\r\n"
        leaves = chance.random()
        if leaves < 0.05:
            writer.write(data[: chance.randrange(len(data))])
            await asyncio.sleep(0.005)
            return False
        for piece in tear(data, chance):
            writer.write(piece)
            if leaves > 0.6:
                await asyncio.sleep(0.001)
        if leaves < 0.1:
            await asyncio.sleep(chance.random() * 0.02)
            return False
        answer = await reader.readuntil(b"\r\n\r\n")
        assert read_name(answer) in ("", name)
        if leaves < 0.15:
            return False
        return await self._check_answer(reader, answer, name)

    async def _check_answer(self, reader: asyncio.StreamReader, head: bytes, name: str) -> bool:
        try:
            body = await read_message(reader, head)
        except BREAKS:
            assert name.endswith(BROKEN)
            raise
        status = head[9:12].decode()
        self.outcomes[status] += 1
        assert status in ("200", "413", "502", "503")
        if status == "200":
            assert body == answer_of(name)
        return b"connection: close" not in head


async def ask_all(gateway: RunningGateway, count: int) -> Counter[str]:
    clients = [FaultyClient(gateway, number) for number in range(CLIENTS)]
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client.ask_often(count))
    return sum((client.outcomes for client in clients), Counter())


def count_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("count", [25, pytest.param(400, marks=pytest.mark.thorough)])
async def test_no_answer_is_another_ones_and_nothing_stays_open(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_answer, "PAUSE_SECONDS", 0.01)
    upstream = FaultyUpstream()
    async with await asyncio.start_server(upstream.serve, "127.0.0.1", limit=1 << 20) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with run_gateway(settings_for(url)) as gateway:
            before = count_open_files()
            outcomes = await ask_all(gateway, count)
            assert upstream.mixed_up == []
            assert outcomes["200"] > CLIENTS * count / 4
            assert not gateway.events("failed")
            assert await until(lambda: not gateway.server.server_state.connections, 10)
        assert await until(lambda: not upstream.open, 10)
        assert count_open_files() <= before
