"""The index of conversations: as much work and memory after many conversations as after one."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from lamina.conversations.recognise import recognise
from lamina.conversations.store import KeptConversation
from lamina.core import Cut
from lamina.core.values import Ledger
from lamina.dialects import DIALECTS, Usage
from lamina.dialects.usage import NOTHING_REPORTED
from lamina.relay import conversation_index
from lamina.relay.conversation_index import ConversationIndex, ConversationMatch
from lamina.relay.identity import ClientIdentity
from lamina.relay.live_conversation import LiveConversation
from lamina.relay.request_bodies import RequestBody, decode_body
from lamina.relay.store_access import StoreGone
from lamina.relay.turn_memory import TurnMemory
from lamina.stores import StoredHead

pytestmark = pytest.mark.anyio

UNNAMED = ClientIdentity(group="", parent="")


class StoredStates:
    """A store in which nothing was saved but these states. `reads` are the names that were read."""

    def __init__(self) -> None:
        self.states: dict[str, KeptConversation] = {}
        self.reads: list[str] = []
        self.is_gone = False

    async def find_alike(self, *_: Any) -> list[KeptConversation]:
        if self.is_gone:
            raise StoreGone("gone")
        self.reads.append("a page")
        return list(self.states.values())

    async def load(self, _: str, name: str) -> KeptConversation | None:
        if self.is_gone:
            raise StoreGone("gone")
        self.reads.append(name)
        return self.states.get(name)

    async def load_head(self, workspace: str, name: str) -> StoredHead:
        stored = await self.load(workspace, name)
        if stored is None:
            return StoredHead()
        return StoredHead(count=stored.records, state=stored.source)


class Requests:
    """Sends requests to an index, as the gateway does."""

    def __init__(self, *, shared: bool = False) -> None:
        self.store = StoredStates()
        store: Any = self.store
        self.index = ConversationIndex(store, shared=shared)
        self._memory = TurnMemory()

    def restart(self) -> None:
        """Go on as a process that knows nothing but what is stored."""
        store: Any = self.store
        self.index = ConversationIndex(store, shared=self.index.shared)

    def save(self, conversation: LiveConversation) -> None:
        """Store a conversation as it is."""
        conversation.source = f"state {len(conversation.digests.chain)}".encode()
        self.store.states[conversation.name] = KeptConversation(
            name=conversation.name, state=conversation.state, source=conversation.source, records=0
        )

    def decode(self, words: list[str]) -> RequestBody:
        roles = ("user", "assistant")
        messages = [{"role": roles[place % 2], "content": text} for place, text in enumerate(words)]
        text = json.dumps({"model": "m", "messages": messages}).encode()
        return decode_body(text, self._memory)

    async def send(self, words: list[str]) -> ConversationMatch:
        body = self.decode(words)
        call = self.index.parse("default", UNNAMED, DIALECTS["openai_chat"], body)
        match = await self.index.find(call)
        conversation = match.conversation
        conversation.digests = match.digests
        conversation.state = conversation.state.after(match.digests)
        conversation.turns = body.turns
        conversation.note_answered(body.request, sent_at=0.0, cuts=0)
        self.index.note_request(conversation, body)
        return match


async def test_a_request_is_compared_with_those_that_begin_alike_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[Any] = []

    def count(digests: Any, members: Any) -> Any:
        compared.extend(members)
        return recognise(digests, members)

    requests = Requests()
    for number in range(200):
        await requests.send([f"question {number}"])
    monkeypatch.setattr(conversation_index, "recognise", count)
    match = await requests.send(["question 7", "answer", "more"])
    assert match.shared == 1
    assert len(compared) == 1


async def test_a_request_that_goes_on_is_parsed_at_its_end_however_many_others_came_between() -> None:
    requests = Requests()
    words = ["begin", "one", "two", "three", "four"]
    first = await requests.send(words)
    for number in range(300):
        await requests.send([f"question {number}"])
    second = await requests.send([*words, "five", "six"])
    assert second.conversation is first.conversation
    assert second.parsed.log[0] is first.parsed.log[0]


async def test_messages_read_beside_another_conversation_are_not_compared_by_equality() -> None:
    """To Python `1` equals `true`. What was read beside others may hold the one for the other."""
    requests = Requests()
    first = await requests.send(["Hi.", "Hello.", "Go on."])
    first.conversation.memo.parse.keeps_equality = True  # as a fit does that has compared nothing by it
    grown = await requests.send(["Hi.", "Hello.", "Go on.", "I do.", "And now?"])
    assert grown.conversation is first.conversation
    assert grown.conversation.memo.parse.keeps_equality
    fork = await requests.send(["Hi.", "Hello.", "Another way."])
    assert fork.conversation is not first.conversation
    assert not fork.conversation.memo.parse.keeps_equality


async def test_a_conversation_that_its_client_goes_on_with_after_all_is_left_no_more() -> None:
    """Otherwise it would be stored without what only the other one has lost."""
    requests = Requests()
    words = ["Hi.", "Hello.", "Go on.", "I do.", "And now?"]
    first = (await requests.send(words)).conversation
    cut = Ledger(cuts=(Cut(number=1, reason="over the trigger"),))
    first.state = msgspec.structs.replace(first.state, ledger=cut)
    other = await requests.send([*words[:2], "Another way."])
    assert other.left == (first,)
    assert first.living is other.digests
    again = await requests.send([*words, "Yes.", "Well?"])
    assert again.conversation is first
    assert first.living is None


async def test_conversations_that_begin_alike_stay_apart_and_find_themselves_again() -> None:
    requests = Requests()
    names: dict[int, str] = {}
    for number in range(20):
        names[number] = (await requests.send(["hi", f"answer {number}", "go on"])).conversation.name
    assert len(set(names.values())) == 20
    for number in range(20):
        match = await requests.send(["hi", f"answer {number}", "go on", "yes", "and now"])
        assert match.conversation.name == names[number]


@pytest.mark.parametrize("shared", [False, True])
async def test_what_a_store_was_too_slow_to_tell_is_known_at_the_next_request(*, shared: bool) -> None:
    """The request that came meanwhile is a conversation of its own, and does not hide the older one."""
    requests = Requests(shared=shared)
    words = ["Hi.", "Hello.", "Go on.", "I do.", "And now?"]
    known = (await requests.send(words)).conversation
    cut = Ledger(cuts=(Cut(number=1, reason="over the trigger"),))
    known.state = msgspec.structs.replace(known.state, ledger=cut)
    requests.save(known)
    requests.restart()
    requests.store.is_gone = True
    words += ["Yes.", "Well?"]
    guessed = await requests.send(words)
    assert not guessed.certain
    assert guessed.conversation.name != known.name
    assert not (
        await requests.send([*words, "No.", "Why?"])
    ).certain  # nor is it known by what came meanwhile
    requests.store.is_gone = False
    match = await requests.send([*words, "No.", "Why?"])
    assert match.certain
    assert match.conversation.name == known.name
    assert match.conversation.state.ledger == cut


async def test_a_conversation_that_begins_while_the_store_is_gone_is_one_conversation() -> None:
    requests = Requests()
    requests.store.is_gone = True
    words = ["Hi.", "Hello.", "Go on."]
    first = await requests.send(words)
    second = await requests.send([*words, "I do.", "And now?"])
    requests.store.is_gone = False
    third = await requests.send([*words, "I do.", "And now?", "Yes.", "Well?"])
    assert first.conversation is second.conversation is third.conversation
    assert (first.certain, second.certain, third.certain) == (False, False, True)
    assert not third.conversation.is_guess


async def test_of_a_shared_store_the_conversation_that_goes_on_is_read_and_no_other() -> None:
    requests = Requests(shared=True)
    for number in range(9):
        match = await requests.send(["Hi", "Hello", f"Question {number}"])
        conversation = match.conversation
        conversation.source = b"saved"
        requests.store.states[conversation.name] = KeptConversation(
            name=conversation.name, state=conversation.state, source=b"saved", records=0
        )
    requests.store.reads.clear()
    match = await requests.send(["Hi", "Hello", "Question 8", "Answer", "And now?"])
    assert match.conversation is conversation
    assert requests.store.reads == [conversation.name]

    # Another process has continued it: then all that begin alike are read again.
    stored = requests.store.states[conversation.name]
    requests.store.states[conversation.name] = msgspec.structs.replace(stored, source=b"changed")
    await requests.send(["Hi", "Hello", "Question 8", "Answer", "And now?", "Yes.", "Well?"])
    assert "a page" in requests.store.reads


async def test_short_conversations_are_forgotten_by_what_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation_index, "LIVE_BYTES", 50 * conversation_index.CONVERSATION_BYTES)
    requests = Requests()
    for number in range(200):
        await requests.send([f"question {number}"])
    index = requests.index
    assert len(index._live) < 50  # noqa: SLF001 - it must not grow
    assert len(index._by_address) < 50  # noqa: SLF001 - it must not grow
    for number in range(190, 200):  # what was forgotten has made room for these
        match = await requests.send([f"question {number}", "answer", "more"])
        assert match.shared == 1


async def test_a_conversation_that_is_too_large_for_the_memory_keeps_only_its_digests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conversation_index, "LIVE_BYTES", 20_000)
    requests = Requests()
    words = ["a" * 30_000, "answer", "go on"]
    match = await requests.send(words)
    assert match.conversation.turns == ()
    assert not match.conversation.memo.parse.past.sources
    assert not match.conversation.digests.segments
    again = await requests.send([*words, "answer", "more"])
    assert again.conversation is match.conversation


@pytest.mark.parametrize("own_words", [["Hi"], ["Hi", "Hello", "More", "Yes.", "Well?"]])
@pytest.mark.parametrize("same_ledger", [True, False])
async def test_what_another_process_saved_is_taken_over_unless_it_is_what_this_one_has_continued(
    own_words: list[str], *, same_ledger: bool
) -> None:
    conversation = (await Requests().send(own_words)).conversation
    sent = {"messages": own_words}
    conversation.note_answered(sent, sent_at=0.0, cuts=0)
    conversation.tools = ({"name": "read"},)
    conversation.reported = Usage(input=9)
    conversation.record.skip_to(3)
    theirs = (await Requests().send(["Hi", "Hello", "More"])).conversation
    ledger = theirs.state.ledger
    if not same_ledger:
        ledger = Ledger(cuts=(Cut(number=1, reason="over the trigger"),))
    saved = msgspec.structs.replace(theirs.state, ledger=ledger, began=1)
    conversation.accept(KeptConversation(name="n", state=saved, source=b"theirs", records=0))
    assert conversation.source == b"theirs"
    assert conversation.record.count == 0  # it was begun anew since
    if same_ledger and len(own_words) > 3:
        assert conversation.request is sent
        assert len(conversation.digests.chain) == len(own_words)
    else:
        assert conversation.state is saved
        assert len(conversation.digests.chain) == 3
        unknown: tuple[Any, ...] = (conversation.request, conversation.tools, conversation.reported)
        assert unknown == (None, None, NOTHING_REPORTED)
