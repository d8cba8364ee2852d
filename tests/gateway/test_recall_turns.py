"""Recalls are stored before the client has its answer, and no failure of the store takes the answer away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from lamina import fit_request
from lamina.conversations.recall_filter import UsageSum, add_output, find_usage_object
from lamina.conversations.recall_loop import RecallExchange, RecallPlace
from lamina.conversations.shelf import TRIES
from lamina.conversations.store import ConversationState
from lamina.dialects import Usage
from lamina.errors import Conflict
from lamina.gateway.metrics import GatewayMetrics
from lamina.relay.calls import OutgoingRequest
from lamina.relay.live_conversation import LiveConversation
from lamina.relay.saving import ConversationSaver
from lamina.relay.store_access import StoreGone
from tests.gateway.running import follow_calls, make_conversation

REQUEST = {"model": "m", "messages": [{"role": "user", "content": "What did the file say?"}]}
EXCHANGE = RecallExchange(
    place=RecallPlace(turns=1, segments=1, link=b"link"), view="", turns=({"role": "assistant"},)
)


class Index:
    """Has one lock. Reading a conversation again fails, if it is to."""

    def __init__(self, failure: Exception | None) -> None:
        self._failure = failure
        self.reloads = 0

    shared = False

    def lock(self, _: object) -> asyncio.Lock:
        return asyncio.Lock()

    async def reload(self, _: LiveConversation) -> None:
        self.reloads += 1
        if self._failure is not None:
            raise self._failure


class Saver(ConversationSaver):
    """Fails as often as it is told to. `saved` are the exchanges that were in each state that it saved."""

    def __init__(self, index: Any, *failures: Exception) -> None:
        nowhere: Any = None
        super().__init__(nowhere, index, GatewayMetrics())
        self._failures = list(failures)
        self.saved: list[int] = []
        self.later = 0

    async def save(
        self, conversation: LiveConversation, state: ConversationState, records: Sequence[bytes] = ()
    ) -> None:
        del conversation, records
        if self._failures:
            raise self._failures.pop(0)
        self.saved.append(len(state.exchanges))

    async def save_now(self, conversation: LiveConversation) -> bool:
        del conversation
        return True

    def save_later(self, conversation: LiveConversation) -> None:
        del conversation
        self.later += 1


def conflict() -> Conflict:
    return Conflict(conversation="name", expected=1, found=2)


@pytest.mark.parametrize(
    ("failures", "reload_failure", "saved", "later"),
    [
        ([], None, [1], 0),
        ([conflict()], None, [1], 0),
        ([StoreGone("gone")], None, [], 1),
        ([conflict()], StoreGone("gone"), [], 1),
        ([conflict() for _ in range(TRIES)], None, [], 1),  # others were first each time
    ],
)
def test_an_exchange_is_stored_or_waits_for_the_store(
    failures: list[Exception], reload_failure: Exception | None, saved: list[int], later: int
) -> None:
    index: Any = Index(reload_failure)
    saver = Saver(index, *failures)
    turns = follow_calls(index, saver)
    conversation = make_conversation(requests=1)
    fitted = fit_request(REQUEST, dialect="openai_chat", budget=10_000)
    sent = OutgoingRequest(conversation=conversation, fitted=fitted, number=1)
    asyncio.run(turns.record_exchange(sent, Usage(input=10), EXCHANGE))
    assert (saver.saved, saver.later) == (saved, later)
    assert conversation.state.exchanges == (EXCHANGE,)
    assert conversation.state.usage == Usage(input=10)
    assert conversation.reported == Usage(input=10)


@pytest.mark.parametrize("missing", ["conversation", "fitted", "exchange"])
def test_without_an_exchange_or_its_conversation_only_the_usage_is_recorded(missing: str) -> None:
    index: Any = Index(None)
    saver = Saver(index)
    turns = follow_calls(index, saver)
    conversation = make_conversation(requests=1)
    sent = OutgoingRequest(
        conversation=None if missing == "conversation" else conversation,
        fitted=None if missing == "fitted" else fit_request(REQUEST, dialect="openai_chat", budget=10_000),
        number=1,
    )
    exchange = None if missing == "exchange" else EXCHANGE
    asyncio.run(turns.record_exchange(sent, Usage(input=10), exchange))
    is_recorded = missing != "conversation"
    assert (conversation.state.usage == Usage(input=10)) is is_recorded
    assert conversation.state.exchanges == ()


def test_a_total_is_summed_only_where_the_api_reports_one() -> None:
    earlier = [{"output_tokens": 5, "total_tokens": 105}]
    assert add_output({"output_tokens": 7}, earlier) == {"output_tokens": 12}
    summed = add_output({"output_tokens": 7, "total_tokens": 207}, earlier)
    assert summed == {"output_tokens": 12, "total_tokens": 212}
    assert add_output({"outputTokens": 2, "totalTokens": 9}, [{"outputTokens": 4}]) == {
        "outputTokens": 6,
        "totalTokens": 13,
    }


def test_an_event_without_usage_stays_as_it_is() -> None:
    event: dict[str, Any] = {"type": "content_block_delta", "delta": {"text": "Hello"}}
    assert find_usage_object(event) == ((), {})
    usage = UsageSum()
    usage.read({"usage": {"output_tokens": 5}})
    usage.next_round()
    usage.read(event)
    assert usage.complete(event) is event
    last = usage.complete({"usage": {"output_tokens": 7}})
    assert last == {"usage": {"output_tokens": 12}}
