"""What a user deletes from a conversation stays nowhere in the store of a wrapped client."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lamina.conversations.recall_loop import RecallExchange, RecallPlace
from lamina.conversations.request_digests import NO_DIGESTS, RequestDigests, digest_log
from lamina.conversations.shelf import forget_lost_text
from lamina.conversations.store import (
    WORKSPACE,
    ConversationState,
    conversation_place,
    conversation_workspace,
    list_conversations,
)
from lamina.core.values import Segment
from lamina.dialects.openai_chat import DIALECT
from lamina.stores import MemoryStore, StoredHead, Where
from tests.conversations.test_conversations import ask, chat_client
from tests.core.test_reminders import chat

Messages = list[dict[str, Any]]

FILLED = 18
"""So many turns are more than the window of these talks has room for."""


class Change(NamedTuple):
    """What a user does to the history before the next question; `asks` about this turn first."""

    kind: str
    turn: int
    restarts: bool
    asks: bool = False


changes = st.builds(
    Change,
    kind=st.sampled_from(["delete", "edit", "rewind", "nothing"]),
    turn=st.integers(0, 40),
    restarts=st.booleans(),
    asks=st.booleans(),
)


class WatchedStore(MemoryStore):
    """Remembers every state that was written, also those that another one has replaced since."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[bytes] = []

    async def append(self, where: Where, records: Sequence[bytes], **options: Any) -> StoredHead:
        self.states.append(options.get("state") or b"")
        return await super().append(where, records, **options)


class Talk:
    """A user with a wrapped client. Each message of the user's holds a word that no other one holds.

    The conversation may have a `name`.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.memory = WatchedStore()
        self.turns: list[Messages] = []
        self.words = 0
        self.folded = 0
        self.reminded = 0
        self.restart()

    def restart(self) -> None:
        """Go on in a new process."""
        self.client = chat_client(6_000, store=self.memory)
        if self.name:
            self.client = self.client.conversation(self.name)

    def say(self, count: int) -> None:
        """Ask so many questions and get an answer to each."""
        for _ in range(count):
            self._ask(self._question())

    def ask_about(self, turn: int) -> None:
        """Ask what was said in a turn. If it was lowered, a reminder quotes it."""
        words = str(self.turns[turn % len(self.turns)][0]["content"])
        for name in re.findall("invoice-[0-9]+", words):
            self._ask({"role": "user", "content": f"What was {name} for?"})

    def _ask(self, question: dict[str, Any]) -> None:
        messages = [*chain.from_iterable(self.turns), question]
        ledger = ask(self.client, messages).ledger
        self.folded = max(self.folded, len(ledger.folds))
        self.reminded = max(self.reminded, len(ledger.reminders))
        answer = {"role": "assistant", "content": f"Noted. {chat(2_000 + len(self.turns), words=24)}"}
        self.turns.append([question, answer])

    def change(self, change: Change) -> None:
        """Change the history. After a restart only what comes after the first answer can be told from it."""
        first = 1 if change.restarts else 0
        turn = max(first, change.turn % len(self.turns))
        if change.asks:
            self.ask_about(turn)
        if change.restarts:
            self.restart()
        if turn >= len(self.turns):
            return
        if change.kind == "delete" and len(self.turns) > 1:
            del self.turns[turn]
        elif change.kind == "edit":
            self.turns[turn] = [self._question(), *self.turns[turn][1:]]
        elif change.kind == "rewind":
            del self.turns[max(turn, 1) :]

    def _question(self) -> dict[str, Any]:
        self.words += 1
        number = self.words
        words = f"{chat(number)} The code of invoice-{number} is secret-{number:04}. {chat(1_000 + number)}"
        return {"role": "user", "content": words}

    def said(self) -> set[str]:
        return _find_secrets(str(self.turns))

    def list_states(self) -> list[ConversationState]:
        async def read() -> list[ConversationState]:
            return [kept.state async for kept in list_conversations(self.memory, WORKSPACE)]

        return anyio.run(read)

    def stored(self) -> set[str]:
        """The words of the user's that are in the store."""

        async def read() -> str:
            texts = []
            for listed in await self.memory.list(conversation_workspace(WORKSPACE)):
                page = await self.memory.read(conversation_place(WORKSPACE, listed.conversation))
                texts.append(page.head.state.decode())
                texts += [record.body.decode() for record in page.records]
            return "".join(texts)

        return _find_secrets(anyio.run(read))


def _find_secrets(text: str) -> set[str]:
    return set(re.findall(r"secret-\d{4}", text))


@settings(max_examples=12)
@example(user_changes=[Change("delete", 0, restarts=False), Change("rewind", 0, restarts=False)])
@example(user_changes=[Change("delete", 0, restarts=False), Change("delete", 0, restarts=True)])
@example(user_changes=[Change("delete", 0, restarts=True), Change("delete", 0, restarts=False)])
@example(user_changes=[Change("delete", 2, restarts=False, asks=True)])
@pytest.mark.parametrize("name", ["", "support"])
@given(user_changes=st.lists(changes, min_size=1, max_size=3))
def test_deleted_text_is_in_no_stored_digest(user_changes: list[Change], name: str) -> None:
    talk = Talk(name)
    talk.say(FILLED)
    assert talk.folded, "nothing was folded, so this shows nothing"
    assert talk.stored()
    for change in user_changes:
        talk.change(change)
        talk.memory.states.clear()
        talk.say(2)
        assert talk.stored() <= talk.said(), change
        assert _find_secrets(str(talk.memory.states)) <= talk.said(), change


def test_a_branch_that_goes_on_keeps_its_digests() -> None:
    """Nothing is taken from a conversation that the living one continues, nor what both still say."""
    talk = Talk()
    talk.say(FILLED)
    [left] = talk.list_states()
    assert left.ledger.folds
    del talk.turns[-1]
    talk.say(1)
    assert len(talk.list_states()) == 2
    assert left in talk.list_states()
    assert talk.stored() >= _find_secrets(str(left.ledger.folds))


def test_recalled_text_goes_with_its_place() -> None:
    talk = Talk()
    talk.say(4)
    digests = digest_log(parse_talk(talk), NO_DIGESTS)
    early, late = exchange_at(2, digests), exchange_at(6, digests)
    state = ConversationState(exchanges=(early, late))
    assert forget_lost_text(state, digests) is state
    del talk.turns[2:]
    talk.say(2)
    reduced = forget_lost_text(state, digest_log(parse_talk(talk), NO_DIGESTS))
    assert reduced.exchanges == (early,)


def parse_talk(talk: Talk) -> tuple[Segment, ...]:
    messages = [*chain.from_iterable(talk.turns)]
    return DIALECT.wire.parse({"model": "m", "messages": messages}).log


def exchange_at(segments: int, digests: RequestDigests) -> RecallExchange:
    link = digests.chain[segments - 1]
    place = RecallPlace(turns=segments, segments=segments, link=link, system=digests.system_digest)
    return RecallExchange(place=place, view="", turns=({"role": "tool", "content": "recalled"},))
