"""Writes the record: what left for the upstream, and what came back, for every request of a conversation.

A request is noted when it leaves and its answer when it has ended, and if everything is kept both are in the
store a moment later (`ConversationSaver.record_soon`). So a gateway that is killed loses at most the requests
that it was just answering: the record has them without an answer. Figures without texts (`keep` is "lowered")
are saved with the state of their conversation, after some seconds. An answer that was logged and not recorded
any more is noted by the next gateway, without its texts (`record_lost_answers`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from time import time
from typing import Any, NamedTuple

import msgspec

from lamina.conversations.record import (
    Answered,
    ConversationRecord,
    CutNote,
    RecordEvent,
    SentRequest,
)
from lamina.conversations.recorder import CallRecorder
from lamina.conversations.store import WORKSPACE, decode_state
from lamina.costs.uncut_requests import AnsweredRequest
from lamina.errors import LaminaError
from lamina.fitting.policy import Keep
from lamina.relay.conversation_index import DOOR
from lamina.relay.events import AnsweredEvent, SentEvent
from lamina.relay.journal import Journal
from lamina.relay.live_conversation import LiveConversation
from lamina.relay.saving import ConversationSaver
from lamina.relay.store_access import GatewayStore, StoreGone
from lamina.relay.upstream_port import ProviderReply

_HEADERS = ("request-id", "x-request-id", "retry-after", "x-should-retry", "openai-processing-ms")
_HEADER_BEGINNINGS = ("anthropic-ratelimit-", "x-ratelimit-")
"""Headers of an answer that are worth keeping. None of them can hold a key."""


class ExchangeRecord:
    """The record of one request that is being answered, with every time that it is sent."""

    def __init__(self, saver: ConversationSaver, keep: Keep, door: str = DOOR) -> None:
        self._saver = saver
        self._recorder = CallRecorder(door, keep)
        self._conversation: LiveConversation | None = None

    @property
    def keeps_bodies(self) -> bool:
        return self._recorder.keeps_bodies

    def sent(self, event: SentEvent) -> None:
        """A request leaves now."""
        incoming, outgoing, window = event.incoming, event.outgoing, event.window
        conversation = outgoing.conversation
        if conversation is None or not self._recorder.keeps_figures:
            return
        self._conversation = conversation
        ledger = conversation.state.ledger
        envelope = None
        if outgoing.fitted is not None:
            ledger = outgoing.fitted.ledger
            envelope = outgoing.fitted.envelope
        body = outgoing.body
        came: bytes | None = incoming.body.text
        if body is None:
            body = incoming.body.text
            came = None
        self._recorder.sent(
            conversation.record,
            sent_id=event.id,
            dialect=incoming.dialect.name,
            model=incoming.model,
            window=window.tokens if window is not None else 0,
            ledger=ledger,
            envelope=envelope,
            cut=next(reversed(outgoing.new_cuts), None),
            upstream=incoming.upstream.name,
            left_out=outgoing.left_out,
            why=outgoing.why,
            body=body,
            came=came,
        )
        self._save_soon()

    def first_byte(self) -> None:
        """The upstream has begun to answer."""
        self._recorder.first_byte()

    def answered(self, event: AnsweredEvent) -> None:
        """The answer has ended."""
        answer, reader, body = event.answer, event.reader, event.body
        reported: dict[str, Any] = {}
        if reader is not None:
            body = reader.kept_body()
            reported = {
                "usage": reader.reported_usage,
                "stop": reader.facts.finish_reasons,
                "provider_cause": reader.report.cause,
                "provider_missed": reader.report.missed,
                "answer_id": reader.facts.id,
            }
        answered = Answered(
            status=answer.status,
            headers=_choose_headers(answer),
            content_type=answer.headers.get("content-type", ""),
            encoding=answer.headers.get("content-encoding", ""),
            account=event.account,
            recalled=event.recalled,
            error=event.error,
            **reported,
        )
        if self._recorder.answered(answered, body=body):
            self._save_soon()

    def failed(self, error: BaseException) -> None:
        """No answer came. Does nothing if the answer is in the record."""
        if self._recorder.failed(describe_error(error)):
            self._save_soon()

    def _save_soon(self) -> None:
        """Save what happened in a moment; figures without texts with what comes in the next seconds."""
        assert self._conversation is not None  # noqa: S101 - something was sent
        if self.keeps_bodies:
            self._saver.record_soon(self._conversation)
        else:
            self._saver.save_later(self._conversation)


def describe_error(error: BaseException) -> str:
    """Why an answer did not come to its end: the words of a refusal, or the type of another error."""
    return str(getattr(error, "message", "")) or type(error).__name__


def _choose_headers(answer: ProviderReply) -> dict[str, str]:
    return {
        name: value
        for name, value in answer.headers.items()
        if name in _HEADERS or name.startswith(_HEADER_BEGINNINGS)
    }


RESTART_SECONDS = 10.0
"""How old the log of a conversation may be that the store does not have. An older one was deleted since."""


class _LoggedAnswer(NamedTuple):
    """A line of the log about an answer, with what the account of it does not need."""

    answer: AnsweredRequest
    workspace: str
    upstream: str
    cut: CutNote | None

    def list_records(self) -> tuple[SentRequest, Answered]:
        """What the record has of such a request, as far as the log knows it."""
        answer = self.answer
        usage = None
        if answer.input:
            usage = answer.usage
        at = answer.at or 0.0
        sent = SentRequest(
            id=answer.id,
            at=at,
            door=DOOR,
            dialect=answer.dialect,
            model=answer.model,
            upstream=self.upstream,
            window=answer.window,
            cut=self.cut,
        )
        account = {name: getattr(answer, name) for name in _ACCOUNT}
        answered = Answered(
            id=answer.id, at=at, status=200, usage=usage, recalled=answer.recalled, account=account
        )
        return sent, answered


_ACCOUNT = ("full", "unchanged", "counted", "new", "held_back", "gap", "unmarked")


async def record_lost_answers(store: GatewayStore, journal: Journal) -> None:
    """Note the answers that a gateway has logged and was killed before it recorded them.

    If that gateway runs still it notes them itself, and the record has both as one.
    """
    if store.keeps_nothing:
        return
    by_conversation: dict[tuple[str, str], list[_LoggedAnswer]] = {}
    for logged in _read_logged(journal.list_unstopped()):
        by_conversation.setdefault((logged.workspace, logged.answer.conversation), []).append(logged)
    for (workspace, name), answers in by_conversation.items():
        with suppress(LaminaError, StoreGone):  # another process was faster, or what is stored is damaged
            count = await _record_lost(store, workspace, name, answers)
            if count:
                journal.write("recorded after a kill", conversation=name, answers=count)


def _read_logged(events: Iterable[Mapping[str, Any]]) -> Iterator[_LoggedAnswer]:
    cuts: dict[str, CutNote] = {}
    for event in events:
        name = event.get("conversation")
        with suppress(msgspec.ValidationError):  # fields of another release
            if event.get("event") == "cut":
                number = event.get("cut")
                cuts[str(name)] = msgspec.convert({**event, "number": number}, CutNote)
            elif event.get("event") in ("answered", "answered without usage") and name:
                answer = msgspec.convert({"input": 0, **event}, AnsweredRequest)
                cut = cuts.get(answer.conversation) if answer.cut else None
                workspace = str(event.get("workspace", WORKSPACE))
                yield _LoggedAnswer(answer, workspace, str(event.get("upstream", "")), cut)


async def _record_lost(
    store: GatewayStore, workspace: str, name: str, answers: Iterable[_LoggedAnswer]
) -> int:
    """Add to a record what it does not have of these answers, and return how many there were."""
    head = await store.load_head(workspace, name)
    since = time() - RESTART_SECONDS
    if head.state:
        since = decode_state(head.state).began
    elif head.count:
        since = 0.0
    record = ConversationRecord()
    record.read(await store.load_records(workspace, name, after=0))
    recorded = {call.request.id: call.answer for call in record.calls}
    missing: list[bytes] = []
    count = 0
    for logged in answers:
        sent, answered = logged.list_records()
        if recorded.get(sent.id) is not None or sent.at < since:
            continue
        count += 1
        if sent.id not in recorded:
            missing.append(msgspec.json.encode(RecordEvent(sent=sent)))
        missing.append(msgspec.json.encode(RecordEvent(answered=answered)))
    if missing:
        await store.append(workspace, name, missing, expect=record.count)
    return count
