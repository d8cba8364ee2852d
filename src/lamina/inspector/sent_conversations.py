"""A conversation that lamina recorded: its requests, which of them repeat another, and what was reported."""

from __future__ import annotations

from collections.abc import Sequence

from lamina.conversations.lost_caches import LostCache, find_losses
from lamina.conversations.record import ConversationRecord, RecordedCall
from lamina.conversations.recorded_log import read_answer_segments
from lamina.conversations.store import ConversationState
from lamina.core.values import Segment
from lamina.costs.recorded_calls import list_cut_savings
from lamina.dialects import DIALECTS
from lamina.dialects.memos import ParseMemo
from lamina.errors import LaminaError
from lamina.replay.recorded_usage import list_answered
from lamina.replay.traces.recorded_conversations import (
    decode_body,
    find_last_request,
    read_came,
    to_recorded_usage,
)
from lamina.replay.traces.requests import find_user
from lamina.replay.values import RecordedUsage, Trace


class SentConversation:
    """A recorded conversation: its name, what is stored of it, and its requests. It has at least one.

    `version` changes with every change of what is stored.
    """

    def __init__(
        self, name: str, state: ConversationState, record: ConversationRecord, *, version: int | None = None
    ) -> None:
        self.name = name
        self.version = record.count if version is None else version
        self.state = state
        self.record = record
        self.calls: tuple[RecordedCall, ...] = tuple(record.calls)

    def find_earlier(self, number: int) -> int | None:
        """The number of the request that one was sent after, for the same request of the client.

        All of them name the first as the one that they follow. The one before is the last of these.
        """
        first_id = self.calls[number].request.follows
        if not first_id:
            return None
        for earlier in range(number - 1, -1, -1):
            request = self.calls[earlier].request
            if first_id in (request.id, request.follows):
                return earlier
        return None

    @property
    def model(self) -> str:
        """The model of the last request."""
        return self.calls[-1].request.model or self.state.model

    @property
    def dialect(self) -> str:
        """The dialect of the last request."""
        return self.calls[-1].request.dialect or self.state.dialect

    @property
    def window(self) -> int:
        """The window of the last request; 0 if it was not fitted."""
        return self.calls[-1].request.window

    @property
    def has_bodies(self) -> bool:
        return any(call.sent_pieces is not None for call in self.calls)

    def read_log(self, call: RecordedCall, memo: ParseMemo | None = None) -> tuple[Segment, ...]:
        """The segments of a request as the client wrote it; none if its body is not kept, or unreadable."""
        request = decode_body(self.record.came_body(call))
        dialect = DIALECTS.get(call.request.dialect)
        if request is None or dialect is None:
            return ()
        try:
            return dialect.wire.parse(request, memo=memo).log
        except (LaminaError, RecursionError):
            return ()

    def read_user(self) -> str:
        """Whom the last request names as its user; "" if it names nobody, or is not kept."""
        last_call = find_last_request(self.record)
        if last_call is None:
            return ""
        return find_user({}, read_came(self.record, last_call) or {})

    def read_answer(self, call: RecordedCall) -> Sequence[Segment]:
        """The segments of an answer; none if it is not kept, or unreadable."""
        return read_answer_segments(self.state, self.record, call)

    def read_usages(self) -> dict[int, RecordedUsage]:
        """What the provider reported, by the number of the request."""
        usages: dict[int, RecordedUsage] = {}
        for number, (call, saving) in enumerate(zip(self.calls, list_cut_savings(self.calls), strict=True)):
            if call.answer is None or call.answer.usage is None:
                continue
            usages[number] = to_recorded_usage(call.answer.usage, call.request, saving)
        return usages

    def find_losses(self) -> dict[int, LostCache]:
        """What the cache lost, by the number of the request. What lamina's cuts cost is among it."""
        usages = self.read_usages()
        trace = Trace(
            id=self.name,
            place=self.name,
            dialect=self.dialect,
            items=[],
            model=self.model,
            used=usages,
        )
        numbers = list(usages)
        losses = find_losses(list_answered(trace))
        return {numbers[loss.call - 1]: loss for loss in losses}


def count_request_tokens(call: RecordedCall) -> int:
    """The tokens of a request: as the provider reported them, else as lamina counted; 0 if nobody did."""
    if call.answer is not None and call.answer.usage is not None:
        return call.answer.usage.input or call.request.tokens
    return call.request.tokens
