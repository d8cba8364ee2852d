"""What need not change leaves as it came: bodies, headers and answers, for the shapes of seven clients."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from io import BytesIO
from itertools import product

import aiohttp
import brotli  # type: ignore[import-untyped]
import pytest
from yarl import URL

from tests.gateway.client_shapes import SHAPES, ClientRequest
from tests.gateway.running import open_client, proxied, run_gateway, settings_for
from tests.gateway.upstream_stub import SeenRequest, Stub, answer_with, run_stub

pytestmark = pytest.mark.anyio

CONVERSATIONS, STEPS = 4, 12
"""What each client sends here: so many conversations, each with so many requests."""

HOP = {"host", "connection", "content-length", "transfer-encoding"}


async def send(
    client: aiohttp.ClientSession, url: str, request: ClientRequest
) -> tuple[int, list[tuple[str, str]], bytes]:
    async with client.post(url + request.path, data=request.body, headers=request.headers) as answer:
        body = await answer.read()
        headers = [(name.lower(), value) for name, value in answer.headers.items()]
        return answer.status, sorted(header for header in headers if header[0] != "date"), body


def without_hop(request: SeenRequest) -> list[tuple[str, str]]:
    pairs = [(name.lower(), value) for name, value in request.headers]
    return sorted(pair for pair in pairs if pair[0] not in HOP)


async def compare(stub: Stub, gateway_url: str, requests: Sequence[ClientRequest]) -> None:
    """Send each request directly and through the gateway, and compare everything that can be seen."""
    async with open_client() as client:
        for request in requests:
            direct = await send(client, stub.url, request)
            through = await send(client, gateway_url, request)
            assert through == direct
            seen_direct, seen_through = stub.seen[-2:]
            assert seen_through.body == seen_direct.body == request.body
            assert without_hop(seen_through) == without_hop(seen_direct)
            assert seen_through.path == seen_direct.path


@pytest.mark.parametrize("name", SHAPES)
async def test_the_requests_of_a_client_pass_byte_for_byte(name: str) -> None:
    shape = SHAPES[name]
    requests = [shape(*each) for each in product(range(CONVERSATIONS), range(STEPS))]
    async with run_stub() as stub, run_gateway(settings_for(stub)) as gateway:
        await compare(stub, gateway.url, requests)
        assert len(stub.seen) == 2 * len(requests)
        assert gateway.events("not fitted") == gateway.events("refused") == gateway.events("cut") == []


@pytest.mark.parametrize("encoding", ["gzip", "br"])
async def test_packed_bodies_and_packed_answers_stay_packed(encoding: str) -> None:
    pack = {"gzip": lambda data: gzip.compress(data, mtime=0), "br": brotli.compress}[encoding]
    plain = SHAPES["pi"](1, 3)
    request = ClientRequest(plain.path, plain.headers | {"content-encoding": encoding}, pack(plain.body))
    async with proxied() as (stub, gateway, client):
        if encoding == "gzip":
            stub.packs = "gzip"
            await compare(stub, gateway.url, [request])
        else:
            stub.play(answer_with({}))
            _, _, body = await send(client, gateway.url, request)
            assert stub.seen[-1].body == request.body
            assert body == b"{}"


async def test_other_paths_pass_with_method_query_and_body() -> None:
    async with proxied() as (stub, gateway, client):
        async with client.get(
            URL(f"{gateway.url}/v1/models?client_version=0.1&a=%2F", encoded=True)
        ) as answer:
            assert answer.status == 200
            direct = await (await client.get(f"{stub.url}/v1/models")).read()
            assert await answer.read() == direct
        assert stub.seen[0].method == "GET"
        assert stub.seen[0].path == "/v1/models?client_version=0.1&a=%2F"
        data = b"x" * 3_000_000
        async with client.post(f"{gateway.url}/v1/files", data=BytesIO(data)) as answer:
            assert answer.status == 200
        assert stub.seen[-1].body == data


async def test_probes_and_websockets_are_answered_at_once() -> None:
    async with proxied() as (stub, gateway, client):
        for path in ("/", "/api/hello"):
            async with client.head(gateway.url + path) as answer:
                assert answer.status == 200
        headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
        async with client.get(f"{gateway.url}/v1/responses", headers=headers) as answer:
            assert answer.status == 426
            async with client.get(f"{gateway.url}/metrics") as metrics:
                assert b'outcome="refused"' not in await metrics.read()
        for path, text in (
            ("/healthz", "ok"),
            ("/readyz", "ready"),
            ("/metrics", "lamina_requests_total"),
        ):
            async with client.get(gateway.url + path) as answer:
                assert answer.status == 200
                assert text in await answer.text()
        assert stub.seen == []
