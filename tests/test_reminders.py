"""Reminders at the doors: what a question is about comes back, stays there, and goes with its source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

import lamina
from lamina import Budget, Ledger, Policy, fit_request, translate
from lamina.conversations import delete_message, find_messages, list_talks
from lamina.conversations.addresses import ADDRESSES
from lamina.conversations.store import ANSWERS, CONVERSATIONS
from lamina.dialects import DIALECTS
from lamina.sessions import Session
from lamina.stores import MemoryStore, Where, open_store
from lamina.stores.paging import every_conversation
from lamina.stores.port import OwnName
from tests.gateway.running import settings_for
from tests.gateway.test_recall import post
from tests.gateway.test_sdks import gateway_in_thread
from tests.plain_client import plain_client
from tests.test_nothing_crosses import Send, said
from tests.wrapped.scripted_api import Said, scripted_api, write_message

BUDGET = Budget(window=3_000, reserve=300)
OWN_WORKSPACES = [OwnName(f"{prefix}default") for prefix in (CONVERSATIONS, ANSWERS, ADDRESSES)]
FACT = "The tenant in Zanzibar is called Ottoline and pays 550171 since last year."
QUESTION = "How much does the tenant in Zanzibar pay?"
ANSWER = "550171"
TURNS = 60


def talk() -> list[str]:
    """What a user says in turn: a fact early on, then more facts than digests have room for."""
    chance = Random(7)  # noqa: S311 - made-up words
    syllables = ("bar", "kel", "mon", "ti", "do", "ra", "vex", "lum", "so", "pli")
    sayings = ["Let us go through the houses."]
    for turn in range(TURNS):
        facts: list[str] = []
        for number in range(6):
            town, name = ("".join(chance.choices(syllables, k=3)).capitalize() for _ in range(2))
            facts.append(f"The tenant in {town} is called {name} and pays {turn}{number}71 since last year.")
        if turn == 3:
            facts[2] = FACT
        sayings.append(" ".join(facts))
    return sayings


def answer_anything(_: dict[str, Any]) -> Said:
    return ["Noted."]


def make_request(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"model": "claude-opus-5-5", "max_tokens": 100, "system": "You listen.", "messages": messages}


@contextmanager
def through_wrap(address: str, **policy: Any) -> Iterator[tuple[Send, list[dict[str, Any]]]]:
    sent: list[dict[str, Any]] = []

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        sent.append(request)
        return write_message(answer_anything(request), 100)

    fields: dict[str, Any] = {"budget": BUDGET, "recall": "off", "keep": "all"} | policy
    client: Any = lamina.wrap(plain_client(answer), store=address, policy=Policy(**fields))

    def send(request: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = client.messages.create(**request)
        return answer

    yield send, sent


@contextmanager
def through_gateway(address: str, **policy: Any) -> Iterator[tuple[Send, list[dict[str, Any]]]]:
    fields: dict[str, Any] = {"budget": BUDGET, "recall": "off", "keep": "all"} | policy
    with (
        scripted_api(answer_anything) as api,
        gateway_in_thread(settings_for(api.url, Path(address), **fields)) as gateway,
    ):

        def send(request: dict[str, Any]) -> dict[str, Any]:
            answer: dict[str, Any] = json.loads(post(f"{gateway.url}/v1/messages", request))
            return answer

        yield send, api.requests


DOORS = {"wrap": through_wrap, "gateway": through_gateway}


def say_all(send: Send, *more: str) -> None:
    """The talk, with the question and more at its end. The client never sees what lamina put in."""
    history: list[dict[str, Any]] = []
    for saying in (*talk(), QUESTION, *more):
        history.append(said("user", saying))
        send(make_request(list(history)))
        history.append(said("assistant", "Noted."))


def list_content(request: dict[str, Any]) -> list[str]:
    """The texts of a request in order, whatever messages they stand in."""
    texts: list[str] = []
    for message in request["messages"]:
        content = message["content"]
        texts += [content] if isinstance(content, str) else [block["text"] for block in content]
    return texts


@pytest.mark.parametrize("door", DOORS)
def test_it_comes_back_and_stays_where_it_was(door: str, tmp_path: Path) -> None:
    with DOORS[door](str(tmp_path / "kept.db")) as (send, sent):
        say_all(send, "Thank you.", "And now something else.")
    asked, thanked, last = (list_content(request) for request in sent[-3:])
    assert asked[-1] == QUESTION
    assert ANSWER in asked[-2]
    assert not any(ANSWER in text for text in asked[:-2])
    assert thanked[: len(asked)] == asked
    assert last[: len(thanked)] == thanked


@pytest.mark.parametrize("door", DOORS)
def test_erasing_its_source_erases_it(door: str, tmp_path: Path) -> None:
    address = str(tmp_path / "kept.db")
    with DOORS[door](address) as (send, sent):
        say_all(send)
    assert ANSWER in json.dumps(sent[-1])

    async def erase() -> bytes:
        async with open_store(address) as store:
            [name] = [talk.name async for talk in list_talks(store, "")]
            messages = await find_messages(store, "", name, ANSWER)
            key = next(message.key for message in messages if not message.is_own)
            await delete_message(store, "", name, key=key)
            left: list[bytes] = []
            for workspace in ("", *OWN_WORKSPACES):
                async for listed in every_conversation(store, workspace):
                    page = await store.read(Where(workspace, listed.conversation))
                    left += [page.head.state, *(record.body for record in page.records)]
            return b"".join(left)

    kept = anyio.run(erase)
    assert b"tenant" in kept
    assert ANSWER.encode() not in kept


def test_a_session_has_it_and_goes_on_with_it() -> None:
    async def run() -> tuple[list[str], list[str]]:
        store = MemoryStore()
        async with Session.open(
            store, "talk", model="claude-opus-5-5", policy=Policy(budget=BUDGET, recall="off")
        ) as session:
            for saying in talk():
                await session.ask(saying)
                await session.record("Noted.")
            await session.ask(QUESTION)
            asked = list_content(await session.request())
            await session.record("Noted.")
        async with Session.open(
            store, "talk", model="claude-opus-5-5", policy=Policy(budget=BUDGET, recall="off")
        ) as again:
            await again.ask("Thank you.")
            return asked, list_content(await again.request())

    asked, thanked = anyio.run(run)
    assert ANSWER in asked[-2]
    assert thanked[: len(asked)] == asked


@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_carries_it(name: str) -> None:
    messages: list[dict[str, Any]] = [said("system", "You listen.")]
    for saying in (*talk(), QUESTION):
        messages += [said("user", saying), said("assistant", "Noted.")]
    request = {"model": "gpt-5", "messages": messages[:-1]}
    fitted = translate(request, to=name, policy=Policy(budget=BUDGET, recall="off"))
    assert DIALECTS[name].wire.check(fitted.request) == []
    assert ANSWER in json.dumps(fitted.request)


def test_a_ledger_keeps_it_as_plain_values() -> None:
    messages: list[dict[str, Any]] = []
    for saying in (*talk(), QUESTION):
        messages += [said("user", saying), said("assistant", "Noted.")]
    policy = Policy(budget=BUDGET, recall="off")
    fitted = fit_request({"model": "gpt-5", "messages": messages[:-1]}, policy=policy)
    [reminder] = fitted.ledger.reminders
    assert "zanzi" in " ".join(reminder.about).lower()
    assert Ledger.load(json.loads(json.dumps(fitted.ledger.dump()))) == fitted.ledger
