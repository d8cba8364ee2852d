"""Saving conversations: what waits for a store that is gone is saved when it is back."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lamina.conversations.addresses import Group
from lamina.conversations.request_digests import NO_DIGESTS
from lamina.conversations.store import ConversationState, KeptConversation
from lamina.core import Cut
from lamina.core.values import Budget, Ledger
from lamina.dialects import Usage
from lamina.dialects.usage import NOTHING_REPORTED, Cleared
from lamina.errors import Conflict
from lamina.gateway import GatewaySettings
from lamina.gateway.metrics import GatewayMetrics
from lamina.relay import conversation_index
from lamina.relay.calls import OutgoingRequest
from lamina.relay.config import DEFAULT_UPSTREAMS
from lamina.relay.conversation_index import ConversationIndex
from lamina.relay.fit import _bound_next
from lamina.relay.live_conversation import LiveConversation
from lamina.relay.saving import SAVED_TOGETHER, ConversationSaver
from lamina.relay.sent_calls import MOST_BYTES
from lamina.relay.sizes import CountedRequest, KnownTrigger
from lamina.relay.store_access import GatewayStore, StoreGone
from lamina.stores import StoredHead
from tests.gateway.running import follow_calls, make_conversation

pytestmark = pytest.mark.anyio

GROUP = Group("default", "", "openai_chat")


class FailingStore:
    """A store that is gone for its first calls. `saved` are the records that it got."""

    def __init__(self, failures: int) -> None:
        self._failures = failures
        self.saved: list[bytes] = []

    async def save(self, *_: Any, records: list[bytes], **__: Any) -> bytes:
        if self._failures:
            self._failures -= 1
            raise StoreGone("gone")
        self.saved += records
        return b"state"


async def test_records_that_wait_are_saved_once_when_the_store_is_back() -> None:
    store: Any = FailingStore(2)
    saver = ConversationSaver(store, ConversationIndex(store, shared=False), GatewayMetrics())
    conversation = make_conversation()
    conversation.add_records([b"first"])
    saver.save_later(conversation)
    assert not await saver.flush()
    conversation.add_records([b"second"])
    assert not await saver.flush()
    assert await saver.flush()
    assert await saver.flush()
    assert store.saved == [b"first", b"second"]


@pytest.mark.parametrize("way", ["record_soon", "save_later"])
async def test_a_save_that_nobody_waits_for_any_more_is_not_made_twice(way: str) -> None:
    """A client goes away, and its task is cancelled, while the store commits what that task saves."""

    class CommittingStore:
        def __init__(self) -> None:
            self.records: list[bytes] = []
            self.commits = asyncio.Event()

        async def save(self, *_: Any, records: list[bytes], **__: Any) -> bytes:
            await self.append("", "", records)
            return b"state"

        async def append(self, _: str, __: str, records: list[bytes], **___: Any) -> None:
            committing = asyncio.ensure_future(self._commit(records))
            await asyncio.shield(committing)

        async def _commit(self, records: list[bytes]) -> None:
            self.commits.set()
            await asyncio.sleep(0.01)
            self.records += records

    store: Any = CommittingStore()
    saver = ConversationSaver(store, ConversationIndex(store, shared=False), GatewayMetrics())
    conversation = make_conversation()
    conversation.add_records([b"first"])
    getattr(saver, way)(conversation)
    flush = saver.flush_records if way == "record_soon" else saver.flush
    saving = asyncio.ensure_future(flush())
    await store.commits.wait()
    saving.cancel()
    await asyncio.wait({saving})
    conversation.add_records([b"second"])
    getattr(saver, way)(conversation)
    assert await flush()
    assert store.records == [b"first", b"second"]


@pytest.mark.parametrize("way", ["record_soon", "save_later"])
@pytest.mark.parametrize("error", [None, Conflict(conversation="c", expected=0, found=1)])
async def test_a_write_that_took_too_long_is_made_once(way: str, error: Conflict | None) -> None:
    """The store commits it when nobody waits any more, or refuses it."""
    late = asyncio.get_running_loop().create_future()

    class LateStore:
        def __init__(self) -> None:
            self.records: list[bytes] = []
            self.first: list[bytes] | None = None

        async def save(self, *_: Any, records: list[bytes], **__: Any) -> bytes:
            await self.append("", "", records)
            return b"state"

        async def append(self, _: str, __: str, records: list[bytes], **___: Any) -> None:
            if self.first is not None:
                self.records += records
                return
            self.first = records
            gone = StoreGone("slow")
            gone.late = late
            raise gone

    store: Any = LateStore()
    saver = ConversationSaver(store, ConversationIndex(store, shared=False), GatewayMetrics())
    conversation = make_conversation()
    flush = saver.flush_records if way == "record_soon" else saver.flush
    for record in (b"first", b"second"):
        conversation.add_records([record])
        getattr(saver, way)(conversation)
        assert not await flush()
    if error is None:
        store.records += store.first
        late.set_result(None)
    else:
        late.set_exception(error)
    assert await flush()
    assert store.records == [b"first", b"second"]


async def test_a_refused_save_that_nobody_waits_for_is_no_failure_of_the_gateway(tmp_path: Path) -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    store = GatewayStore(GatewaySettings(store=str(tmp_path / "gateway.db")))
    await store.open()
    asked = asyncio.Event()

    async def refuse(_: Any) -> None:
        asked.set()
        await asyncio.sleep(0)
        raise Conflict(conversation="c", expected=0, found=1)

    calling = asyncio.ensure_future(store.call(refuse))
    await asked.wait()
    calling.cancel()
    assert await asyncio.wait({calling})
    del calling
    await store.close()
    gc.collect()
    assert reported == []


async def test_what_happens_while_a_conversation_is_saved_is_saved_the_next_time() -> None:
    conversation = make_conversation()

    class BusyStore:
        def __init__(self) -> None:
            self.records: list[bytes] = []

        async def save(self, *_: Any, records: list[bytes], **__: Any) -> bytes:
            if not self.records:
                conversation.add_records([b"an answer"])
                saver.save_later(conversation)
            self.records += records
            return b"state"

    store: Any = BusyStore()
    saver = ConversationSaver(store, ConversationIndex(store, shared=False), GatewayMetrics())
    conversation.add_records([b"a request"])
    saver.save_later(conversation)
    assert await saver.flush()
    assert await saver.flush()
    assert store.records == [b"a request", b"an answer"]


async def test_conversations_that_wait_are_saved_together() -> None:
    """One by one, a busy gateway would begin conversations faster than it saves them."""
    running: list[int] = [0]
    most: list[int] = [0]

    class SlowStore:
        async def save(self, *_: Any, **__: Any) -> bytes:
            running[0] += 1
            most[0] = max(most[0], running[0])
            await asyncio.sleep(0)
            running[0] -= 1
            return b"state"

    store: Any = SlowStore()
    saver = ConversationSaver(store, ConversationIndex(store, shared=False), GatewayMetrics())
    for number in range(40):
        saver.save_later(
            LiveConversation("default", f"{number}", (GROUP, b"%d" % number), ConversationState())
        )
    assert await saver.flush()
    assert most[0] == SAVED_TOGETHER


class SharedStore:
    """A store to which another process has added a record. It is gone for so many of its reads."""

    def __init__(self, *, failures: int = 0) -> None:
        self.records = [b"of another process"]
        self._failures = failures

    async def append(self, _: str, __: str, records: list[bytes], *, expect: int, was: bytes) -> None:
        del was  # nobody has written the state
        if expect != len(self.records):
            raise Conflict(conversation="name", expected=expect, found=len(self.records))
        self.records += records

    async def load(self, _: str, __: str) -> None:
        if self._failures:
            self._failures -= 1
            raise StoreGone("gone")

    async def load_head(self, _: str, __: str) -> StoredHead:
        return StoredHead(count=len(self.records))

    async def load_records(self, _: str, __: str, *, after: int) -> list[bytes]:
        return self.records[after:]


async def test_a_record_that_another_process_has_continued_is_read_again_and_written_after_it() -> None:
    store: Any = SharedStore(failures=2)
    saver = ConversationSaver(store, ConversationIndex(store, shared=True), GatewayMetrics())
    conversation = make_conversation()
    conversation.add_records([b"first"])
    saver.record_soon(conversation)
    for _ in range(2):
        assert not await saver.flush_records()
        assert store.records == [b"of another process"]
    assert await saver.flush_records()
    assert await saver.flush_records()
    assert store.records == [b"of another process", b"first"]


@pytest.mark.parametrize("was_cut", [True, False])
def test_a_later_request_here_holds_only_under_the_ledger_in_the_store(*, was_cut: bool) -> None:
    """Another process has cut the conversation meanwhile: its ledger says what the next request must be."""
    conversation = make_conversation(requests=3)
    ledger = Ledger()
    if was_cut:
        ledger = Ledger(cuts=(Cut(number=1, reason="over the trigger"),))
    saved = ConversationState(requests=2, ledger=ledger)
    conversation.accept(KeptConversation(name="name", state=saved, source=b"state", records=2))
    assert (conversation.state is saved) is was_cut


class ContestedStore:
    """A store to which another process has saved a conversation.

    `states` were saved after it, and `forgotten` counts how often lost text was removed from it.
    """

    def __init__(self, saved: KeptConversation) -> None:
        self.saved = saved
        self.states: list[ConversationState] = []
        self.forgotten = 0

    async def load(self, _: str, __: str) -> KeptConversation:
        return self.saved

    async def save(self, _: str, name: str, state: ConversationState, *, was: bytes, **__: Any) -> bytes:
        if was != self.saved.source:
            raise Conflict(conversation=name, expected=0, found=0)
        self.states.append(state)
        return b"state of this process"

    async def forget_left(self, *_: Any) -> None:
        self.forgotten += 1


@pytest.mark.parametrize("is_left", [False, True])
@pytest.mark.parametrize("saved_requests", [2, 4])
async def test_only_a_later_request_of_a_conversation_in_use_is_saved_over_what_another_process_saved(
    saved_requests: int, *, is_left: bool
) -> None:
    saved = ConversationState(requests=saved_requests)
    store: Any = ContestedStore(
        KeptConversation(name="name", state=saved, source=b"state of another", records=0)
    )
    saver = ConversationSaver(store, ConversationIndex(store, shared=True), GatewayMetrics())
    own = ConversationState(requests=3)
    conversation = LiveConversation("default", "name", (GROUP, b"hi"), own)
    if is_left:
        conversation.living = NO_DIGESTS
    assert await saver.save_now(conversation)
    is_later = saved_requests < own.requests
    assert conversation.state is (own if is_later else saved)
    assert store.states == ([own] if is_later and not is_left else [])
    assert store.forgotten == is_left, "what its client deleted may not stay stored"


class Records:
    """A store that has the records of one conversation, and counts how often they were read."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.reads = 0

    async def load(self, _: str, __: str) -> None:
        return None

    async def load_head(self, _: str, __: str) -> StoredHead:
        return StoredHead(count=self.count)

    async def load_records(self, _: str, __: str, *, after: int) -> list[bytes]:
        self.reads += 1
        return [b"{}"] * (self.count - after)


@pytest.mark.parametrize(("more", "reads"), [(0, 1), (1, 0)])
def test_a_record_is_learnt_unless_it_is_too_long(more: int, reads: int) -> None:
    store: Any = Records(conversation_index.MOST_LEARNT + more)
    conversation = make_conversation()
    asyncio.run(ConversationIndex(store, shared=True).reload(conversation))
    assert store.reads == reads
    assert conversation.record.count == store.count


async def test_records_are_counted_also_before_there_is_a_state(tmp_path: Path) -> None:
    store = GatewayStore(GatewaySettings(store=str(tmp_path / "gateway.db"), upstreams=DEFAULT_UPSTREAMS))
    await store.open()
    try:
        counts = [(await store.load_head("default", "name")).count]
        await store.append("default", "name", [b"one", b"two"], expect=0)
        counts.append((await store.load_head("default", "name")).count)
    finally:
        await store.close()
    assert counts == [0, 2]


class OneLock:
    """An index with one lock."""

    def __init__(self) -> None:
        self.only = asyncio.Lock()

    def lock(self, _: object) -> asyncio.Lock:
        return self.only


class Saver:
    """Counts what is saved at once and what is saved later."""

    def __init__(self) -> None:
        self.now = 0
        self.later = 0

    async def save_now(self, _: LiveConversation) -> bool:
        self.now += 1
        return True

    def save_later(self, _: LiveConversation) -> None:
        self.later += 1


def learn(sent: OutgoingRequest, usage: Usage, *, waits: bool = False, at_once: bool = False) -> Saver:
    """Let a learner record a report, by the way that waits for the lock or by the one that does not."""
    saver = Saver()
    port: Any = saver

    async def record() -> None:
        index: Any = OneLock()
        learner = follow_calls(index, port)
        if waits:
            await learner.record_answer(sent, usage, at_once=at_once)
        else:
            assert learner.record_if_free(sent, usage)

    asyncio.run(record())
    return saver


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(
    ("usage", "number", "saves"),
    [
        (NOTHING_REPORTED, 2, 0),
        (Usage(input=50, output=9), 2, 0),  # the last report said the same of the input
        (Usage(input=60), 1, 0),  # it is late
        (Usage(input=60), 2, 1),
        (Usage(input=50, cached=40), 2, 1),
        (Usage(input=50, cleared=Cleared(tokens=9)), 2, 1),
    ],
)
def test_only_a_report_with_news_is_saved(usage: Usage, number: int, saves: int, *, waits: bool) -> None:
    conversation = make_conversation(requests=2, usage=Usage(input=50))
    saver = learn(OutgoingRequest(conversation=conversation, number=number), usage, waits=waits)
    assert (saver.later, saver.now) == (saves, 0)
    assert conversation.reported == (usage if saves else NOTHING_REPORTED)
    assert conversation.state.usage == (usage if saves else Usage(input=50))


async def test_a_conversation_that_is_held_is_not_waited_for() -> None:
    index: Any = OneLock()
    saver: Any = Saver()
    sent = OutgoingRequest(conversation=make_conversation(requests=1), number=1)
    async with index.only:
        assert follow_calls(index, saver).record_if_free(sent, Usage(input=60)) is False


def test_what_a_server_cleared_belongs_to_the_measured_request() -> None:
    conversation = make_conversation(requests=1)
    conversation.turns = ({"role": "user"},)
    conversation.head_bytes = 7
    learn(OutgoingRequest(conversation=conversation, number=1), Usage(input=100, cleared=Cleared(tokens=30)))
    assert conversation.measured is not None
    assert conversation.measured.tokens == 130
    assert conversation.measured.head_bytes == 7


@pytest.mark.parametrize(("more_bytes", "is_believed"), [(0, True), (1, False)])
def test_a_report_with_too_many_bytes_for_each_token_is_not_believed(
    more_bytes: int, *, is_believed: bool
) -> None:
    conversation = make_conversation(requests=1)
    conversation.turns = ({"role": "user"},)
    conversation.text_size = 100 * MOST_BYTES + more_bytes
    learn(OutgoingRequest(conversation=conversation, number=1), Usage(input=100))
    assert (conversation.measured is not None) is is_believed
    assert conversation.reported.input == 100


@pytest.mark.parametrize(("tokens", "now"), [(50, 0), (51, 1)])
def test_a_report_is_stored_at_once_above_half_of_the_trigger(tokens: int, now: int) -> None:
    conversation = make_conversation(requests=1)
    conversation.turns = ({"role": "user"},)
    conversation.trigger = KnownTrigger(Budget(window=200), {}, 100)
    sent = OutgoingRequest(conversation=conversation, number=1)
    saver = learn(sent, Usage(input=tokens), waits=True, at_once=True)
    assert (saver.now, saver.later) == (now, 1 - now)


@pytest.mark.parametrize(("measured", "bound"), [(500, 500), (501, 3_000), (999, 3_000)])
def test_what_an_upstream_counted_is_believed_up_to_half_of_the_trigger(measured: int, bound: int) -> None:
    """The gateway's own count may be twice that, so above it the request has to be counted."""
    message = {"role": "user"}
    body: Any = SimpleNamespace(turns=(message,), bounds=(3_000,), head_bytes=0)
    conversation = make_conversation(requests=1)
    conversation.measured = CountedRequest(tokens=measured, turns=(message,), head_bytes=0)
    assert _bound_next(body, conversation, 1_000) == bound
