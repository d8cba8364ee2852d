"""The record under what users and other processes do: deletion in mid-talk, edits, odd objects."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

from lamina.conversations import delete_conversation
from lamina.conversations.record import ConversationRecord, SentRequest
from lamina.conversations.record_writer import RecordWriter
from lamina.conversations.store import find_conversation, list_conversations, read_record
from lamina.stores import open_store
from tests.conversations.test_record import grow, save
from tests.gateway.growing import chat_request, dump
from tests.gateway.running import open_client, run_gateway, settings_for
from tests.gateway.test_record import happened, post, wait_for_calls
from tests.gateway.upstream_stub import SeenRequest, run_stub
from tests.test_one_conversation import ask, wrapped
from tests.test_recognised import Talker


def test_a_record_that_was_deleted_begins_anew() -> None:
    """The writer knows places of pieces that are gone: it must not name them."""
    writer = RecordWriter()
    writer.listed["address"] = "page"
    writer.add_sent(SentRequest(id="1", at=0.0), body=grow(20))
    save(writer, [])
    stored: list[bytes] = []
    writer.skip_to(0)
    writer.add_sent(SentRequest(id="2", at=0.0), body=grow(21))
    save(writer, stored)
    record = ConversationRecord()
    record.read(stored)
    assert [record.sent_body(call) for call in record.calls] == [grow(21)]
    assert not writer.listed


def test_a_wrapped_client_goes_on_after_its_conversation_was_deleted(tmp_path: Path) -> None:
    store = tmp_path / "chats.db"

    async def main() -> tuple[int, list[bytes | None]]:
        async with run_stub() as stub:
            client = wrapped(stub.url, store, "", keep="all")
            for steps in range(4):
                await ask(client, steps)
            async with open_store(str(store)) as opened:
                [kept] = [kept async for kept in list_conversations(opened, "default")]
                assert await delete_conversation(opened, "default", kept.name)
            for steps in (4, 5):
                await ask(client, steps)
            await client.close()
            again = wrapped(stub.url, store, "", keep="all")  # found by its beginning, so it is listed again
            await ask(again, 6)
            await again.close()
            async with open_store(str(store)) as opened:
                [kept] = [kept async for kept in list_conversations(opened, "default")]
                record = await read_record(opened, "default", kept.name)
            return len(record.calls), [record.sent_body(call) for call in record.calls]

    count, bodies = asyncio.run(main())
    assert count == 3
    asked = [json.loads(body or b"")["messages"] for body in bodies]
    assert asked == [chat_request(steps)["messages"] for steps in (4, 5, 6)]


def test_a_gateway_goes_on_after_its_conversation_was_deleted(tmp_path: Path) -> None:
    store = tmp_path / "gateway.db"

    async def main() -> list[SeenRequest]:
        async with (
            run_stub() as stub,
            run_gateway(settings_for(stub, store, keep="all")) as gateway,
            open_client() as client,
        ):
            path = "/v1/chat/completions"
            for steps in range(4):
                await post(client, gateway.url, chat_request(steps), path)
            await wait_for_calls(store, 4, answered=4)
            async with open_store(str(store)) as opened:
                [kept] = [kept async for kept in list_conversations(opened, "default")]
                assert await delete_conversation(opened, "default", kept.name)
            for steps in (4, 5):
                await post(client, gateway.url, chat_request(steps), path)
            return stub.seen

    seen = asyncio.run(main())
    bodies = asyncio.run(happened(store)).bodies()
    assert bodies == [request.body for request in seen[-len(bodies) :]]
    assert len(bodies) >= 2


def test_edits_rewinds_forks_and_repeats_are_recorded_as_they_left(tmp_path: Path) -> None:
    store = tmp_path / "gateway.db"
    talkers = [Talker(f"s{number}", random.Random(number)) for number in range(6)]  # noqa: S311

    async def main() -> list[SeenRequest]:
        async with (
            run_stub() as stub,
            run_gateway(settings_for(stub, store, keep="all")) as gateway,
            open_client() as client,
        ):
            for _ in range(12):
                for talker in talkers:
                    request = {"model": "gpt-5", "messages": talker.request()}
                    await post(client, gateway.url, dump(request), "/v1/chat/completions")
            return stub.seen

    seen = asyncio.run(main())
    assert sorted(filter(None, asyncio.run(happened(store)).bodies())) == sorted(
        request.body for request in seen
    )


def test_a_conversation_says_when_it_began(tmp_path: Path) -> None:
    store = tmp_path / "gateway.db"

    async def main() -> tuple[float, float]:
        began = []
        async with (
            run_stub() as stub,
            run_gateway(settings_for(stub, store, workers=2, keep="all")) as gateway,
            open_client() as client,
        ):
            for steps in (0, 1):
                await post(client, gateway.url, chat_request(steps), "/v1/chat/completions")
                await wait_for_calls(store, steps + 1, answered=steps + 1)
                await asyncio.sleep(1.2)  # the second request comes in another second
                async with open_store(str(store)) as opened:
                    [kept] = [kept async for kept in list_conversations(opened, "default")]
                    found = await find_conversation(opened, "default", kept.name)
                    assert found is not None
                    began.append(found.state.began)
        return began[0], began[1]

    first, second = asyncio.run(main())
    assert first == second > 0
