"""Conversations that begin alike: each is found again after a restart, by one page and one state.

A talk begins with a greeting that everybody says. What the model answers is its own, or everybody's too.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from lamina import Budget
from lamina.conversations import addresses, delete_conversation
from lamina.conversations.addresses import Group, address_workspace, enlist, find_alike
from lamina.conversations.request_digests import NO_DIGESTS, RequestDigests, digest_log
from lamina.conversations.store import (
    WORKSPACE,
    ConversationState,
    KeptConversation,
    conversation_place,
    list_conversations,
)
from lamina.core.tokens import STRICT
from lamina.core.values import Segment
from lamina.segments import assistant, system, user
from lamina.stores import MemoryStore, RecordPage, Where, open_store
from tests.conversations.test_conversations import Messages
from tests.sessions.talking import awaited
from tests.test_nothing_crosses import said
from tests.test_reminders import DOORS, make_request

SMALL = 4
TALKS = 3 * SMALL
each_door = pytest.mark.parametrize("door", DOORS)
CLIENT = Group(WORKSPACE, "", "openai_chat")


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "ENTRIES", SMALL)


def talk(number: int, turns: int, *, answer: str = "Hello, customer {}.") -> Messages:
    """The messages of one user's talk with so many questions. Everybody greets first."""
    messages = [said("user", "hi")]
    for turn in range(turns - 1):
        text = answer.format(number) if turn == 0 else f"Answer {turn} for {number}."
        messages += [said("assistant", text), said("user", f"Question {turn} of {number}.")]
    return messages


async def read_all(address: str) -> list[KeptConversation]:
    async with open_store(address) as store:
        return [kept async for kept in list_conversations(store, WORKSPACE)]


@each_door
@pytest.mark.parametrize("answer", ["Hello, customer {}.", "Hello."])
def test_the_oldest_of_many_that_begin_alike_goes_on_after_a_restart(
    door: str, answer: str, tmp_path: Path
) -> None:
    address = str(tmp_path / "kept.db")
    policy = {"budget": Budget(window=100_000, reserve=500), "counter": STRICT}
    with DOORS[door](address, **policy) as (send, _):
        for number in range(TALKS):
            for turns in (1, 2, 3):
                send(make_request(talk(number, turns, answer=answer)))
    with DOORS[door](address, **policy) as (send, _):
        for number in (0, 1, TALKS - 1):
            send(make_request(talk(number, 4, answer=answer)))
    kept = anyio.run(read_all, address)
    assert len(kept) == TALKS
    requests = sorted(each.state.requests for each in kept)
    assert requests == [3] * (TALKS - 3) + [4] * 3


class CountingStore(MemoryStore):
    """A store that counts how often it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    async def read(self, *arguments: Any, **options: Any) -> RecordPage:
        self.reads += 1
        return await super().read(*arguments, **options)


def digest(*words: str, instructions: str = "") -> RequestDigests:
    """The digests of a request in which the user and the model speak in turn."""
    log: list[Segment] = [system(instructions)] if instructions else []
    log += [assistant(text) if place % 2 else user(text) for place, text in enumerate(words)]
    return digest_log(tuple(log), NO_DIGESTS)


async def save(store: MemoryStore, name: str, digests: RequestDigests, listed: dict[str, str]) -> None:
    state = ConversationState(dialect="openai_chat").after(digests)
    await enlist(store, WORKSPACE, name, state, listed)
    state = msgspec.structs.replace(state, listed=dict(listed))
    await store.append(conversation_place(WORKSPACE, name), [], state=state.encode())


async def find(store: MemoryStore, digests: RequestDigests) -> list[str]:
    return [alike.name for alike in await find_alike(store, CLIENT, digests)]


@awaited
async def test_one_page_and_one_state_are_read_for_a_request_that_goes_on() -> None:
    store = CountingStore()
    for number in range(TALKS):
        await save(store, f"talk-{number}", digest("hi", f"Hello {number}", "more"), {})
    store.reads = 0
    request = digest("hi", "Hello 2", "more", "Yes.", "And now?")
    assert await find(store, request) == ["talk-2"]
    assert store.reads == 2


@awaited
async def test_a_full_page_leads_to_the_next_message_and_none_is_forgotten() -> None:
    store = CountingStore()
    for number in range(TALKS):
        await save(store, f"talk-{number}", digest("hi", "Hello", f"Question {number}"), {})
    for number in range(TALKS):
        store.reads = 0
        request = digest("hi", "Hello", f"Question {number}", "Yes.", "And now?")
        assert (await find(store, request))[-1] == f"talk-{number}"
        assert store.reads <= 4
    for page in await store.list(address_workspace(WORKSPACE)):
        kept = (await store.read(Where(address_workspace(WORKSPACE), page.conversation))).head.state
        assert kept.count(b"talk-") <= SMALL


@awaited
async def test_the_second_request_is_found_under_the_opening_and_then_under_its_answer() -> None:
    store = CountingStore()
    listed: dict[str, str] = {}
    await save(store, "talk", digest("hi"), listed)
    second = digest("hi", "Hello", "more")
    assert await find(store, second) == ["talk"]
    assert await find(store, digest("hi", "Hello", "more", instructions="Another one.")) == []
    await save(store, "talk", second, listed)
    store.reads = 0
    assert await find(store, digest("hi", "Hello", "more", "Yes.", "And now?")) == ["talk"]
    assert store.reads == 2


@awaited
async def test_a_greeting_that_every_conversation_begins_with_says_nothing() -> None:
    greeted = (assistant("Welcome."), user("hi"), assistant("Hello"), user("more"))
    digests = digest_log(greeted, NO_DIGESTS)
    assert digests.opening == digests.chain[1]
    assert digests.addresses()[0] == digests.chain[2]


@awaited
async def test_what_was_forked_and_left_is_found_by_its_own_end() -> None:
    """A client goes back, asks again, and then goes on with the first branch after all."""
    store = MemoryStore()
    listed: dict[str, str] = {}
    start = ("hi", "Hello", "one", "First.", "two")
    await save(store, "talk", digest(*start[:3]), listed)
    await save(store, "talk", digest(*start, "Second.", "three"), listed)
    await save(store, "fork", digest(*start, "Another.", "three"), {})
    assert "talk" in await find(store, digest(*start, "Second.", "three", "Third.", "four"))
    assert await find(store, digest(*start, "Another.", "three", "Third.", "four")) == ["fork"]
    assert "talk" in await find(store, digest(*start[:4], "two, in other words"))


@awaited
async def test_two_processes_list_and_delete_at_once_and_no_entry_is_lost() -> None:
    store = MemoryStore()
    digests = digest("hi", "Hello", "more")
    names = [f"talk-{number}" for number in range(TALKS)]
    await asyncio.gather(*(save(store, name, digests, {}) for name in names))
    for name in names[::2]:
        assert await delete_conversation(store, "", name)
    pages = await store.list(address_workspace(WORKSPACE))
    texts = [
        (await store.read(Where(address_workspace(WORKSPACE), page.conversation))).head.state
        for page in pages
    ]
    together = b"".join(texts).decode()
    assert all(name in together for name in names[1::2])
    assert not any(f'"{name}"' in together for name in names[::2])
