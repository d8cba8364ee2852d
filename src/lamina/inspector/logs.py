"""A client's own log as a conversation that was recorded: every view then reads records only.

A log has every message in full, so a request is the beginning of the last one, and nothing of it was left
out. What lamina alone knows is not there: times of the answer, refusals, reasons. Amounts that were not
reported are not made up: such a request has the size that is counted, and no price.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec

from lamina.conversations.lost_caches import LostCache, find_losses
from lamina.conversations.record import Answered, ConversationRecord, RecordedCall, SentRequest
from lamina.conversations.store import ConversationState
from lamina.costs.logs.message_sizes import MessageSizes
from lamina.costs.logs.model_calls import (
    CHAT,
    ModelCall,
    RecordedConversation,
    read_conversation,
    read_tool_calls,
)
from lamina.costs.logs.own_answers import find_first_words
from lamina.costs.logs.recorded_usage import list_answered
from lamina.costs.logs.values import RecordedUsage, Trace
from lamina.costs.recorded_calls import price_recorded_calls
from lamina.costs.requests import Provenance, Request
from lamina.dialects.usage import Usage
from lamina.errors import LaminaError
from lamina.inspector.sent_conversations import SentConversation
from lamina.models.counters.openai import o200k


def read_log(trace: Trace) -> LoggedConversation | None:
    """A log as a recorded conversation; None for one in which no model was asked.

    A question at the end that nobody answered counts as a request, if it is the only one.
    """
    try:
        conversation = read_conversation(trace)
    except (LaminaError, RecursionError):
        return None
    if not conversation.calls:
        conversation = _add_unanswered_call(conversation)
    if not conversation.calls:
        return None
    return LoggedConversation(conversation)


def _add_unanswered_call(conversation: RecordedConversation) -> RecordedConversation:
    """The conversation with its first request, if there is no answer to it.

    It stays without a call if all of its answers are copies from another session, or if nobody asked
    anything: clients also record their own commands.
    """
    roles = {message.get("role") for message in conversation.messages}
    if "assistant" in roles or not find_first_words(conversation.messages):
        return conversation
    call = ModelCall(end=len(conversation.messages), answer="")
    return msgspec.structs.replace(conversation, calls=(call,))


class LoggedConversation(SentConversation):
    """The requests of a log. Their bodies are written when somebody looks at them."""

    is_log = True

    def __init__(self, conversation: RecordedConversation) -> None:
        trace = conversation.trace
        usages = _list_usages(conversation)
        state = ConversationState(
            door=trace.source,
            title=find_first_words(conversation.messages),
            model=trace.model,
            group=trace.client_session,
            parent=_find_parent(trace),
            keep="all",
        )
        super().__init__(trace.id, state, _LoggedRecord(conversation, usages), version=len(trace.items))
        self.trace = trace
        self.project = trace.project
        self.unrecorded = _estimate_unrecorded(conversation, usages)
        starts = sorted(trace.used)
        places = (bisect_left(starts, place) for place in trace.compacted)
        self.compacted = frozenset(place for place in places if place < len(self.calls))
        self._usages = usages

    @property
    def place(self) -> str:
        return self.trace.place

    @cached_property
    def rows(self) -> list[Request | None]:
        calls: list[RecordedCall] = []
        for call in self.calls:  # it was another API's cache that read it
            request = msgspec.structs.replace(call.request, dialect=self.trace.dialect)
            calls.append(msgspec.structs.replace(call, request=request))
        return price_recorded_calls(calls, self.name, origin=Provenance(client=self.trace.source))

    def find_losses(self) -> dict[int, LostCache]:
        if None in self._usages:
            return {}
        return {loss.call - 1: loss for loss in find_losses(list_answered(self.trace))}


def _find_parent(trace: Trace) -> str:
    """The name of the session that a sub-agent belongs to: "SESSION/agent-1" belongs to "SESSION"."""
    if trace.source != "claude-code":
        return ""
    return trace.id.rpartition("/")[0]


def _list_usages(conversation: RecordedConversation) -> list[RecordedUsage | None]:
    """The reported usage of each call; None where the records have none."""
    usages = [usage for _, usage in sorted(conversation.trace.used.items())]
    if len(usages) != len(conversation.calls):
        return [None] * len(conversation.calls)
    return list(usages)


def _estimate_unrecorded(conversation: RecordedConversation, usages: Sequence[RecordedUsage | None]) -> int:
    """Tokens of system text and tools that the records lack: the first usage, less what is there.

    No request has fewer tokens than these. Logs of some coding agents have neither.
    """
    first = usages[0]
    roles = {message.get("role") for message in conversation.messages}
    if first is None or conversation.tools or not roles.isdisjoint(("system", "developer")):
        return 0
    sizes = MessageSizes(o200k(), conversation.tools)
    recorded = sizes.count_tokens(conversation.messages[: conversation.calls[0].end])
    smallest = min(usage.total for usage in usages if usage is not None)
    return min(max(first.total - recorded, 0), smallest)


class _LoggedRecord(ConversationRecord):
    """A log as a record. Its requests have no pieces: each continues the one before it."""

    def __init__(self, conversation: RecordedConversation, usages: Sequence[RecordedUsage | None]) -> None:
        super().__init__()
        self._conversation = conversation
        for number, (tokens, usage) in enumerate(
            zip(_count_calls(conversation, usages), usages, strict=True)
        ):
            self.calls.append(_make_call(conversation, number, tokens, usage))

    def sent_body(self, call: RecordedCall) -> bytes:
        logged_call = self._conversation.calls[int(call.request.id)]
        return msgspec.json.encode(self._conversation.request(logged_call))

    came_body = sent_body

    def answer_body(self, call: RecordedCall) -> bytes | None:
        """The answer as OpenAI's API would have sent it; None if the log does not have it."""
        messages = self._conversation.messages
        end = self._conversation.calls[int(call.request.id)].end
        if end >= len(messages) or messages[end].get("role") != "assistant":
            return None
        return msgspec.json.encode({"choices": [{"index": 0, "message": _join_answer(messages[end:])}]})


def _count_calls(conversation: RecordedConversation, usages: Sequence[RecordedUsage | None]) -> Iterator[int]:
    """The tokens of each request as they are counted; 0 where its size was reported."""
    sizes = MessageSizes(o200k(), conversation.tools)
    tokens = 0
    end = 0
    for call, usage in zip(conversation.calls, usages, strict=True):
        if usage is not None:
            yield 0
            continue
        new_messages = conversation.messages[end : call.end]
        tokens += sum(sizes.measure(message).tokens for message in new_messages)
        end = call.end
        yield sizes.tool_tokens + tokens


def _make_call(
    conversation: RecordedConversation, number: int, tokens: int, usage: RecordedUsage | None
) -> RecordedCall:
    at = conversation.calls[number].at or 0.0
    model = conversation.trace.model
    request = SentRequest(id=str(number), at=at, dialect=CHAT, model=model, tokens=tokens)
    answer = Answered(id=request.id, at=at, status=200, content_type="application/json")
    call = RecordedCall(request=request, answer=answer, sent_pieces=(), came_pieces=())
    if usage is None:
        if conversation.calls[number].end >= len(conversation.messages):
            call.answer = None  # nobody answered
        return call
    reported = Usage(
        input=usage.total,
        cached=usage.read,
        written=usage.written + usage.written_long,
        written_long=usage.written_long,
        output=usage.output,
        tier=usage.tier,
    )
    call.request = msgspec.structs.replace(request, model=usage.model or model, cut=usage.cut)
    call.answer = msgspec.structs.replace(answer, usage=reported)
    return call


def _join_answer(messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All assistant messages in a row are one answer."""
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    for message in messages:
        if message.get("role") != "assistant":
            break
        if isinstance(message.get("content"), str):
            texts.append(message["content"])
        for call in read_tool_calls(message):
            function = {"name": call.name, "arguments": call.arguments}
            calls.append({"id": call.id, "type": "function", "function": function})
    answer: dict[str, Any] = {"role": "assistant", "content": "\n".join(texts) or None}
    if calls:
        answer["tool_calls"] = calls
    return answer
