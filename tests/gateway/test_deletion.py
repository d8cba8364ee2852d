"""A secret that went through a running gateway is in no file after it was deleted; the gateway goes on."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from lamina import Budget
from lamina.conversations import delete_conversation, delete_message
from lamina.conversations.listing import list_names
from lamina.conversations.store import conversation_place, read_record
from lamina.stores import Store, open_store
from tests.gateway.growing import messages_request
from tests.gateway.running import open_client, run_gateway, settings_for
from tests.gateway.test_record import ALL, post
from tests.gateway.upstream_stub import answer_with, run_stub

pytestmark = pytest.mark.anyio

PROMPT = "pw-prompt-33d1"
RESULT = "pw-result-77f0"
ANSWER = "pw-answer-9e2c"
SECRETS = (PROMPT, RESULT, ANSWER)


def make_request(steps: int) -> dict[str, Any]:
    """A request with a secret in the first prompt and in the second result."""
    request = messages_request(steps, task=f"Log in with {PROMPT}.")
    for message in request["messages"][4:5]:
        message["content"][0]["content"] = f"token = {RESULT}\n" + message["content"][0]["content"]
    return request


ANSWER_WITH_SECRET = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-5",
    "content": [{"type": "text", "text": f"It says {ANSWER}."}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 90, "output_tokens": 5},
}


async def wait_until_saved(store: Store, name: str) -> None:
    """The last answer is saved after the client has it: whoever deletes before that deletes too early."""
    for _ in range(200):
        calls = (await read_record(store, "default", name)).calls
        if len(calls) == 4 and all(call.answer is not None for call in calls):
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the last answer was not recorded")


def find_secrets(folder: Path) -> list[str]:
    files: Iterator[Path] = (path for path in folder.rglob("*") if path.is_file())
    return [
        f"{path.name}: {secret}"
        for path in files
        for secret in SECRETS
        if secret.encode() in path.read_bytes()
    ]


@pytest.mark.parametrize("keep", ["all", "lowered"])
@pytest.mark.parametrize("way", ["conversation", "message"])
async def test_a_secret_is_deleted_while_the_gateway_runs(tmp_path: Path, way: str, keep: str) -> None:
    store = tmp_path / "gateway.db"
    async with (
        run_stub() as stub,
        run_gateway(settings_for(stub, store, **ALL | {"keep": keep})) as gateway,
        open_client() as client,
        open_store(str(store)) as opened,
    ):
        for steps in (0, 2, 14, 18):
            stub.play(answer_with(ANSWER_WITH_SECRET))
            await post(client, gateway.url, make_request(steps))
        [name] = await list_names(opened, "")
        await wait_until_saved(opened, name)
        assert find_secrets(tmp_path)
        if way == "conversation":
            await delete_conversation(opened, "", name)
        else:
            stored = {entry.partition(": ")[2] for entry in find_secrets(tmp_path)}
            assert stored == {*SECRETS} or (keep == "lowered" and RESULT in stored)
            for secret in stored:
                await delete_message(opened, "", name, text=secret)
        assert find_secrets(tmp_path) == []
        status, _ = await post(client, gateway.url, messages_request(18, task="Log in."))
        assert status == 200
        assert find_secrets(tmp_path) == []
        for other in await list_names(opened, ""):
            record = await read_record(opened, "default", other)
            for call in record.calls:
                body = record.came_body(call)
                if body:
                    assert json.loads(body)["messages"]


def make_turn(number: int) -> list[dict[str, Any]]:
    question = f"Never forget: my number is secret-{number:04}. " + "Go on with it, please. " * 8
    return [
        {"role": "user", "content": question},
        {"role": "assistant", "content": f"Answer to {number}. " + "and so on, " * 80},
    ]


def delete_turn(turns: list[Any]) -> None:
    del turns[3]


def edit_turn(turns: list[Any]) -> None:
    turns[5] = [make_turn(99)[0], turns[5][1]]


def edit_first_turn(turns: list[Any]) -> None:
    turns[0] = [make_turn(99)[0], turns[0][1]]


def go_back(turns: list[Any]) -> None:
    del turns[1:]


CHANGES = (delete_turn, edit_turn, edit_first_turn, go_back)
LIVES = [
    *([[change]] for change in CHANGES),
    *([[], [change]] for change in CHANGES if change is not edit_first_turn),
    [[edit_first_turn, go_back]],
    [[edit_first_turn], [delete_turn]],
]
"""What a user does while each of some gateways lives, one after the other.

As far as the store tells, a conversation that has another beginning after a restart is another one.
"""


@pytest.mark.parametrize("lives", LIVES)
def test_what_a_user_takes_back_is_in_no_ledger(
    tmp_path: Path, lives: list[list[Callable[[list[Any]], None]]]
) -> None:
    """Law 4 at the gateway: the branch that a client has left keeps nothing that the new one has lost."""
    store = tmp_path / "gateway.db"
    turns: list[Any] = []

    async def ask(client: aiohttp.ClientSession, url: str, numbers: Iterable[int]) -> None:
        for number in numbers:
            messages = [*chain.from_iterable(turns), make_turn(number)[0]]
            request = {"model": "gpt-4o", "max_tokens": 100, "messages": messages}
            async with client.post(f"{url}/v1/chat/completions", json=request) as answer:
                assert answer.status == 200
                await answer.read()
            turns.append(make_turn(number))

    async def read_stored() -> set[str]:
        texts = b""
        async with open_store(str(store)) as opened:
            for name in await list_names(opened, ""):
                page = await opened.read(conversation_place("default", name))
                texts += page.head.state + b"".join(record.body for record in page.records)
        return set(re.findall(r"secret-\d{4}", texts.decode("utf-8", "replace")))

    async def main() -> None:
        budget = Budget(window=3_000, reserve=200)
        async with run_stub() as stub, open_client() as client:
            gateway_settings = settings_for(stub, store, budget=budget, recall="handles")
            numbers = count(1)
            for changes in lives:
                async with run_gateway(gateway_settings) as gateway:
                    if not turns:
                        await ask(client, gateway.url, islice(numbers, 12))
                    for change in changes:
                        change(turns)
                        await ask(client, gateway.url, islice(numbers, 2))
                if not changes:
                    assert len(await read_stored()) > 8
        assert await read_stored() <= set(re.findall(r"secret-\d{4}", str(turns)))

    asyncio.run(main())
