"""Filters for streams whose events name the block or item that they belong to: Messages, Responses, Converse.

`lamina.conversations.recall_streams` says what a filter is for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from lamina.conversations.recall_answers import change_field, end_turn, is_client_call, is_recall
from lamina.dialects.json_values import list_or_empty, read_field
from lamina.dialects.openai_responses.items import find_streamed_id, read_streamed_id


class FilterRound:
    """What all filters share: the events of this round, and those of them that are held back."""

    def __init__(self, own_names: Collection[str]) -> None:
        self.own_names = own_names
        self.is_first = True
        self.events: list[Any] = []
        self.closing: list[Any] = []
        self.continued_ids: dict[str, str] = {}
        self.shown = 0
        self.shows_call = False

    def next_round(self) -> list[Any]:
        reopened = [self._reopen(event) for event in self.closing]
        self.is_first = False
        self.events = []
        self.closing = []
        return [event for event in reopened if event is not None]

    def _reopen(self, _event: Any) -> Any:
        """What the client sees of a held event if another stream follows; None for nothing."""
        return None


class _BlockFilter(FilterRound):
    """Events that name the block or item that they belong to. The client's own numbering has no gaps.

    `_numbers` has the client's number of each block, None for one that the client does not see.

    The client sees the reasoning of one round at most, and never reasoning that led to nothing but a recall:
    an API may refuse reasoning that is not followed by what it led to. So reasoning is held back until the
    next block begins.
    """

    number_field = ""
    opening_event = ""
    opened_field = ""
    first_events: tuple[str, ...] = ()
    last_events: tuple[str, ...] = ()

    def __init__(self, own_names: Collection[str]) -> None:
        super().__init__(own_names)
        self._numbers: dict[Any, int | None] = {}
        self._held_blocks: list[Any] = []
        self._held_events: list[Any] = []
        self._recalls_in_round = False
        self._recalled = False
        self._reasoned = False
        self._hides_reasoning = False

    def next_round(self) -> list[Any]:
        self._numbers = {}
        self._held_blocks = []
        self._held_events = []
        self._recalls_in_round = False
        self._hides_reasoning = self._reasoned
        return super().next_round()

    def take(self, event: Any) -> list[Any]:
        self.events.append(event)
        event_type = self._read_type(event)
        if event_type in self.last_events:
            self.closing += self._end(event)
            return []
        if event_type in self.first_events and not self.is_first:
            return []  # the client sees one answer, which has begun
        block = self._find_block(event)
        if block is None:
            return [self._show(event)]
        shown_events: list[Any] = []
        if self._opens(event_type, block):
            shown_events = self._open(block, self._read_opened(event))
        if block in self._held_blocks:
            self._held_events.append(event)
            return []
        if not self._is_hidden(block):
            shown_events.append(self._show(self._renumber(event)))
        return shown_events

    def _read_type(self, event: Any) -> Any:
        return read_field(event, "type")

    def _opens(self, event_type: Any, _block: Any) -> bool:
        """Whether a block begins with this event."""
        return bool(event_type == self.opening_event)

    def _read_opened(self, event: Any) -> Any:
        """The block, item or delta with which a block begins, which tells what it holds."""
        return read_field(event, self.opened_field)

    def _is_reasoning(self, opened: Any) -> bool:
        return read_field(opened, "type") in _REASONING

    def _is_hidden(self, block: Any) -> bool:
        """Whether this is a block of this round that the client does not see."""
        return self._numbers.get(block, 0) is None

    def _find_block(self, event: Any) -> Any:
        """What tells the block of an event from others; None for an event about the whole answer."""
        return read_field(event, self.number_field)

    def _open(self, block: Any, opened: Any) -> list[Any]:
        """Choose the client's number of a block. Returns the reasoning before it, if it may be seen now."""
        if is_recall(opened, self.own_names):
            self._recalls_in_round = True
            self._recalled = True
            self._numbers[block] = None
            return []
        if self._is_reasoning(opened):
            self._numbers[block] = None
            if not self._hides_reasoning:
                self._held_blocks.append(block)
            return []
        released_events = self._release()
        self._numbers[block] = self.shown
        self.shown += 1
        self.shows_call = self.shows_call or is_client_call(opened, self.own_names)
        return released_events

    def _release(self) -> list[Any]:
        """The reasoning that was held back."""
        for block in self._held_blocks:
            self._numbers[block] = self.shown
            self.shown += 1
            self._reasoned = True
        released_events = [self._show(self._renumber(event)) for event in self._held_events]
        self._held_blocks = []
        self._held_events = []
        return released_events

    def _end(self, event: Any) -> list[Any]:
        """An event that ends the answer, after reasoning that nothing followed.

        In a round with a recall, that reasoning led to the recall, and stays hidden with it.
        """
        released_events: list[Any] = []
        if not self._recalls_in_round:
            released_events = self._release()
        return [*released_events, self._show(self._finish(event))]

    def _renumber(self, event: Any) -> Any:
        """An event with the client's number of its block, if its API numbers them."""
        number = read_field(event, self.number_field)
        if number is None:
            return event
        return change_field(event, self.number_field, self._numbers.get(number, number))

    def _show(self, event: Any) -> Any:
        """An event as the client sees it. Each event comes here once, in the client's order."""
        return event

    def _finish(self, event: Any) -> Any:
        """An event that ends the answer as it should be after all rounds."""
        return event


_REASONING = ("thinking", "redacted_thinking", "reasoning")
"""The types of blocks and items that hold the model's reasoning."""


class MessageFilter(_BlockFilter):
    """The events of Anthropic's Messages API."""

    number_field = "index"
    opening_event = "content_block_start"
    opened_field = "content_block"
    first_events = ("message_start",)
    last_events = ("message_delta", "message_stop")

    def _finish(self, event: Any) -> Any:
        """The event that ends the answer. If a recall was all that the model waited for, it waits no more."""
        delta = read_field(event, "delta")
        if delta is None or not self._recalled:
            return event
        return change_field(event, "delta", end_turn(delta, has_calls=self.shows_call))


class ConverseFilter(_BlockFilter):
    """The events of Bedrock's Converse: objects with one field, which says their type.

    Only a call has an event that begins its block. Any other block begins with its first delta.
    """

    first_events = ("messageStart",)
    last_events = ("messageStop", "metadata")

    def _read_type(self, event: Any) -> Any:
        return next(iter(event), None)

    def _find_block(self, event: Any) -> Any:
        return read_field(_read_body(event), "contentBlockIndex")

    def _opens(self, _event_type: Any, block: Any) -> bool:
        return block not in self._numbers

    def _read_opened(self, event: Any) -> Any:
        body = _read_body(event)
        return read_field(body, "start") or read_field(body, "delta")

    def _is_reasoning(self, opened: Any) -> bool:
        return read_field(opened, "reasoningContent") is not None

    def _renumber(self, event: Any) -> Any:
        [(event_type, body)] = event.items()
        number = self._numbers.get(body["contentBlockIndex"])
        return change_field(event, event_type, change_field(body, "contentBlockIndex", number))

    def _finish(self, event: Any) -> Any:
        """The event that ends the answer. If a recall was all that the model waited for, it waits no more."""
        stop = read_field(event, "messageStop")
        if stop is None or not self._recalled:
            return event
        return change_field(event, "messageStop", end_turn(stop, has_calls=self.shows_call))


def _read_body(event: Any) -> Any:
    """What an event of Bedrock says, without its type."""
    if isinstance(event, Mapping) and len(event) == 1:
        return next(iter(event.values()))
    return None


class ResponseFilter(_BlockFilter):
    """The events of OpenAI's Responses API. They are numbered through, and the last one has the whole answer.

    OpenAI's SDK wants one answer to have one id, so the answer keeps the id of the first stream. A request
    that names it later must continue the last answer, since the first ends with a recall without a result.

    A server that does not number its items, such as llama.cpp, names them by their ids.
    """

    number_field = "output_index"
    opening_event = "response.output_item.added"
    opened_field = "item"
    first_events = ("response.created", "response.queued", "response.in_progress")
    last_events = ("response.completed", "response.incomplete", "response.failed")

    def __init__(self, own_names: Collection[str]) -> None:
        super().__init__(own_names)
        self._sequence: int | None = None
        self._id: Any = None
        self._earlier_items: list[Any] = []

    def next_round(self) -> list[Any]:
        for event in self.closing:
            if self._sequence is not None and isinstance(read_field(event, "sequence_number"), int):
                self._sequence -= 1  # nobody has seen this event
            self._earlier_items = list(list_or_empty(read_field(read_field(event, "response"), "output")))
        return super().next_round()

    def take(self, event: Any) -> list[Any]:
        self._id = self._id or read_field(read_field(event, "response"), "id")
        return super().take(event)

    def _find_block(self, event: Any) -> Any:
        number = super()._find_block(event)
        if number is not None:
            return number
        return find_streamed_id(event) or None

    def _finish(self, event: Any) -> Any:
        """The event that ends the answer, with what was shown of earlier streams."""
        response = read_field(event, "response")
        output = list_or_empty(read_field(response, "output"))
        items = list(self._earlier_items)
        for index, item in enumerate(output):
            if is_recall(item, self.own_names):
                continue
            # A server that numbers its items has opened this one by its number, another one by its id.
            if self._is_hidden(index) or self._is_hidden(read_streamed_id(item)):
                continue
            items.append(item)
        if len(items) != len(output) or self._earlier_items:
            response = change_field(response, "output", items)
        last_id = read_field(response, "id")
        if last_id != self._id:
            self.continued_ids = {self._id: last_id}
        response = change_field(response, "id", self._id)
        return change_field(event, "response", response)

    def _show(self, event: Any) -> Any:
        """An event with the client's next number. The first number is that of the first stream."""
        number = read_field(event, "sequence_number")
        if not isinstance(number, int):
            return event
        if self._sequence is not None:
            number = self._sequence
        self._sequence = number + 1
        return change_field(event, "sequence_number", number)
