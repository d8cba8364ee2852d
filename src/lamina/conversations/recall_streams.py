"""Answers that arrive in pieces, without the calls of lamina's own tools.

A filter reads the events of one or more streams, and returns those that the client may see. It leaves out the
calls that lamina answers, such as recalls, and holds back the events that end an answer until it is clear
that no other answer follows. The events of a second stream go on where those of the first stopped, so that
the client sees one answer. Events are dicts or objects of an SDK; those that need no change stay the same
objects.

    stream_filter = filter_for(dialect, fitted.own_names)
    for event in stream: yield from stream_filter.take(event)
    absorbed = dialect.absorb_stream(stream_filter.events)
    ...                                             # answer the recalls, if any
    stream_filter.next_round()                      # and read the next stream
    yield from stream_filter.closing                # or let the client see the end
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

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


class StreamFilter(Protocol):
    """What a client may see of the model's streams.

    `events` are all events of this round, as they came. `closing` are those that end it, held back.
    `continued_ids` has the id of the last answer by the id that the client sees, if they differ.
    `shown` counts the blocks or items that the client has seen, if the events number them. `shows_call`: the
    client has seen a call of its own, or the beginning of one, so the answer is the client's.
    """

    events: list[Any]
    closing: list[Any]
    continued_ids: dict[str, str]
    shown: int
    shows_call: bool

    def take(self, event: Any) -> list[Any]:
        """Take the next event, and return what the client may see now."""
        ...

    def next_round(self) -> list[Any]:
        """Go on with another stream, which the client sees as the same answer.

        Returns what the client may see of the events that were held back: text that came with the end.
        """
        ...


def filter_for(dialect: Dialect, own_names: Collection[str]) -> StreamFilter:
    """A new filter for the streams of a dialect, which hides calls of the tools with these names."""
    return _FILTERS.get(dialect.name, _GeminiFilter)(own_names)


def find_answer_id(events: Iterable[Any], dialect: Dialect) -> str:
    """The id of an answer that its API may keep, from its events or from the whole answer."""
    if dialect.name != "openai_responses":
        return ""
    for event in events:
        answer_id = read_field(read_field(event, "response") or event, "id")
        if isinstance(answer_id, str):
            return answer_id
    return ""


def mend_recalls(events: Sequence[Any], dialect: Dialect, own_names: Collection[str]) -> list[Any]:
    """The events of a stream without arguments of lamina's own calls that are not a JSON object.

    A call of Anthropic's API or of Bedrock has an object as its input: one with anything else cannot be sent
    back, so the whole call would be lost when the answer is read. Without arguments it is answered like other
    mistakes.
    """
    read_event = _BLOCK_EVENTS.get(dialect.name)
    if read_event is None:
        return list(events)
    block_events = [read_event(event) for event in events]
    inputs: dict[Any, str] = {}
    for block_event in block_events:
        if is_recall(block_event.opened, own_names):
            inputs[block_event.index] = ""
        elif block_event.index in inputs:
            inputs[block_event.index] += str(block_event.arguments or "")
    broken = [index for index, text in inputs.items() if not _is_object(text or "{}")]
    mended_events: list[Any] = []
    for event, block_event in zip(events, block_events, strict=True):
        if not block_event.is_delta or block_event.index not in broken:
            mended_events.append(event)
    return mended_events


class _BlockEvent(NamedTuple):
    """An event of a block: its number, the block that it opens, and a piece of a call's arguments."""

    index: Any
    opened: Any
    arguments: Any
    is_delta: bool


def _read_message_event(event: Any) -> _BlockEvent:
    return _BlockEvent(
        index=read_field(event, "index"),
        opened=read_field(event, "content_block"),
        arguments=read_field(read_field(event, "delta"), "partial_json"),
        is_delta=read_field(event, "type") == "content_block_delta",
    )


def _read_converse_event(event: Any) -> _BlockEvent:
    start = read_field(event, "contentBlockStart")
    delta = read_field(event, "contentBlockDelta")
    return _BlockEvent(
        index=read_field(start or delta, "contentBlockIndex"),
        opened=read_field(start, "start"),
        arguments=read_field(read_field(read_field(delta, "delta"), "toolUse"), "input"),
        is_delta=delta is not None,
    )


_BLOCK_EVENTS: dict[str, Callable[[Any], _BlockEvent]] = {
    "anthropic": _read_message_event,
    "bedrock_converse": _read_converse_event,
}
"""How the events of an API are read in which a call's input must be an object."""


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


class _Round:
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
        self.is_first = False
        self.events = []
        self.closing = []
        return []


class _BlockFilter(_Round):
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
        self._has_recall = False
        self._reasoned = False
        self._hides_reasoning = False

    def next_round(self) -> list[Any]:
        self._numbers = {}
        self._held_blocks = []
        self._held_events = []
        self._has_recall = False
        self._hides_reasoning = self._reasoned
        return super().next_round()

    def take(self, event: Any) -> list[Any]:
        self.events.append(event)
        event_type = self._read_type(event)
        if event_type in self.last_events:
            self.closing += self._end(event)
            return []
        if event_type in self.first_events and not self.is_first:
            return []
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

    def _opens(self, event_type: Any, block: Any) -> bool:  # noqa: ARG002 - `_ConverseFilter` looks at the block
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
            self._has_recall = True
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
        if not self._has_recall:
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


class _MessageFilter(_BlockFilter):
    """The events of Anthropic's Messages API."""

    number_field = "index"
    opening_event = "content_block_start"
    opened_field = "content_block"
    first_events = ("message_start",)
    last_events = ("message_delta", "message_stop")

    def __init__(self, own_names: Collection[str]) -> None:
        super().__init__(own_names)
        self._has_recalls = False

    def _open(self, block: Any, opened: Any) -> list[Any]:
        self._has_recalls = self._has_recalls or is_recall(opened, self.own_names)
        return super()._open(block, opened)

    def _finish(self, event: Any) -> Any:
        delta = read_field(event, "delta")
        if delta is None or not self._has_recalls:
            return event
        return change_field(event, "delta", end_turn(delta, has_calls=self.shows_call))


class _ResponseFilter(_BlockFilter):
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
            is_hidden = self._is_hidden(index) or self._is_hidden(read_streamed_id(item))
            if not is_hidden and not is_recall(item, self.own_names):
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


class _ConverseFilter(_BlockFilter):
    """The events of Bedrock's Converse: objects with one field, which says their type.

    Only a call has an event that begins its block. Any other block begins with its first delta.
    """

    first_events = ("messageStart",)
    last_events = ("messageStop", "metadata")

    def __init__(self, own_names: Collection[str]) -> None:
        super().__init__(own_names)
        self._has_recalls = False

    def _read_type(self, event: Any) -> Any:
        return next(iter(event), None)

    def _find_block(self, event: Any) -> Any:
        return read_field(_read_body(event), "contentBlockIndex")

    def _opens(self, event_type: Any, block: Any) -> bool:  # noqa: ARG002 - see `_BlockFilter`
        return block not in self._numbers

    def _read_opened(self, event: Any) -> Any:
        body = _read_body(event)
        return read_field(body, "start") or read_field(body, "delta")

    def _is_reasoning(self, opened: Any) -> bool:
        return read_field(opened, "reasoningContent") is not None

    def _open(self, block: Any, opened: Any) -> list[Any]:
        self._has_recalls = self._has_recalls or is_recall(opened, self.own_names)
        return super()._open(block, opened)

    def _renumber(self, event: Any) -> Any:
        [(event_type, body)] = event.items()
        number = self._numbers.get(body["contentBlockIndex"])
        return change_field(event, event_type, change_field(body, "contentBlockIndex", number))

    def _finish(self, event: Any) -> Any:
        stop = read_field(event, "messageStop")
        if stop is None or not self._has_recalls:
            return event
        return change_field(event, "messageStop", end_turn(stop, has_calls=self.shows_call))


def _read_body(event: Any) -> Any:
    """What an event of Bedrock says, without its type."""
    if isinstance(event, Mapping) and len(event) == 1:
        return next(iter(event.values()))
    return None


class _ArrivingCall:
    """A call of which pieces arrive. `number` is the one by which the client sees it; None for a recall.

    Until its name has come, nobody can say whose call it is: `held_arguments` are what came of it before.
    """

    def __init__(self, call_id: Any) -> None:
        self.id = call_id
        self.is_named = False
        self.number: int | None = None
        self.held_arguments: list[str] = []


class _CompletionFilter(_Round):
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
        shown_chunks: list[Any] = []
        for chunk in self.closing:
            choices = list_or_empty(read_field(chunk, "choices"))
            if not choices:  # the chunk that reports the usage
                continue
            if read_field(read_field(choices[0], "delta"), "content"):
                shown_choice = change_field(choices[0], "finish_reason", None)
                shown_chunks.append(change_field(chunk, "choices", [shown_choice]))
        super().next_round()
        return shown_chunks

    def take(self, chunk: Any) -> list[Any]:
        self.events.append(chunk)
        self._id = self._id or read_field(chunk, "id")
        if self._id is not None:
            chunk = change_field(chunk, "id", self._id)
        choices = list_or_empty(read_field(chunk, "choices"))
        if not choices:  # the chunk that reports the usage
            self.closing.append(chunk)
            return []
        delta = self._strip_delta(read_field(choices[0], "delta"))
        choice = change_field(choices[0], "delta", delta)
        if self._has_recalls:
            choice = end_turn(choice, has_calls=self.shows_call)
        chunk = change_field(chunk, "choices", [choice, *choices[1:]])
        if read_field(choice, "finish_reason"):
            self.closing.append(chunk)
            return []
        if delta is not read_field(choices[0], "delta") and _is_empty(delta):
            return []
        return [chunk]

    def _strip_delta(self, delta: Any) -> Any:
        """The delta without pieces of recalls. Only the first answer says who speaks."""
        if not self.is_first and read_field(delta, "role"):
            delta = change_field(delta, "role", None)
        calls = list_or_empty(read_field(delta, "tool_calls"))
        if not calls:
            return delta
        pieces = map(self._show_piece, calls)
        shown_calls = [piece for piece in pieces if piece is not None]
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
        if arriving is not None:
            if not arriving.id and not arriving.is_named:
                arriving.id = call_id
            if not call_id or call_id == arriving.id:
                return arriving
        arriving = _ArrivingCall(call_id)
        self._calls[index] = arriving
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


class _OllamaFilter(_Round):
    """The chunks of Ollama: each holds whole calls, and the last one says `done`."""

    def take(self, chunk: Any) -> list[Any]:
        self.events.append(chunk)
        shown_chunk = drop_recalls(chunk, CALL_LISTS["ollama"], self.own_names)
        self.shows_call = self.shows_call or shows_client_call(chunk, OLLAMA, self.own_names)
        if read_field(chunk, "done"):
            self.closing.append(shown_chunk)
            return []
        return [shown_chunk]

    def next_round(self) -> list[Any]:
        chunks = [chunk for chunk in self.closing if read_field(read_field(chunk, "message"), "content")]
        super().next_round()
        return [change_field(chunk, "done", False) for chunk in chunks]  # noqa: FBT003 - the value of a field


class _GeminiFilter(_Round):
    """The chunks of Gemini: each holds whole calls. In the last one, a candidate says why it stopped."""

    def take(self, chunk: Any) -> list[Any]:
        self.events.append(chunk)
        shown_chunk = drop_recalls(chunk, CALL_LISTS["gemini"], self.own_names)
        self.shows_call = self.shows_call or shows_client_call(chunk, GEMINI, self.own_names)
        if any(map(_has_stopped, list_or_empty(read_field(chunk, "candidates")))):
            self.closing.append(shown_chunk)
            return []
        return [shown_chunk]

    def next_round(self) -> list[Any]:
        shown_chunks: list[Any] = []
        for chunk in self.closing:
            candidates = list_or_empty(read_field(chunk, "candidates"))
            contents = [read_field(candidate, "content") for candidate in candidates]
            if any(list_or_empty(read_field(content, "parts")) for content in contents):
                continued = [_continue_candidate(candidate) for candidate in candidates]
                shown_chunks.append(change_field(chunk, "candidates", continued))
        super().next_round()
        return shown_chunks


_STOP_REASONS = ("finish_reason", "finishReason")
"""Fields in which a candidate says why it stopped: in objects of the SDK, and in JSON."""


def _has_stopped(candidate: Any) -> bool:
    return any(read_field(candidate, name) for name in _STOP_REASONS)


def _continue_candidate(candidate: Any) -> Any:
    """A candidate that does not say why it stopped."""
    for name in _STOP_REASONS:
        if read_field(candidate, name):
            candidate = change_field(candidate, name, None)
    return candidate


_FILTERS: dict[
    str, type[_MessageFilter | _ResponseFilter | _CompletionFilter | _OllamaFilter | _ConverseFilter]
] = {
    "anthropic": _MessageFilter,
    "openai_responses": _ResponseFilter,
    "openai_chat": _CompletionFilter,
    "ollama": _OllamaFilter,
    "bedrock_converse": _ConverseFilter,
}


def _is_empty(delta: Any) -> bool:
    """Whether a delta has nothing for the client."""
    names = ("content", "tool_calls", "refusal", "role", "reasoning_content")
    return not any(read_field(delta, name) for name in names)
