"""A conversation that was recorded: its requests, what was reported of each, and what lamina spared.

Every view reads this. A client's log has the same words, but for what only lamina knows (`logs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from lamina.conversations.costs import is_refused
from lamina.conversations.lost_caches import LostCache, find_losses
from lamina.conversations.record import ConversationRecord, RecordedCall
from lamina.conversations.recorded_log import read_answer_segments
from lamina.conversations.store import ConversationState
from lamina.core.values import Segment
from lamina.costs.logs.own_answers import find_first_words
from lamina.costs.logs.recorded_conversations import (
    SOURCE,
    decode_body,
    find_last_request,
    read_came,
    to_recorded_usage,
)
from lamina.costs.logs.recorded_usage import list_answered
from lamina.costs.logs.values import RecordedUsage, Trace
from lamina.costs.recorded_calls import price_recorded_calls
from lamina.costs.requests import Provenance, Request
from lamina.costs.table import RequestTable
from lamina.dialects import DIALECTS
from lamina.dialects.memos import ParseMemo
from lamina.errors import LaminaError
from lamina.fitting.recalls import read_turns
from lamina.models.facts import model_or_none

DEFAULT_WINDOW = 200_000
"""The window of a model that nobody knows."""


class SentConversation:
    """A recorded conversation: its name, what is stored of it, and its requests. It has at least one.

    `version` changes with every change of what is stored. `unrecorded` are tokens of system text and tools
    that each request had and the record does not have, and `compacted` the requests before which the client
    itself shortened its history; both are of a client's log.
    """

    is_log = False
    project = ""
    unrecorded = 0
    compacted: frozenset[int] = frozenset()

    def __init__(
        self, name: str, state: ConversationState, record: ConversationRecord, *, version: int = 0
    ) -> None:
        self.name = name
        self.version = version
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
        """The window that the last request was fitted to, or that of its model."""
        window = self.calls[-1].request.window
        facts = model_or_none(self.model)
        if window or facts is None:
            return window or DEFAULT_WINDOW
        return facts.budget.window

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

    def read_answer(self, call: RecordedCall) -> Sequence[Segment]:
        """The segments of an answer; none if it is not kept, or unreadable."""
        return read_answer_segments(self.state, self.record, call)

    @property
    def place(self) -> str:
        """Where it was sent, and its name."""
        upstream = self.calls[-1].request.upstream or self.state.upstream or self.state.door or SOURCE
        return f"{upstream}/{self.name}"

    @property
    def title(self) -> str:
        """What the user said first."""
        if self.state.title:
            return self.state.title
        last_call = find_last_request(self.record)
        if last_call is None:
            return ""
        turns = read_turns(read_came(self.record, last_call) or {})
        return find_first_words(turn for turn in turns if isinstance(turn, dict))

    @cached_property
    def rows(self) -> list[Request | None]:
        """A row of the table of requests for each; None for one that nobody answered, or that was refused."""
        return price_recorded_calls(self.calls, self.name, origin=Provenance(client=self.state.door))

    @cached_property
    def table(self) -> RequestTable:
        """The table of requests with these alone: what they cost, and what they would have cost."""
        table = RequestTable()
        table.add(row for row in self.rows if row is not None)
        return table

    def price(self, number: int) -> float | None:
        """What a request cost in USD; None if that is not known. Nobody pays for a refused one."""
        row = self.rows[number]
        if row is not None:
            return row.dollars
        if is_refused(self.calls[number]):
            return 0.0
        return None

    def find_losses(self) -> dict[int, LostCache]:
        """What the cache lost, by the number of the request. What lamina's cuts cost is among it."""
        usages: dict[int, RecordedUsage] = {}
        for number, (call, row) in enumerate(zip(self.calls, self.rows, strict=True)):
            if call.answer is None or call.answer.usage is None:
                continue
            saving = None
            if row is not None and row.dollars is not None and row.dollars_uncut is not None:
                saving = row.dollars_uncut - row.dollars
            usages[number] = to_recorded_usage(call.answer.usage, call.request, saving)
        numbers = list(usages)
        trace = Trace(
            id=self.name, place=self.name, dialect=self.dialect, items=[], model=self.model, used=usages
        )
        losses = find_losses(list_answered(trace))
        return {numbers[loss.call - 1]: loss for loss in losses}


def count_request_tokens(call: RecordedCall) -> int:
    """The tokens of a request: as the provider reported them, else as lamina counted; 0 if nobody did."""
    if call.answer is not None and call.answer.usage is not None:
        return call.answer.usage.input or call.request.tokens
    return call.request.tokens
