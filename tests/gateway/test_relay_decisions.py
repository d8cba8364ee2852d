"""Single decisions on the way of an answer: bodies without a link, failures, pauses."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from lamina.caches.lifetimes import FOR_EVER
from lamina.dialects.usage import Usage
from lamina.gateway.answer import _HeldPieces
from lamina.gateway.calls import OutgoingRequest
from lamina.gateway.client_connection import BodyRoom, BodyTicket, ClientConnection, ClientLink
from lamina.gateway.client_request import ClientRequest, LastHead
from lamina.gateway.config import GatewaySettings
from lamina.gateway.policies import PauseBook
from lamina.gateway.server import JoinedWrites
from lamina.gateway.usage import UsageReader
from tests.gateway.growing import HEADERS, dump, messages_request
from tests.gateway.running import proxied, run_gateway, settings_for
from tests.gateway.upstream_stub import run_stub

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("has_link", [False, True])
async def test_a_body_is_read_with_and_without_a_link_to_the_server(*, has_link: bool) -> None:
    messages = [
        {"type": "http.request", "body": b"first ", "more_body": True},
        {"type": "http.request", "body": b"last", "more_body": False},
    ]

    async def receive() -> Any:
        return messages.pop(0)

    link = ClientLink(lambda: None, LastHead(), lambda: None)
    client = ClientConnection(receive, [], GatewaySettings(), link if has_link else None)
    with BodyTicket(BodyRoom(1_000, seconds=1)) as ticket:
        body = await client.read_body(ticket)
    assert body == b"first last"
    assert link.wants_whole_body is has_link


async def test_a_failure_of_the_gateway_is_an_error_of_the_clients_api(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(ClientRequest, "read", fail)
    async with proxied() as (_, gateway, client):
        data = dump(messages_request(1))
        async with client.post(f"{gateway.url}/v1/messages", data=data, headers=HEADERS) as answer:
            status, error, log = answer.status, json.loads(await answer.read()), gateway.log.getvalue()
    assert status == 500
    assert error["error"]["message"] == "lamina: the gateway failed; its log names the error"
    assert "RuntimeError" in log
    assert "a bug" not in log


async def test_the_first_request_of_a_conversation_ends_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(PauseBook, "add", lambda _, __, pause: pauses.append(pause))
    async with proxied() as (_, gateway, client):
        for steps in (1, 2):
            data = dump(messages_request(steps))
            async with client.post(f"{gateway.url}/v1/messages", data=data, headers=HEADERS) as answer:
                assert answer.status == 200
                await answer.read()
    first, second = pauses
    assert first == FOR_EVER
    assert 0 <= second < FOR_EVER


@pytest.mark.parametrize(
    ("content_type", "delivered"),
    [
        ("application/json", [b"", b'{"usage":', b'{"input_tokens":9}}']),
        ("text/event-stream", [b'{"usage":', b'{"input_tokens":9}}', b""]),
    ],
)
async def test_near_a_cut_only_a_whole_answer_is_held_back(content_type: str, delivered: list[bytes]) -> None:
    """The last piece leaves when the report is stored; a stream is not delayed piece by piece."""
    reports: list[int] = []

    class Learner:
        async def record_answer(self, _: OutgoingRequest, usage: Usage, *, at_once: bool) -> None:
            assert at_once
            reports.append(usage.input)

    learner: Any = Learner()
    reader = UsageReader(content_type, "")
    held = _HeldPieces(learner, OutgoingRequest(is_near=True), reader, succeeded=True)
    pieces = [await held.take(b'{"usage":'), await held.take(b'{"input_tokens":9}}')]
    assert not reports
    assert [*pieces, await held.finish()] == delivered
    assert reports == [9]


def test_the_head_of_a_whole_answer_is_written_with_its_body() -> None:
    class Transport:
        def __init__(self) -> None:
            self.written: list[bytes] = []

        def write(self, data: bytes) -> None:
            self.written.append(data)

        def close(self) -> None:
            self.written.append(b"closed")

        def is_closing(self) -> bool:
            return False

    transport: Any = Transport()
    joined = JoinedWrites(transport)
    joined.write(b"head ")
    assert transport.written == []
    joined.write(b"body")
    joined.write(b"more")
    joined.close()
    assert transport.written == [b"head body", b"more", b"closed"]


async def test_an_answer_before_one_without_a_body_does_not_hold_that_one_back() -> None:
    async with run_stub() as stub, run_gateway(settings_for(stub)) as gateway:
        host, port = gateway.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = dump(messages_request(1))
        length = f"content-length: {len(body)}".encode()
        head = b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\nx-api-key: none\r\n"
        writer.write(head + length + b"\r\n\r\n" + body)
        writer.write(b"HEAD / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        async with asyncio.timeout(60):
            answers = await reader.read()
            while not reader.at_eof():
                answers += await reader.read()
        writer.close()
        assert answers.count(b"HTTP/1.1 200 OK") == 2
