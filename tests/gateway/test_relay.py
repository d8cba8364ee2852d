"""Single decisions on the way of an answer: what is held back, joined, counted and read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lamina.dialects import Usage
from lamina.relay import usage as usage_module
from lamina.relay.answer import _HeldPieces
from lamina.relay.calls import OutgoingRequest
from lamina.relay.usage import UsageReader
from tests.gateway.growing import dump, messages_request
from tests.gateway.running import TakenAnswer, run_gateway, settings_for
from tests.gateway.upstream_stub import run_stub

pytestmark = pytest.mark.anyio


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


@pytest.mark.parametrize(
    ("pieces", "number"),
    [
        ([], 0),
        ([b'data: {"type":"ping"}\n\n'], 0),
        ([b'data: {"sequence_number":0}\n\n'], 1),
        ([b'data: {"sequence_number": 6}\n\n', b'data: {"sequence_number": 7}\n\n'], 8),
        ([b'data: {"delta":"\\"sequence_number\\": 9"}\n\n'], 0),
    ],
)
async def test_an_event_of_our_own_goes_on_counting(pieces: list[bytes], number: int) -> None:
    writer = TakenAnswer().writer
    for piece in pieces:
        await writer.write(piece)
    assert writer.next_number == number


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
@pytest.mark.parametrize(("longer", "is_read"), [(0, True), (1, False)])
def test_an_answer_is_read_up_to_the_longest_one(
    monkeypatch: pytest.MonkeyPatch, content_type: str, longer: int, *, is_read: bool
) -> None:
    monkeypatch.setattr(usage_module, "LONGEST", 200)
    text = b'{"usage":{"input_tokens":9,"output_tokens":1}}'
    if content_type == "text/event-stream":
        text = b"data: " + text
    answer = text + b" " * (200 - len(text) + longer)
    reader = UsageReader(content_type, "", keeps_body=True)
    reader.feed(answer[:30])
    reader.feed(answer[30:])
    assert reader.kept_body() == (answer if is_read else None)
    assert reader.finish().input == (9 if is_read else 0)
