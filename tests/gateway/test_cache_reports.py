"""A provider that says why its cache missed, because the client has asked it: recorded, logged and shown."""

from __future__ import annotations

import asyncio
import json
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from lamina import Budget
from lamina.conversations.store import list_conversations, read_record
from lamina.stores import open_store
from tests.cli.running import run
from tests.gateway.growing import messages_request
from tests.gateway.running import RunningGateway, open_client, run_gateway, settings_for
from tests.gateway.test_conversations import post
from tests.gateway.upstream_stub import SeenRequest, Stub, answer_of, events, response, serve_stub

pytestmark = pytest.mark.anyio

Json = dict[str, Any]


class ReportingStub(Stub):
    """An upstream that says why its cache missed, if a request asks for that."""

    async def _answer(self, request: SeenRequest, writer: asyncio.StreamWriter) -> None:
        content_type, answer = answer_of(request)
        facts: Json = {"id": f"msg_{len(self.seen)}", "diagnostics": None}
        if (request.json.get("diagnostics") or {}).get("previous_message_id"):
            reason = {"type": "system_changed", "cache_missed_input_tokens": 77}
            facts["diagnostics"] = {"cache_miss_reason": reason}
        if content_type == "application/json":
            answer = json.dumps(json.loads(answer) | facts).encode()
        else:
            answer = _put_into_events(answer, facts)
        writer.write(response(200, content_type, answer))


def _put_into_events(answer: bytes, facts: Json) -> bytes:
    """The events of a stream, with these fields in the message that begins it."""
    values: list[Any] = []
    for line in answer.decode().splitlines():
        if not line.startswith("data: "):
            continue
        value = json.loads(line.removeprefix("data: "))
        if "message" in value:
            value["message"] |= facts
        values.append(value)
    return events(*values, named=True)


async def converse(settings: Any, requests: list[Json]) -> RunningGateway:
    async with run_gateway(settings) as gateway, open_client() as client:
        for request in requests:
            status, _ = await post(client, gateway.url, request, "/v1/messages")
            assert status == 200
        return gateway


def grow(steps: int, **fields: Any) -> Json:
    return messages_request(steps, size=6_000, **fields)


def read_answers(store: Path) -> list[Any]:
    async def read() -> list[Any]:
        async with open_store(str(store)) as opened:
            names = [kept.name async for kept in list_conversations(opened, "default")]
            record = await read_record(opened, "default", names[0])
            return [call.answer for call in record.calls]

    return asyncio.run(read())


@pytest.mark.parametrize("stream", [False, True])
def test_what_a_client_asks_is_passed_on_and_its_answer_recorded(tmp_path: Path, *, stream: bool) -> None:
    requests = [grow(2, stream=stream, diagnostics={"previous_message_id": None})]
    requests.append(grow(3, stream=stream, diagnostics={"previous_message_id": "msg_1"}))
    store = tmp_path / "gateway.db"

    async def run_all() -> tuple[ReportingStub, RunningGateway]:
        async with serve_stub(ReportingStub()) as stub:
            return stub, await converse(settings_for(stub, store, keep="all"), requests)

    stub, gateway = asyncio.run(run_all())
    assert [seen.json for seen in stub.seen] == requests
    assert [line["provider_cause"] for line in gateway.events("answered")] == ["", "system_changed"]
    answers = read_answers(store)
    assert [(answer.provider_cause, answer.provider_missed) for answer in answers] == [
        ("", 0),
        ("system_changed", 77),
    ]
    journal = tmp_path / "gateway.log"
    journal.write_text(gateway.log.getvalue())
    assert "the provider says system_changed" in run("tail", journal, "--once").out


async def test_the_gateway_itself_asks_nothing(tmp_path: Path) -> None:
    async with serve_stub(ReportingStub()) as stub:
        await converse(settings_for(stub, tmp_path / "gateway.db"), [grow(2), grow(3)])
    assert not any("diagnostics" in seen.json for seen in stub.seen)


class CachingStub(Stub):
    """An upstream whose cache has every request that it saw, from the first byte on."""

    async def _answer(self, request: SeenRequest, writer: asyncio.StreamWriter) -> None:
        cached = 0
        for earlier in self.seen[:-1]:
            same = takewhile(lambda pair: pair[0] == pair[1], zip(earlier.body, request.body, strict=False))
            cached = max(cached, sum(1 for _ in same))
        usage = {
            "input_tokens": (len(request.body) - cached) // 4,
            "cache_read_input_tokens": cached // 4,
            "output_tokens": 5,
        }
        content_type, answer = answer_of(request)
        writer.write(response(200, content_type, json.dumps(json.loads(answer) | {"usage": usage}).encode()))


async def test_two_gateways_on_one_store_report_no_miss_that_did_not_happen(tmp_path: Path) -> None:
    """What the other one sent last is not known: comparing with an older request blamed the client."""
    async with serve_stub(CachingStub()) as stub, open_client() as client:
        window = {"budget": Budget(window=8_000, reserve=500)}
        settings = settings_for(stub, tmp_path / "gateway.db", upstream=window)
        async with run_gateway(settings) as first, run_gateway(settings) as second:
            for steps in range(4, 24):
                gateway = (first, second)[steps % 2]
                status, _ = await post(client, gateway.url, messages_request(steps))
                assert status == 200
            assert first.events("cut") + second.events("cut")
            assert first.events("miss") + second.events("miss") == []
