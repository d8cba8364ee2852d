"""Conversations that two processes use over one store: what one does takes nothing from the other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lamina.conversations import delete_conversation
from lamina.conversations.recognise import find_left
from lamina.conversations.request_digests import NO_DIGESTS, digest_log
from lamina.conversations.shelf import forget_left
from lamina.conversations.store import (
    WORKSPACE,
    ConversationState,
    conversation_place,
    conversation_workspace,
    find_conversation,
    read_record,
)
from lamina.core.recall import list_refs
from lamina.core.values import Fold, Ledger, Segment
from lamina.formats.codec import encode
from lamina.segments import assistant, system, user
from lamina.stores import MemoryStore, StoredHead, Where
from tests.conversations.test_conversations import Messages, ask, chat_client, history, lowered


@pytest.mark.parametrize("first_goes_on", [False, True])
@given(steps=st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=13, max_size=15))
def test_a_name_that_two_processes_began_at_once_is_one_conversation(
    steps: list[tuple[int, bool]], *, first_goes_on: bool
) -> None:
    """Whoever asks goes on from the last request, also a process that starts only then."""
    memory = MemoryStore()

    def start() -> Any:
        return chat_client(store=memory).conversation("support")

    processes = [start() for _ in range(3)]
    for process in processes[:2] if first_goes_on else reversed(processes[:2]):
        ask(process, history(0, "tea"))
    cuts = 0
    last: Messages = []
    for number, (who, restarts) in enumerate(steps, 1):
        if restarts:
            processes[who] = start()
        fitted = ask(processes[who], history(number, "tea"))
        request = fitted.request["messages"]
        cuts_now = len(fitted.ledger.cuts)
        assert cuts_now >= cuts
        if cuts_now == cuts:
            assert request[: len(last)] == last
        cuts, last = cuts_now, request
    assert lowered(last)


@example(steps=[(1, False), (0, False), (0, True), (1, True), (0, False)])
@example(steps=[(0, False), (0, False), (1, True), (1, False), (0, False)])
@example(steps=[(0, False), (1, False), (1, True), (0, False), (1, True), (0, True), (1, False)])
@given(steps=st.lists(st.tuples(st.integers(0, 1), st.booleans()), min_size=2, max_size=8))
def test_a_record_is_whole_whoever_deletes_it_and_begins_it_anew(steps: list[tuple[int, bool]]) -> None:
    memory = MemoryStore()
    processes = [chat_client(store=memory, keep="all") for _ in range(2)]

    async def delete() -> None:
        for listed in await memory.list(conversation_workspace(WORKSPACE)):
            await delete_conversation(memory, WORKSPACE, listed.conversation)

    async def read() -> list[str]:
        bodies: list[str] = []
        for listed in await memory.list(conversation_workspace(WORKSPACE)):
            record = await read_record(memory, WORKSPACE, listed.conversation)
            bodies += [json.dumps(json.loads(record.sent_body(each) or b"0")) for each in record.calls]
        return bodies

    sent: list[str] = []
    for number, (who, deletes) in enumerate(steps):
        if deletes:
            anyio.run(delete)
            sent = []
        sent.append(json.dumps(ask(processes[who], history(number, "tea")).request))
        assert sorted(anyio.run(read)) == sorted(sent)


Talk = tuple[str, list[str]]
"""The system text of a talk, and its words in turn: the user's, the model's, the user's …"""

talks = st.tuples(
    st.sampled_from(("", "Be brief.")), st.lists(st.sampled_from("abc"), min_size=1, max_size=6)
)


def make_log(talk: Talk) -> tuple[Segment, ...]:
    head = (system(talk[0]),) if talk[0] else ()
    return (*head, *((assistant if at % 2 else user)(words) for at, words in enumerate(talk[1])))


def is_left(living: Talk, other: Talk) -> bool:
    """The rule, as it is meant: see `find_left`."""
    words, other_words = living[1], other[1]
    shared = 0
    while words[shared : shared + 1] == other_words[shared : shared + 1] != []:
        shared += 1
    if shared == len(other_words):
        return False
    if shared < 2:  # they have no answer in common
        kept = [at for at, said in enumerate(other_words) if said in words[at % 2 :: 2]]
        return len(kept) > len(other_words) / 2
    return living[0] == other[0] or shared >= 4


@example(living=("", ["a", "b", "c"]), other=("Be brief.", ["a", "b", "a"]))
@example(living=("", ["a", "c", "b"]), other=("", ["c", "c", "b", "a"]))
@given(living=talks, other=talks)
def test_a_conversation_is_left_only_by_whoever_had_it(living: Talk, other: Talk) -> None:
    """Two users may say the same and get the same answer. What one of them deletes is his alone."""
    one, another = (digest_log(make_log(talk), NO_DIGESTS) for talk in (living, other))
    assert bool(find_left(one, [("other", another)])) is is_left(living, other)


class Overtaken(MemoryStore):
    """A store in which another process saves a conversation right before each of the next writes."""

    def __init__(self) -> None:
        super().__init__()
        self.others: list[ConversationState] = []

    async def append(self, where: Where, records: Sequence[bytes], **options: Any) -> StoredHead:
        await self._save_others(where)
        return await super().append(where, records, **options)

    async def replace(self, where: Where, bodies: Mapping[int, bytes], **options: Any) -> StoredHead:
        await self._save_others(where)
        return await super().replace(where, bodies, **options)

    async def _save_others(self, where: Where) -> None:
        if self.others:
            other = self.others.pop()
            await super().append(where, [], state=msgspec.json.encode(other))


@pytest.mark.parametrize("keeps_texts", [False, True])
@given(others=st.integers(0, 3))
def test_text_leaves_a_branch_that_another_process_saves_meanwhile(others: int, *, keeps_texts: bool) -> None:
    log = [
        user("Hello."),
        assistant("Hi."),
        user("My number is secret."),
        assistant("I see."),
        user("Go on."),
    ]
    refs = [ref for ref, _ in list_refs(log)]
    fold = Fold(key="digest-1", covers=(refs[2],), text="secret", cut=1)
    left = ConversationState(ledger=Ledger(folds=(fold,)))

    async def race() -> None:
        store = Overtaken()
        where = conversation_place(WORKSPACE, "talk")
        records = [encode(log[2])] if keeps_texts else []
        await store.append(where, records, state=msgspec.json.encode(left))
        store.others = [msgspec.structs.replace(left, requests=others - number) for number in range(others)]
        living = digest_log((*log[:2], log[4]), NO_DIGESTS)
        await forget_left(store, WORKSPACE, "talk", living)
        stored = await find_conversation(store, WORKSPACE, "talk")
        assert stored is not None
        assert stored.state.requests == others
        page = await store.read(where)
        assert b"secret" not in b"".join((page.head.state, *(record.body for record in page.records)))
        assert [listed.conversation for listed in await store.list(conversation_workspace(WORKSPACE))] == [
            "talk"
        ]

    anyio.run(race)
