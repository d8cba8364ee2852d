"""How a gateway stops: what runs is finished, what takes too long is told, and the process ends with 0."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.growing import HEADERS, chat_request, dump
from tests.gateway.processes import run_process
from tests.gateway.running import open_client, settings_for

pytestmark = pytest.mark.anyio

STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
EVENTS = {
    "/v1/chat/completions": b'data: {"choices":[]}\n\n',
    "/v1/messages": b'event: ping\ndata: {"type":"ping"}\n\n',
    "/v1/responses": b'event: response.created\ndata: {"type":"response.created","sequence_number":0}\n\n',
}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {},
    "/v1/messages": {"model": "claude-opus-4-6", "max_tokens": 9},
    "/v1/responses": {"input": "hi"},
}


class SlowUpstream:
    """Begins a stream for each request, and ends it when it is told."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.begun = asyncio.Semaphore(0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split(b" ")[1].decode()
        writer.write(STREAM_HEAD + EVENTS[path])
        await writer.drain()
        self.begun.release()
        await self.may_end.wait()
        writer.write(b"data: [DONE]\n\n")
        writer.close()


@asynccontextmanager
async def run_slow_upstream() -> AsyncIterator[tuple[SlowUpstream, str]]:
    upstream = SlowUpstream()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1")
    async with server:
        yield upstream, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        upstream.may_end.set()


def request_for(path: str) -> bytes:
    body = BODIES[path]
    if path != "/v1/responses":
        body = {**chat_request(1), **body}
    return dump({**body, "model": body.get("model", "gpt-5"), "stream": True})


async def test_what_runs_is_finished_and_the_status_is_0(tmp_path: Path) -> None:
    async with run_slow_upstream() as (upstream, url), open_client() as client:
        settings = settings_for(url, tmp_path / "gateway.db")
        async with run_process(settings) as gateway:
            address = f"{gateway.url}/v1/chat/completions"
            data = request_for("/v1/chat/completions")
            async with client.post(address, data=data, headers=HEADERS) as answer:
                await answer.content.readline()
                gateway.stop()
                await gateway.wait_until_closed()
                upstream.may_end.set()
                assert (await answer.read()).endswith(b"data: [DONE]\n\n")
            status, events, noise = await gateway.finish()
    assert (status, noise) == (0, "")
    assert events[-1]["event"] == "stopped"
    assert events[-1]["cut_off"] == 0


async def test_a_stream_that_takes_too_long_ends_with_an_error_of_its_api(tmp_path: Path) -> None:
    async with run_slow_upstream() as (upstream, url), open_client() as client:
        settings = settings_for(url, tmp_path / "gateway.db", drain_seconds=0.2)
        async with run_process(settings) as gateway:

            async def ask(path: str) -> bytes:
                data = request_for(path)
                async with client.post(f"{gateway.url}{path}", data=data, headers=HEADERS) as answer:
                    return await answer.read()

            asking = {path: asyncio.ensure_future(ask(path)) for path in EVENTS}
            for _ in EVENTS:
                await upstream.begun.acquire()
            gateway.stop()
            answers = {path: await task for path, task in asking.items()}
            status, events, noise = await gateway.finish()
    for path, body in answers.items():
        assert body.startswith(EVENTS[path])
        last_event = body.strip().split(b"\n\n")[-1]
        assert b"lamina: the gateway is stopping" in last_event
        assert b"error" in last_event
    assert (status, noise) == (0, "")
    assert events[-1]["event"] == "stopped"
    assert events[-1]["cut_off"] == len(EVENTS)


async def test_a_public_gateway_stays_open_until_a_load_balancer_has_seen_that_it_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = "long-and-random-0"  # noqa: S105 - of this test
    monkeypatch.setenv("LAMINA_GATEWAY_TOKEN", token)
    headers = {"x-lamina-token": token}
    every_address = "0.0.0.0"  # noqa: S104 - it needs a token
    settings = settings_for("http://127.0.0.1:9", tmp_path / "gateway.db", host=every_address, workers=2)
    async with open_client() as client, run_process(settings) as gateway:
        gateway.stop()
        seen_statuses: set[int] = set()
        try:
            async with asyncio.timeout(20):
                while True:
                    async with client.get(f"{gateway.url}/readyz", headers=headers) as answer:
                        seen_statuses.add(answer.status)
                    await asyncio.sleep(0.01)
        except OSError:
            pass  # closed, after it was seen not to be ready
        status, _, noise = await gateway.finish()
    assert 503 in seen_statuses
    assert (status, noise) == (0, "")


async def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    async with (
        run_slow_upstream() as (_, url),
        open_client() as client,
        run_process(settings_for(url, tmp_path / "gateway.db")) as gateway,
    ):
        address = f"{gateway.url}/v1/chat/completions"
        data = request_for("/v1/chat/completions")
        async with client.post(address, data=data, headers=HEADERS) as answer:
            await answer.content.readline()
            gateway.stop(signal.SIGINT)
            await gateway.wait_until_closed()
            gateway.stop(signal.SIGINT)
            assert b"the gateway is stopping" in await answer.read()
        status, events, noise = await gateway.finish()
    assert (status, noise) == (0, "")
    assert events[-1]["cut_off"] == 1
