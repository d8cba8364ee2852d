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
from tests.gateway.test_faults import drop, fail
from tests.gateway.upstream_stub import Fault, SeenRequest, Stub, answer_of, events, response, serve_stub

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
    assert "the provider says system_changed" in run("log", "-f", journal, "--once").out


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


class RefusingStub(CachingStub):
    """Refuses each request once, in one of three ways, and has nothing of it in its cache."""

    def __init__(self, refusal: Fault) -> None:
        super().__init__()
        self._refusal = refusal
        self._refused: set[bytes] = set()

    async def _answer(self, request: SeenRequest, writer: asyncio.StreamWriter) -> None:
        if request.body in self._refused:
            await super()._answer(request, writer)
            return
        self._refused.add(request.body)
        self.seen.pop()
        await self._refusal(request, writer)


REPORTED = ("conversation", "input", "cached", "predicted", "cut", "full", "unchanged")
COUNTED = ("counted", "new", "held_back")


async def list_figures(stub: CachingStub, store: Path, *, tries: int) -> list[list[Any]]:
    """What the log says of each answer in a conversation that is cut, and the cuts that the record has."""
    window = {"budget": Budget(window=8_000, reserve=500)}
    async with (
        serve_stub(stub),
        run_gateway(settings_for(stub, store, upstream=window, keep="all", retry_seconds=0)) as gateway,
        open_client() as client,
    ):
        for steps in range(4, 20):
            statuses = [(await post(client, gateway.url, messages_request(steps)))[0] for _ in range(tries)]
            assert statuses[-1] == 200
        assert gateway.events("miss") == []
        lines = gateway.events("answered")
        cut_numbers = [line["cut"] for line in gateway.events("cut")]
    assert cut_numbers == sorted(set(cut_numbers))  # each is logged once
    assert sum(line["cut"] for line in lines) == len(cut_numbers) > 0
    figures: list[list[Any]] = []
    for line in lines:
        figures.append([line[name] for name in REPORTED])
        if line["unchanged"]:  # before the first cut not all are counted
            figures.append([line[name] for name in COUNTED])
    return figures


@pytest.mark.parametrize("refusal", [fail(429), fail(400), drop], ids=["429", "400", "dropped"])
async def test_a_request_that_was_refused_counts_as_none(tmp_path: Path, refusal: Fault) -> None:
    """It warms no cache: a cut that it was first sent with explains what the next try has to write."""
    figures = await list_figures(RefusingStub(refusal), tmp_path / "refused.db", tries=2)
    assert figures == await list_figures(CachingStub(), tmp_path / "answered.db", tries=1)


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
