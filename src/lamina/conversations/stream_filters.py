"""Streams without the calls of lamina's own tools: a filter for each API, for blocks and for chunks.

A filter reads the events of one or more streams, and returns those that the client may see. It leaves out the
calls that lamina answers, such as recalls, and holds back the events that end an answer until it is clear
that no other answer follows. The events of a second stream go on where those of the first stopped, so that
the client sees one answer. Events are JSON; those that need no change stay the same objects.

Messages, Responses and Converse name the block or item that an event belongs to. A chunk of Chat Completions,
Ollama or Gemini has a piece of the whole answer. `recall_filter` is what the doors use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

from lamina.conversations.recall_answers import (
    CALL_LISTS,
    change_field,
    drop_recalls,
    end_turn,
    is_client_call,
    is_recall,
    shows_client_call,
)
from lamina.dialects.gemini import DIALECT as GEMINI
from lamina.dialects.json_values import list_or_empty, read_field
from lamina.dialects.ollama import DIALECT as OLLAMA
from lamina.dialects.openai_responses.items import find_streamed_id, read_streamed_id
from lamina.dialects.port import Dialect


def filter_for(dialect: Dialect, own_names: Collection[str]) -> StreamFilter:
    """A new filter for the streams of a dialect, which hides calls of the tools with these names."""
    return _FILTERS.get(dialect.name, GeminiFilter)(own_names)


class StreamFilter(ABC):
    """What a client may see of the model's streams.

    `events` are all events of this round, as they came. `closing` are those that end it, held back.
    `continued_ids` has the id of the last answer by the id that the client sees, if they differ.
    `shown` counts the blocks or items that the client has seen, if the events number them. `shows_call`: the
    client has seen a call of its own, or the beginning of one, so the answer is the client's.
    """

    def __init__(self, own_names: Collection[str]) -> None:
        self.own_names = own_names
        self.is_first = True
        self.events: list[Any] = []
        self.closing: list[Any] = []
        self.continued_ids: dict[str, str] = {}
        self.shown = 0
        self.shows_call = False

    @abstractmethod
    def take(self, event: Any) -> list[Any]:
        """Take the next event, and return what the client may see now."""

    def next_round(self) -> list[Any]:
        """Go on with another stream, which the client sees as the same answer.

        Returns what the client may see of the events that were held back: text that came with the end.
        """
        reopened = [self._reopen(event) for event in self.closing]
        self.is_first = False
        self.events = []
        self.closing = []
        return [event for event in reopened if event is not None]

    def _reopen(self, _event: Any) -> Any:
        """What the client sees of a held event if another stream follows; None for nothing."""
        return None


class _BlockFilter(StreamFilter):
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


class _ArrivingCall:
    """A call of which pieces arrive. `number` is the one by which the client sees it; None for a recall.

    Until its name has come, nobody can say whose call it is: `held_arguments` are what came of it before.
    """

    def __init__(self, call_id: Any) -> None:
        self.id = call_id
        self.is_named = False
        self.number: int | None = None
        self.held_arguments: list[str] = []


class CompletionFilter(StreamFilter):
    """The chunks of OpenAI's Chat Completions: each has a piece of text, or pieces of calls.

    Some servers give every call the same index, or none. So a call that has another id is another call. Some
    give the id and the name only after the first piece of the arguments.
    """

    def __init__(self, own_names: Collection[str]) -> None:
        super().__init__(own_names)
        self._id: Any = None
        self._calls: dict[Any, _ArrivingCall] = {}
        self._call_count = 0
        self._has_recalls = False

    def next_round(self) -> list[Any]:
        self._calls = {}
        self._has_recalls = False
        return super().next_round()

    def _reopen(self, chunk: Any) -> Any:
        choices = list_or_empty(read_field(chunk, "choices"))
        if not choices:  # the chunk that reports the usage
            return None
        if not read_field(read_field(choices[0], "delta"), "content"):
            return None
        shown_choice = change_field(choices[0], "finish_reason", None)
        return change_field(chunk, "choices", [shown_choice])

    def take(self, chunk: Any) -> list[Any]:
        self.events.append(chunk)
        self._id = self._id or read_field(chunk, "id")
        if self._id is not None:
            chunk = change_field(chunk, "id", self._id)
        choices = list_or_empty(read_field(chunk, "choices"))
        if not choices:  # the chunk that reports the usage
            self.closing.append(chunk)
            return []
        whole_delta = read_field(choices[0], "delta")
        delta = self._strip_delta(whole_delta)
        choice = change_field(choices[0], "delta", delta)
        if self._has_recalls:
            choice = end_turn(choice, has_calls=self.shows_call)
        chunk = change_field(chunk, "choices", [choice, *choices[1:]])
        if read_field(choice, "finish_reason"):
            self.closing.append(chunk)
            return []
        if delta is not whole_delta and _is_empty(delta):
            return []
        return [chunk]

    def _strip_delta(self, delta: Any) -> Any:
        """The delta without pieces of recalls. Only the first answer says who speaks."""
        if not self.is_first and read_field(delta, "role"):
            delta = change_field(delta, "role", None)
        calls = list_or_empty(read_field(delta, "tool_calls"))
        if not calls:
            return delta
        shown_calls: list[Any] = []
        for call in calls:
            piece = self._show_piece(call)
            if piece is not None:
                shown_calls.append(piece)
        return change_field(delta, "tool_calls", shown_calls or None)

    def _show_piece(self, piece: Any) -> Any:
        """A piece of a call as the client sees it; None for a recall, and until the call has a name.

        The client counts only the calls that it sees. The piece with the name brings what was held back.
        """
        index = read_field(piece, "index")
        arriving = self._find_arriving(piece, index)
        if not arriving.is_named:
            if not _read_call_name(piece):
                arriving.held_arguments.append(_read_call_arguments(piece))
                return None
            self._name_call(arriving, piece)
            piece = _add_held_pieces(piece, arriving)
        if arriving.number is None:
            return None
        if index is None:
            return piece
        return change_field(piece, "index", arriving.number)

    def _find_arriving(self, piece: Any, index: Any) -> _ArrivingCall:
        """The call that a piece belongs to: the one that arrives at its index, or a new one."""
        call_id = read_field(piece, "id")
        arriving = self._calls.get(index)
        if arriving is None:
            arriving = self._calls[index] = _ArrivingCall(call_id)
        if not arriving.id and not arriving.is_named:
            arriving.id = call_id  # it comes only after the first piece of the arguments
        if call_id and call_id != arriving.id:
            arriving = self._calls[index] = _ArrivingCall(call_id)
        return arriving

    def _name_call(self, arriving: _ArrivingCall, piece: Any) -> None:
        """Decide whose call it is, now that its name has come."""
        arriving.is_named = True
        if is_recall(piece, self.own_names):
            self._has_recalls = True
            return
        arriving.number = self._call_count
        self._call_count += 1
        self.shows_call = True


def _read_function(piece: Any) -> Any:
    """What holds the name of a call: a function, or a tool that takes free text."""
    return read_field(piece, "function") or read_field(piece, "custom")


def _read_call_name(piece: Any) -> str:
    return read_field(_read_function(piece), "name") or ""


def _read_call_arguments(piece: Any) -> str:
    function = _read_function(piece)
    return read_field(function, "arguments") or read_field(function, "input") or ""


def _add_held_pieces(piece: Any, arriving: _ArrivingCall) -> Any:
    """The piece of a call that has its name, with what came before the name."""
    if arriving.id:
        piece = change_field(piece, "id", arriving.id)
    held_arguments = "".join(arriving.held_arguments)
    if not held_arguments:
        return piece
    arguments = held_arguments + _read_call_arguments(piece)
    function = read_field(piece, "function")
    if function:
        return change_field(piece, "function", change_field(function, "arguments", arguments))
    custom = read_field(piece, "custom")
    return change_field(piece, "custom", change_field(custom, "input", arguments))


def _is_empty(delta: Any) -> bool:
    """Whether a delta has nothing for the client."""
    names = ("content", "tool_calls", "refusal", "role", "reasoning_content")
    return not any(read_field(delta, name) for name in names)


class _WholeCallFilter(StreamFilter):
    """Chunks that hold whole calls, as those of Ollama and Gemini do."""

    dialect: Dialect

    def take(self, chunk: Any) -> list[Any]:
        self.events.append(chunk)
        shown_chunk = drop_recalls(chunk, CALL_LISTS[self.dialect.name], self.own_names)
        self.shows_call = self.shows_call or shows_client_call(chunk, self.dialect, self.own_names)
        if self._is_last(chunk):
            self.closing.append(shown_chunk)
            return []
        return [shown_chunk]

    @abstractmethod
    def _is_last(self, chunk: Any) -> bool:
        """Whether the answer ends with this chunk."""


class OllamaFilter(_WholeCallFilter):
    """The chunks of Ollama. The last one says `done`."""

    dialect = OLLAMA

    def _is_last(self, chunk: Any) -> bool:
        return bool(read_field(chunk, "done"))

    def _reopen(self, chunk: Any) -> Any:
        if not read_field(read_field(chunk, "message"), "content"):
            return None
        return change_field(chunk, "done", False)  # noqa: FBT003 - the value of a field


class GeminiFilter(_WholeCallFilter):
    """The chunks of Gemini. In the last one, a candidate says why it stopped."""

    dialect = GEMINI

    def _is_last(self, chunk: Any) -> bool:
        return any(map(_has_stopped, list_or_empty(read_field(chunk, "candidates"))))

    def _reopen(self, chunk: Any) -> Any:
        candidates = list_or_empty(read_field(chunk, "candidates"))
        if not any(map(_has_parts, candidates)):
            return None
        return change_field(chunk, "candidates", list(map(_continue_candidate, candidates)))


def _has_stopped(candidate: Any) -> bool:
    return bool(read_field(candidate, "finishReason"))


def _has_parts(candidate: Any) -> bool:
    return bool(list_or_empty(read_field(read_field(candidate, "content"), "parts")))


def _continue_candidate(candidate: Any) -> Any:
    """A candidate that does not say why it stopped."""
    if read_field(candidate, "finishReason"):
        candidate = change_field(candidate, "finishReason", None)
    return candidate


_FILTERS: dict[str, type[StreamFilter]] = {
    "anthropic": MessageFilter,
    "openai_responses": ResponseFilter,
    "openai_chat": CompletionFilter,
    "ollama": OllamaFilter,
    "bedrock_converse": ConverseFilter,
}
