"""Writes the record: what left for the upstream, and what came back, for every request of a conversation.

A request is noted when it leaves and its answer when it has ended, and if everything is kept both are in the
store a moment later (`ConversationSaver.record_soon`). So a gateway that is killed loses at most the requests
that it was just answering: the record has them without an answer. Figures without texts (`keep` is "lowered")
are saved with the state of their conversation, after some seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic, time
from typing import Any

import aiohttp
import msgspec

from lamina.conversations.record import Answered, CutNote, SentRequest
from lamina.conversations.store import changes_requests
from lamina.core.text.characters import lower_ascii
from lamina.fitting.policy import Keep
from lamina.gateway.calls import IncomingRequest, OutgoingRequest
from lamina.gateway.live_conversations import DOOR, LiveConversation
from lamina.gateway.saving import ConversationSaver
from lamina.gateway.usage import UsageReader

_HEADERS = ("request-id", "x-request-id", "retry-after", "x-should-retry", "openai-processing-ms")
_HEADER_BEGINNINGS = ("anthropic-ratelimit-", "x-ratelimit-")
"""Headers of an answer that are worth keeping. None of them can hold a key."""


class ExchangeRecord:
    """The record of one request that is being answered, with every time that it is sent."""

    def __init__(self, saver: ConversationSaver, keep: Keep) -> None:
        self._saver = saver
        self._keep = keep
        self._first_id = ""
        self._sent_id = ""
        self._unanswered: LiveConversation | None = None
        self._began = 0.0
        self._first_byte = 0.0

    @property
    def keeps_bodies(self) -> bool:
        return self._keep == "all"

    def sent(
        self,
        incoming: IncomingRequest,
        outgoing: OutgoingRequest,
        sent_id: str,
        *,
        window: int,
        why: str = "",
    ) -> None:
        """A request leaves now. `why`: it is sent once more, after a refusal or a recall."""
        conversation = outgoing.conversation
        if conversation is None or self._keep == "nothing":
            return
        self._unanswered = conversation
        self._sent_id = sent_id
        self._began = monotonic()
        self._first_byte = 0.0
        ledger = conversation.state.ledger
        tokens = 0
        if outgoing.fitted is not None:
            ledger = outgoing.fitted.ledger
            tokens = outgoing.fitted.envelope.tokens
        body = outgoing.body
        came: bytes | None = incoming.body.text
        if body is None:
            body = incoming.body.text
            came = None
        request = SentRequest(
            id=sent_id,
            at=round(time(), 3),
            door=DOOR,
            dialect=incoming.dialect.name,
            model=incoming.model,
            upstream=incoming.upstream.name,
            tokens=tokens,
            window=window,
            epoch=len(ledger.cuts),
            cut=_note_cut(outgoing),
            size=len(body),
            follows=self._first_id,
            why=why,
            left_out=outgoing.left_out,
        )
        self._first_id = self._first_id or sent_id
        if not self.keeps_bodies:
            conversation.record.add_sent(request)  # no digest: to hash a body costs as much as to pass it
        elif changes_requests(ledger):
            conversation.record.add_sent(request, body=body, came=came, ledger=ledger)
        else:
            conversation.record.add_sent(request, body=body, came=came)
        self._save_soon(conversation)

    def first_byte(self) -> None:
        """The upstream has begun to answer."""
        self._first_byte = monotonic() - self._began

    def answered(
        self,
        answer: aiohttp.ClientResponse,
        *,
        reader: UsageReader | None = None,
        body: bytes | None = None,
        account: Mapping[str, Any] | None = None,
        recalled: bool = False,
    ) -> None:
        """The answer has ended. `reader` has read it, or this is its `body`."""
        answered = Answered(
            id=self._sent_id,
            at=round(time(), 3),
            status=answer.status,
            first=round(self._first_byte, 3),
            last=round(monotonic() - self._began, 3),
            headers=_choose_headers(answer),
            content_type=answer.headers.get("content-type", ""),
            encoding=answer.headers.get("content-encoding", ""),
            account=account or {},
            recalled=recalled,
        )
        if reader is not None:
            body = reader.kept_body()
            answered = msgspec.structs.replace(
                answered,
                usage=reader.reported_usage,
                stop=reader.facts.finish_reasons,
                provider_cause=reader.report.cause,
                provider_missed=reader.report.missed,
                answer_id=reader.facts.id,
            )
        self._add(answered, body)

    def failed(self, error: BaseException) -> None:
        """No answer came, or it broke off. Does nothing if the answer is in the record."""
        reason = str(getattr(error, "message", "")) or type(error).__name__
        self._add(
            Answered(
                id=self._sent_id,
                at=round(time(), 3),
                first=round(self._first_byte, 3),
                last=round(monotonic() - self._began, 3),
                error=reason,
            ),
            None,
        )

    def _add(self, answered: Answered, body: bytes | None) -> None:
        conversation = self._unanswered
        if conversation is None:  # nothing was sent, or its answer is in the record already
            return
        self._unanswered = None
        if not self.keeps_bodies:
            body = None
        conversation.record.add_answer(answered, body=body)
        self._save_soon(conversation)

    def _save_soon(self, conversation: LiveConversation) -> None:
        """Save what happened in a moment; figures without texts with what comes in the next seconds."""
        if self.keeps_bodies:
            self._saver.record_soon(conversation)
        else:
            self._saver.save_later(conversation)


def _note_cut(outgoing: OutgoingRequest) -> CutNote | None:
    if not outgoing.new_cuts:
        return None
    return CutNote.of(outgoing.new_cuts[-1])


def _choose_headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for name, value in answer.headers.items():
        low_name = lower_ascii(name)
        if low_name in _HEADERS or low_name.startswith(_HEADER_BEGINNINGS):
            chosen[low_name] = value
    return chosen
