"""What the record says is what happened: every body that left, byte for byte, and what came back for it."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import zstandard

from lamina import Budget
from lamina.conversations.record import ConversationRecord, RecordedCall
from lamina.conversations.store import list_conversations, read_record
from lamina.dialects import DIALECTS
from lamina.stores import open_store
from tests.gateway.client_shapes import SHAPES
from tests.gateway.growing import HEADERS, chat_request, dump, messages_request
from tests.gateway.running import open_client, proxied, run_gateway, settings_for
from tests.gateway.test_conversations import twin_of
from tests.gateway.test_recall import (
    QUESTION,
    WINDOW,
    Wire,
    each_dialect,
    long_history,
    recall_once,
)
from tests.gateway.test_sdks import gateway_in_thread
from tests.gateway.upstream_stub import SeenRequest, run_stub
from tests.wrapped.scripted_api import scripted_api

pytestmark = pytest.mark.anyio

ALL: dict[str, Any] = {"upstream": {"budget": Budget(window=8_000, reserve=500)}, "keep": "all"}


class Happened:
    """The records of a store, in the order in which their requests left."""

    def __init__(self, records: list[tuple[str, ConversationRecord]]) -> None:
        self.records = dict(records)
        calls = [(name, record, call) for name, record in records for call in record.calls]
        self.calls = sorted(calls, key=lambda item: item[2].request.at)

    def bodies(self) -> list[bytes | None]:
        return [record.sent_body(call) for _, record, call in self.calls]

    def only(self) -> tuple[ConversationRecord, list[RecordedCall]]:
        [record] = self.records.values()
        return record, record.calls


async def happened(store: Path, workspace: str = "default") -> Happened:
    async with open_store(str(store)) as opened:
        names = [kept.name async for kept in list_conversations(opened, workspace)]
        return Happened([(name, await read_record(opened, workspace, name)) for name in names])


async def wait_for_calls(store: Path, count: int, *, answered: int = 0) -> None:
    """Wait until the store has so many calls and so many answers: a gateway stores them a moment later."""
    for _ in range(1_500):
        calls = [call for _, _, call in (await happened(store)).calls]
        if len(calls) >= count and sum(call.answer is not None for call in calls) >= answered:
            return
        await asyncio.sleep(0.02)
    raise RuntimeError("the calls were not stored")


async def post(
    client: aiohttp.ClientSession, url: str, request: dict[str, Any] | bytes, path: str = "/v1/messages"
) -> tuple[int, bytes]:
    body = request if isinstance(request, bytes) else dump(request)
    async with client.post(url + path, data=body, headers=HEADERS) as answer:
        return answer.status, await answer.read()


def unpack(seen: SeenRequest) -> bytes:
    match seen.header_map.get("content-encoding", ""):
        case "gzip":
            return gzip.decompress(seen.body)
        case "zstd":
            return zstandard.ZstdDecompressor().decompressobj().decompress(seen.body)
    return seen.body


@pytest.mark.parametrize("streams", [False, True])
async def test_every_body_that_left_is_in_the_record(tmp_path: Path, *, streams: bool) -> None:
    """Thirty requests with cuts, an equal one twice, and the answers as they came."""
    store = tmp_path / "gateway.db"
    answers: list[bytes] = []
    async with proxied(store, **ALL) as (stub, gateway, client):
        for steps in [*range(30), 29]:
            status, answer = await post(client, gateway.url, messages_request(steps, stream=streams))
            assert status == 200
            answers.append(answer)
        assert gateway.events("cut")
        seen = stub.seen
    record, calls = (await happened(store)).only()
    assert [record.sent_body(call) for call in calls] == [request.body for request in seen]
    asked = [dump(messages_request(steps, stream=streams)) for steps in [*range(30), 29]]
    assert [record.came_body(call) for call in calls] == asked
    assert [record.answer_body(call) for call in calls] == answers
    for call, request in zip(calls, seen, strict=True):
        assert call.answer is not None
        assert call.answer.status == 200
        assert call.answer.usage is not None
        assert call.answer.usage.input == len(request.body) // 4 + 9 + 1_000
        assert call.request.window == 8_000
    assert [call.request.epoch for call in calls] == sorted(call.request.epoch for call in calls)
    assert sum(call.request.cut is not None for call in calls) == calls[-1].request.epoch
    assert len(record.ledger(calls[-1]).cuts) == calls[-1].request.epoch


@pytest.mark.parametrize("name", SHAPES)
async def test_conversations_of_each_client_are_told_apart_and_kept_as_they_left(
    name: str, tmp_path: Path
) -> None:
    """Six conversations take turns. Each is one at the end, with or without ids of its client.

    Each client writes its JSON in its own way. Packed bodies are kept unpacked.
    """
    store = tmp_path / "gateway.db"
    async with proxied(store, keep="all") as (stub, gateway, client):
        for steps in range(5):
            for conversation in range(6):
                request = SHAPES[name](conversation, steps)
                url = gateway.url + request.path
                async with client.post(url, data=request.body, headers=request.headers) as answer:
                    assert answer.status == 200
                    await answer.read()
    found = await happened(store)
    assert sorted(filter(None, found.bodies())) == sorted(map(unpack, stub.seen))
    assert [len(record.calls) for record in found.records.values()] == [5] * 6


async def test_a_refused_request_and_the_shorter_one_are_two(tmp_path: Path) -> None:
    store = tmp_path / "gateway.db"
    async with proxied(store, keep="all", upstream={"budget": 100_000}) as (stub, gateway, client):
        await post(client, gateway.url, messages_request(3))
        stub.window = 20_000
        status, _ = await post(client, gateway.url, messages_request(12))
        assert status == 200
        seen = stub.seen
        new_tokens = [line["new"] for line in gateway.events("answered")]
    assert new_tokens[-1] > 0  # it has nine steps more than the last request that was answered
    record, calls = (await happened(store)).only()
    assert [record.sent_body(call) for call in calls] == [request.body for request in seen]
    refused, shorter = calls[-2:]
    assert refused.answer is not None
    assert refused.answer.status == 400
    assert b"prompt is too long" in (record.answer_body(refused) or b"")
    assert shorter.request.follows == refused.request.id
    assert shorter.request.why == "refused as too long"


async def hang_up(_: SeenRequest, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def test_failures_are_noted(tmp_path: Path) -> None:
    store = tmp_path / "gateway.db"
    async with proxied(store, keep="all") as (stub, gateway, client):
        assert (await post(client, gateway.url, messages_request(1)))[0] == 200
        stub.play(hang_up, hang_up)  # the gateway asks once more
        assert (await post(client, gateway.url, messages_request(2)))[0] == 502
    _, [answered, failed] = (await happened(store)).only()
    assert answered.answer is not None
    assert answered.answer.status == 200
    assert failed.answer is not None
    assert failed.answer.status == 0
    assert "failed" in failed.answer.error


async def test_what_is_only_lowered_is_said_and_bodies_are_not_kept(tmp_path: Path) -> None:
    store = tmp_path / "gateway.db"
    settings = {**ALL, "keep": "lowered"}
    async with proxied(store, **settings) as (stub, gateway, client):
        for steps in range(20):
            await post(client, gateway.url, chat_request(steps), "/v1/chat/completions")
        seen = stub.seen
    record, calls = (await happened(store)).only()
    assert [record.sent_body(call) for call in calls] == [None] * 20
    assert [DIALECTS["openai_chat"].wire.check(request.json) for request in seen] == [[]] * 20
    assert [call.request.size for call in calls] == [len(request.body) for request in seen]
    assert record.segments  # what was lowered
    assert all(call.answer is not None and call.answer.usage is not None for call in calls)


async def test_two_gateways_write_one_record(tmp_path: Path) -> None:
    """Requests of one conversation go to two gateways in turn, as behind a balancer."""
    store = tmp_path / "gateway.db"
    async with run_stub() as stub:
        settings = settings_for(stub, store, workers=2, **ALL)
        async with run_gateway(settings) as one, run_gateway(settings) as other, open_client() as client:
            for steps in range(24):
                url = (one, other)[steps % 2].url
                assert (await post(client, url, messages_request(steps)))[0] == 200
        seen = stub.seen
    found = await happened(store)
    assert sorted(filter(None, found.bodies())) == sorted(request.body for request in seen)
    assert len(found.records) == 1
    assert [request.body for request in seen] == await twin_of(tmp_path)
    stored = store.stat().st_size
    assert stored < 12 * len(seen[-1].body) + 400_000


async def test_the_record_goes_on_after_a_restart(tmp_path: Path) -> None:
    store = tmp_path / "gateway.db"
    async with run_stub() as stub, open_client() as client:
        for start in (0, 10):
            async with run_gateway(settings_for(stub, store, **ALL)) as gateway:
                for steps in range(start, start + 10):
                    assert (await post(client, gateway.url, messages_request(steps)))[0] == 200
        seen = stub.seen
    record, calls = (await happened(store)).only()
    assert [record.sent_body(call) for call in calls] == [request.body for request in seen]


async def test_the_record_is_no_longer_than_the_conversation(tmp_path: Path) -> None:
    """Fifty requests of up to 120 KB: what is stored grows with the text, not with its square."""
    store = tmp_path / "gateway.db"

    async with proxied(store, keep="all") as (stub, gateway, client):
        for steps in range(50):
            assert (await post(client, gateway.url, messages_request(steps)))[0] == 200
    record, calls = (await happened(store)).only()
    assert len(calls) == 50
    async with open_store(str(store)) as opened:
        [kept] = [kept async for kept in list_conversations(opened, "default")]
    assert kept.state.title == "Do it."
    assert (kept.state.door, kept.state.keep) == ("gateway", "all")
    assert store.stat().st_size < 3 * len(stub.seen[-1].body)
    assert json.loads(record.sent_body(calls[-1]) or b"")["messages"]


@each_dialect
def test_recalls_are_requests_of_their_own(wire: Wire, tmp_path: Path) -> None:
    """The model recalls something inside one answer: two requests left, and a third one after a restart."""
    store = tmp_path / "gateway.db"
    history = [*long_history(wire), wire.user(QUESTION)]
    with scripted_api(lambda request: recall_once(wire, request, "Let me look.")) as api:
        settings = settings_for(api.url, store, upstream=WINDOW, keep="all")
        with gateway_in_thread(settings) as gateway:
            reply = wire.ask(gateway.url, history)
        history += [*reply.turns, wire.user("Thanks.")]
        with gateway_in_thread(settings) as gateway:
            wire.ask(gateway.url, history)
    record, calls = asyncio.run(happened(store)).only()
    assert [json.loads(record.sent_body(call) or b"") for call in calls] == api.requests
    assert [call.request.why for call in calls] == ["", "recall", ""]
    assert calls[1].request.follows == calls[0].request.id
    assert [call.answer is not None and call.answer.recalled for call in calls] == [True, False, False]
    assert len(record.ledger(calls[-1]).cuts) >= 1
