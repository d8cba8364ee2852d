"""What a wrapped client sent and got is in the record: with everything kept, each request and answer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import lamina
from lamina import Policy
from lamina.conversations import delete_conversation
from lamina.conversations.record import ConversationRecord
from lamina.conversations.store import ANSWERS, list_conversations, read_record
from lamina.core.tokens import BYTES4
from lamina.stores import open_store
from lamina.stores.port import OwnName
from tests.wrapped.scripted_api import Call, Said, ScriptedApi, scripted_api
from tests.wrapped.test_wrap_recall import (
    BUDGET,
    FACT,
    HANDLE,
    Api,
    ask_helper,
    ask_whole,
    close,
    each_api_and_way,
    fill,
    flatten,
    long_answer,
    remembering,
    user,
)


async def read_only(store: Path) -> ConversationRecord:
    async with open_store(str(store)) as opened:
        [kept] = [kept async for kept in list_conversations(opened, "default")]
        return await read_record(opened, "default", kept.name)


def rewrap(api: Api, url: str, store: Path, keep: Any) -> Any:
    """The client of these tests, with a policy that says what its store keeps."""
    inner = vars(api.client(url))["_inner"]
    policy = Policy(counter=BYTES4, breakpoints="keep", keep=keep)
    return lamina.wrap(inner, budget=BUDGET, policy=policy, store=store)


@each_api_and_way
def test_every_request_and_answer_is_in_the_record(api: Api, ask: Any, tmp_path: Path) -> None:
    store = tmp_path / "chats.db"

    async def talk(served: ScriptedApi) -> ConversationRecord:
        client = rewrap(api, served.url, store, "all")
        history: list[Any] = []
        await fill(api, ask, client, history, 9)
        history.append(user("When opens the harbour?"))
        _, text = await ask(api, client, history)
        assert text == f"It says: {FACT}"
        await close(client)
        return await read_only(store)

    with scripted_api(remembering(api)) as served:
        record = asyncio.run(talk(served))
        sent = [json.loads(record.sent_body(call) or b"") for call in record.calls]
        assert len(sent) == len(served.requests)
        for recorded, received in zip(sent, served.requests, strict=True):
            field = "input" if api.name == "responses" else "messages"
            if api.name == "responses" and ask is ask_helper:
                # The helper's objects have fields of their own, which the SDK leaves out when it sends them.
                assert len(recorded[field]) == len(received[field])
            else:
                assert recorded[field] == received[field]
            assert recorded.get("tools") == received.get("tools")
    assert [call.request.why for call in record.calls][-2:] == ["", "recall"]
    assert any(call.request.cut is not None for call in record.calls)
    for call in record.calls:
        assert call.answer is not None
        assert call.answer.status == 200


@pytest.mark.parametrize("keep", ["lowered", "nothing"])
def test_without_everything_kept_there_are_no_bodies(keep: str, tmp_path: Path) -> None:
    api = Api("completions", is_async=False)
    store = tmp_path / "chats.db"
    with scripted_api(remembering(api)) as served:
        client = rewrap(api, served.url, store, keep)
        client.chat.completions.create(**api.request([user("Part 0?")]))
        client.close()
    record = asyncio.run(read_only(store))
    assert len(record.calls) == (1 if keep == "lowered" else 0)
    assert all(record.sent_body(call) is None for call in record.calls)


@pytest.mark.parametrize("streams", [False, True])
def test_a_client_goes_on_by_id_after_a_restart_until_the_conversation_is_deleted(
    tmp_path: Path, *, streams: bool
) -> None:
    """The store has the ids of answers, as that of a gateway has."""
    api = Api("responses", is_async=False)
    store = tmp_path / "chats.db"

    def script(request: dict[str, Any]) -> Said:
        last = flatten(api.turns(request)[-1])
        if "harbour?" not in last:
            return [long_answer(last)]
        recall = Call("recall", {"key": HANDLE.findall(flatten(request))[0], "find": "opens at"}, "r1")
        return [recall, Call("read_file", {"path": "a.txt"}, "c1")]

    def wrap_anew() -> Any:
        return rewrap(api, served.url, store, "lowered")

    async def delete_all() -> list[int]:
        async with open_store(str(store)) as opened:
            answers = OwnName(f"{ANSWERS}default")
            before = len(await opened.list(answers))
            for kept in [kept async for kept in list_conversations(opened, "default")]:
                await delete_conversation(opened, "default", kept.name)
            return [before, len(await opened.list(answers))]

    with scripted_api(script) as served:
        history: list[Any] = []
        asyncio.run(fill(api, ask_whole, wrap_anew(), history, 9))
        request = api.request([*history, user("When opens the harbour?")])
        if streams:
            answer = list(wrap_anew().responses.create(**request, stream=True))[-1].response
        else:
            answer = wrap_anew().responses.create(**request)
        [call] = answer.output
        results = api.results([call.call_id], "text")
        wrap_anew().responses.create(**api.request(results), previous_response_id=answer.id)
        recalled, own_result = served.requests[-1]["input"]
        assert (recalled["call_id"], own_result["call_id"]) == ("r1", "c1")
        assert FACT in recalled["output"]
    assert asyncio.run(delete_all()) == [1, 0]
