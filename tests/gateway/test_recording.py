"""The record of one request: every sending has one answer in it, whatever happens to the client."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lamina.fitting.policy import Keep
from lamina.relay.calls import OutgoingRequest
from lamina.relay.events import AnsweredEvent, SentEvent
from lamina.relay.live_conversation import LiveConversation
from lamina.relay.recording import ExchangeRecord
from lamina.relay.refusals import Refusal
from tests.gateway.running import make_conversation

ANSWER: Any = SimpleNamespace(status=200, headers={"content-type": "application/json", "request-id": "r-1"})


class Saver:
    """Counts what is to be saved, and how soon."""

    def __init__(self) -> None:
        self.soon = 0
        self.later = 0

    def record_soon(self, _: LiveConversation) -> None:
        self.soon += 1

    def save_later(self, _: LiveConversation) -> None:
        self.later += 1


def make_event(conversation: LiveConversation, sent_id: str = "1") -> SentEvent:
    incoming: Any = SimpleNamespace(
        body=SimpleNamespace(text=b"{}"),
        dialect=SimpleNamespace(name="anthropic"),
        upstream=SimpleNamespace(name="claude"),
        model="m",
    )
    return SentEvent(incoming, OutgoingRequest(conversation=conversation), sent_id, began=0.0)


def send(record: ExchangeRecord, conversation: LiveConversation, sent_id: str = "1") -> None:
    record.sent(make_event(conversation, sent_id))


def answer(record: ExchangeRecord, conversation: LiveConversation, body: bytes) -> None:
    record.answered(AnsweredEvent(make_event(conversation), ANSWER, body=body))


def begin(keep: Keep = "all") -> tuple[ExchangeRecord, LiveConversation, Saver]:
    saver: Any = Saver()
    conversation = make_conversation()
    return ExchangeRecord(saver, keep), conversation, saver


def test_an_answer_is_recorded_once_if_the_client_goes_after_it() -> None:
    """What the answer reported is learnt first. Then the error that ended the request comes here as well."""
    record, conversation, saver = begin()
    send(record, conversation)
    answer(record, conversation, b"{}")
    record.failed(Refusal(499, "the client has gone"))
    answer(record, conversation, b"{}")
    assert len(conversation.record) == 2
    assert saver.soon == 2


def test_a_request_that_is_sent_again_has_an_answer_each_time() -> None:
    record, conversation, _ = begin()
    send(record, conversation)
    answer(record, conversation, b"too long")
    send(record, conversation, "2")
    record.failed(Refusal(502, "the upstream broke off its answer"))
    sent, answered, sent_again, failed = [
        event for event in conversation.record.encode() if event[:1] == b"{"
    ]
    assert b'"follows":"1"' not in sent
    assert b'"request-id":"r-1"' in answered
    assert b'"follows":"1"' in sent_again
    assert b"the upstream broke off its answer" in failed


@pytest.mark.parametrize("keep", ["lowered", "nothing"])
def test_figures_without_texts_are_saved_with_the_state_and_nothing_if_nothing_is_kept(keep: Keep) -> None:
    record, conversation, saver = begin(keep)
    send(record, conversation)
    answer(record, conversation, b"a secret")
    expected = {"lowered": 2, "nothing": 0}[keep]
    assert (len(conversation.record), saver.soon, saver.later) == (expected, 0, expected)
    assert b"a secret" not in b"".join(conversation.record.encode())
