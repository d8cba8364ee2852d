"""Answers that arrive in pieces, without the recalls in them.

A filter reads the events of one or more streams, and returns those that the client may see. It leaves out the
calls of the recall tool, and holds back the events that end an answer until it is clear that no other answer
follows. The events of a second stream go on where those of the first stopped, so that the client sees one
answer. Events are dicts or objects of an SDK; those that need no change stay the same objects.

    stream_filter = filter_for(dialect)
    for event in stream: yield from stream_filter.take(event)
    absorbed = dialect.absorb_stream(stream_filter.events)
    ...                                             # answer the recalls, if any
    stream_filter.next_round()                      # and read the next stream
    yield from stream_filter.closing                # or let the client see the end
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any, Protocol

from lamina.dialects.json_values import list_or_empty, read_field
from lamina.dialects.port import Dialect
from lamina.fitting.recalls import RECALL


class StreamFilter(Protocol):
    """What a client may see of the model's streams.

    `events` are all events of this round, as they came. `closing` are those that end it, held back.
    `continued_ids` has the id of the last answer by the id that the client sees, if they differ.
    """

    events: list[Any]
    closing: list[Any]
    continued_ids: dict[str, str]

    def take(self, event: Any) -> list[Any]:
        """Take the next event, and return what the client may see now."""
        ...

    def next_round(self) -> list[Any]:
        """Go on with another stream, which the client sees as the same answer.

        Returns what the client may see of the events that were held back: text that came with the end.
        """
        ...


def filter_for(dialect: Dialect) -> StreamFilter:
    """Return a new filter for the streams of a dialect."""
    return _FILTERS.get(dialect.name, _ChunkFilter)()


def find_answer_id(events: Iterable[Any], dialect: Dialect) -> str:
    """Return the id of an answer that its API may keep, from its events or from the whole answer."""
    if dialect.name != "openai_responses":
        return ""
    for event in events:
        answer_id = read_field(read_field(event, "response") or event, "id")
        if isinstance(answer_id, str):
            return answer_id
    return ""


def strip_recalls(answer: Any, dialect: Dialect) -> Any:
    """Return a whole answer without calls of the recall tool; the same object if it has none.

    If no other call is left, the answer does not say that the model waits for results.
    """
    path = _CALL_LISTS.get(dialect.name)
    if path is None:
        return answer
    stripped_answer = _strip(answer, path)
    if stripped_answer is answer:
        return answer
    if dialect.name == "anthropic":
        has_calls = any(map(_is_own_call, list_or_empty(read_field(stripped_answer, "content"))))
        return _end_turn(stripped_answer, has_calls=has_calls)
    choices: list[Any] = []
    for choice in list_or_empty(read_field(stripped_answer, "choices")):
        has_calls = bool(read_field(read_field(choice, "message"), "tool_calls"))
        choices.append(_end_turn(choice, has_calls=has_calls))
    if not choices:
        return stripped_answer
    return _change_items(stripped_answer, "choices", choices)


def mend_recalls(events: Sequence[Any], dialect: Dialect) -> list[Any]:
    """Return the events of a stream without arguments of recalls that are not a JSON object.

    A call of Anthropic's API has an object as its input: one with anything else cannot be sent back, so the
    whole call would be lost when the answer is read. Without arguments it is answered like other mistakes.
    """
    if dialect.name != "anthropic":
        return list(events)
    inputs: dict[Any, str] = {}
    for event in events:
        index = read_field(event, "index")
        if _is_recall(read_field(event, "content_block")):
            inputs[index] = ""
        elif index in inputs:
            inputs[index] += str(read_field(read_field(event, "delta"), "partial_json") or "")
    broken = [index for index, text in inputs.items() if not _is_object(text or "{}")]
    mended_events: list[Any] = []
    for event in events:
        is_delta = read_field(event, "type") == "content_block_delta"
        if not is_delta or read_field(event, "index") not in broken:
            mended_events.append(event)
    return mended_events


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


_CALL_LISTS: dict[str, tuple[str, ...]] = {
    "anthropic": ("content",),
    "openai_chat": ("choices", "message", "tool_calls"),
    "openai_responses": ("output",),
    "gemini": ("candidates", "content", "parts"),
    "ollama": ("message", "tool_calls"),
}
"""Where the calls are in an answer."""


_STOPS = {"stop_reason": ("tool_use", "end_turn"), "finish_reason": ("tool_calls", "stop")}
"""What an answer with calls says at its end, and what one without calls says. Other APIs have one word."""


def _end_turn(holder: Any, *, has_calls: bool) -> Any:
    """Return what says why an answer stopped. Without calls, the model does not wait for results."""
    if has_calls:
        return holder
    for name, (with_calls, without_calls) in _STOPS.items():
        if read_field(holder, name) == with_calls:
            return _change(holder, name, without_calls)
    return holder


def _is_own_call(block: Any) -> bool:
    """Whether a block of Anthropic's API calls a tool of the client."""
    return bool(read_field(block, "type") == "tool_use") and not _is_recall(block)


class _Round:
    """What all filters share."""

    def __init__(self) -> None:
        self.is_first = True
        self.events: list[Any] = []
        self.closing: list[Any] = []
        self.continued_ids: dict[str, str] = {}

    def next_round(self) -> list[Any]:
        self.is_first = False
        self.events = []
        self.closing = []
        return []


class _BlockFilter(_Round):
    """Events that name the block or item that they belong to. The client's own numbering has no gaps.

    The client sees the reasoning of one round at most, and never reasoning that led to nothing but a recall:
    an API may refuse reasoning that is not followed by what it led to. So reasoning is held back until the
    next block begins.
    """

    number_field = ""
    opening_event = ""
    opened_field = ""
    first_events: tuple[str, ...] = ()
    last_events: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self._shown = 0
        self._numbers: dict[Any, int | None] = {}
        self._held_numbers: list[Any] = []
        self._held_events: list[Any] = []
        self._reasoned = False
        self._hides_reasoning = False

    def next_round(self) -> list[Any]:
        self._numbers = {}
        self._held_numbers = []
        self._held_events = []
        self._hides_reasoning = self._reasoned
        return super().next_round()

    def take(self, event: Any) -> list[Any]:
        self.events.append(event)
        event_type = read_field(event, "type")
        if event_type in self.last_events:
            self.closing += self._end(event)
            return []
        if event_type in self.first_events and not self.is_first:
            return []
        number = read_field(event, self.number_field)
        if number is None:
            return [self._show(event)]
        shown_events: list[Any] = []
        if event_type == self.opening_event:
            shown_events = self._open(number, read_field(event, self.opened_field))
        if number in self._held_numbers:
            self._held_events.append(event)
            return []
        if self._numbers.get(number, number) is not None:
            shown_events.append(self._show(self._renumber(event)))
        return shown_events

    def _open(self, number: Any, opened: Any) -> list[Any]:
        """Choose the client's number of a block. Returns the reasoning before it, if it may be seen now."""
        if _is_recall(opened):
            self._numbers[number] = None
            return []
        if read_field(opened, "type") in _REASONING:
            self._numbers[number] = None
            if not self._hides_reasoning:
                self._held_numbers.append(number)
            return []
        released_events = self._release()
        self._numbers[number] = self._shown
        self._shown += 1
        return released_events

    def _release(self) -> list[Any]:
        """Return the reasoning that was held back."""
        for number in self._held_numbers:
            self._numbers[number] = self._shown
            self._shown += 1
            self._reasoned = True
        released_events = [self._show(self._renumber(event)) for event in self._held_events]
        self._held_numbers = []
        self._held_events = []
        return released_events

    def _end(self, event: Any) -> list[Any]:
        """Return an event that ends the answer, after reasoning that nothing followed."""
        released_events: list[Any] = []
        if not self._has_recall():
            released_events = self._release()
        return [*released_events, self._show(self._finish(event))]

    def _has_recall(self) -> bool:
        """Whether this round has a recall: a block that is neither shown nor held back."""
        hidden = [number for number, shown_number in self._numbers.items() if shown_number is None]
        return not self._hides_reasoning and len(hidden) > len(self._held_numbers)

    def _renumber(self, event: Any) -> Any:
        number = read_field(event, self.number_field)
        return _change(event, self.number_field, self._numbers.get(number, number))

    def _show(self, event: Any) -> Any:
        """Return an event as the client sees it. Each event comes here once, in the client's order."""
        return event

    def _finish(self, event: Any) -> Any:
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

    def __init__(self) -> None:
        super().__init__()
        self._has_calls = False
        self._has_recalls = False

    def _open(self, number: Any, opened: Any) -> list[Any]:
        self._has_calls = self._has_calls or _is_own_call(opened)
        self._has_recalls = self._has_recalls or _is_recall(opened)
        return super()._open(number, opened)

    def _finish(self, event: Any) -> Any:
        delta = read_field(event, "delta")
        if delta is None or not self._has_recalls:
            return event
        return _change(event, "delta", _end_turn(delta, has_calls=self._has_calls))


class _ResponseFilter(_BlockFilter):
    """The events of OpenAI's Responses API. They are numbered through, and the last one has the whole answer.

    OpenAI's SDK wants one answer to have one id, so the answer keeps the id of the first stream. A request
    that names it later must continue the last answer, since the first ends with a recall without a result.
    """

    number_field = "output_index"
    opening_event = "response.output_item.added"
    opened_field = "item"
    first_events = ("response.created", "response.queued", "response.in_progress")
    last_events = ("response.completed", "response.incomplete", "response.failed")

    def __init__(self) -> None:
        super().__init__()
        self._sequence = 0
        self._id: Any = None
        self._earlier_items: list[Any] = []

    def next_round(self) -> list[Any]:
        self._sequence -= len(self.closing)  # nobody has seen these
        for event in self.closing:
            self._earlier_items = list(list_or_empty(read_field(read_field(event, "response"), "output")))
        return super().next_round()

    def take(self, event: Any) -> list[Any]:
        self._id = self._id or read_field(read_field(event, "response"), "id")
        return super().take(event)

    def _finish(self, event: Any) -> Any:
        """Return the event that ends the answer, with what was shown of earlier streams."""
        response = read_field(event, "response")
        output = list_or_empty(read_field(response, "output"))
        shown_items = [item for index, item in enumerate(output) if self._is_shown(index, item)]
        items = [*self._earlier_items, *shown_items]
        if len(items) != len(output) or self._earlier_items:
            response = _change(response, "output", items)
        last_id = read_field(response, "id")
        if last_id != self._id:
            self.continued_ids = {self._id: last_id}
        response = _change(response, "id", self._id)
        return _change(event, "response", response)

    def _is_shown(self, index: int, item: Any) -> bool:
        return not _is_recall(item) and self._numbers.get(index, index) is not None

    def _show(self, event: Any) -> Any:
        if read_field(event, "sequence_number") is None:
            return event
        number = self._sequence
        self._sequence += 1
        return _change(event, "sequence_number", number)


class _CompletionFilter(_Round):
    """The chunks of OpenAI's Chat Completions: each has a piece of text, or pieces of calls."""

    def __init__(self) -> None:
        super().__init__()
        self._id: Any = None
        self._hidden: set[Any] = set()
        self._has_calls = False

    def next_round(self) -> list[Any]:
        self._hidden = set()
        shown_chunks: list[Any] = []
        for chunk in self.closing:
            for choice in list_or_empty(read_field(chunk, "choices"))[:1]:
                if read_field(read_field(choice, "delta"), "content"):
                    shown_choice = _change(choice, "finish_reason", None)
                    shown_chunks.append(_change(chunk, "choices", [shown_choice]))
        super().next_round()
        return shown_chunks

    def take(self, chunk: Any) -> list[Any]:
        self.events.append(chunk)
        self._id = self._id or read_field(chunk, "id")
        if self._id is not None:
            chunk = _change(chunk, "id", self._id)
        choices = list_or_empty(read_field(chunk, "choices"))
        if not choices:  # the chunk that reports the usage
            self.closing.append(chunk)
            return []
        delta = self._strip_delta(read_field(choices[0], "delta"))
        self._has_calls = self._has_calls or bool(read_field(delta, "tool_calls"))
        choice = _change(choices[0], "delta", delta)
        if self._hidden:
            choice = _end_turn(choice, has_calls=self._has_calls)
        chunk = _change(chunk, "choices", [choice, *choices[1:]])
        if read_field(choice, "finish_reason"):
            self.closing.append(chunk)
            return []
        if delta is not read_field(choices[0], "delta") and _is_empty(delta):
            return []
        return [chunk]

    def _strip_delta(self, delta: Any) -> Any:
        """Return the delta without pieces of recalls. Only the first answer says who speaks."""
        if not self.is_first and read_field(delta, "role"):
            delta = _change(delta, "role", None)
        calls = list_or_empty(read_field(delta, "tool_calls"))
        if not calls:
            return delta
        shown_calls: list[Any] = []
        for call in calls:
            index = read_field(call, "index")
            if _is_recall(call):
                self._hidden.add(index)
            if index not in self._hidden:
                before = sum(1 for hidden in self._hidden if hidden < index)
                shown_calls.append(_change(call, "index", index - before))
        return _change(delta, "tool_calls", shown_calls or None)


class _ChunkFilter(_Round):
    """Chunks that hold whole calls, as Gemini and Ollama send them."""

    def take(self, chunk: Any) -> list[Any]:
        self.events.append(chunk)
        shown_chunk = _strip(_strip(chunk, _CALL_LISTS["gemini"]), _CALL_LISTS["ollama"])
        if _is_last_chunk(chunk):
            self.closing.append(shown_chunk)
            return []
        return [shown_chunk]

    def next_round(self) -> list[Any]:
        shown_chunks = [_reopen_chunk(chunk) for chunk in self.closing if _has_text(chunk)]
        super().next_round()
        return shown_chunks


def _is_last_chunk(chunk: Any) -> bool:
    if read_field(chunk, "done"):
        return True
    for candidate in list_or_empty(read_field(chunk, "candidates")):
        if read_field(candidate, "finish_reason") or read_field(candidate, "finishReason"):
            return True
    return False


def _has_text(chunk: Any) -> bool:
    if read_field(read_field(chunk, "message"), "content"):
        return True
    for candidate in list_or_empty(read_field(chunk, "candidates")):
        if list_or_empty(read_field(read_field(candidate, "content"), "parts")):
            return True
    return False


def _reopen_chunk(chunk: Any) -> Any:
    """Return a chunk that does not end the answer."""
    if read_field(chunk, "done"):
        return _change(chunk, "done", False)  # noqa: FBT003 - the value of a field
    candidates: list[Any] = []
    for candidate in list_or_empty(read_field(chunk, "candidates")):
        for name in ("finish_reason", "finishReason"):
            if read_field(candidate, name):
                candidate = _change(candidate, name, None)  # noqa: PLW2901
        candidates.append(candidate)
    return _change(chunk, "candidates", candidates)


_FILTERS: dict[str, type[_MessageFilter | _ResponseFilter | _CompletionFilter]] = {
    "anthropic": _MessageFilter,
    "openai_responses": _ResponseFilter,
    "openai_chat": _CompletionFilter,
}


def _strip(holder: Any, path: tuple[str, ...]) -> Any:
    """Return a value without recalls in the list at the end of this path; the same value if it has none."""
    name = path[0]
    rest = path[1:]
    value = read_field(holder, name)
    if not value:
        return holder
    if not isinstance(value, list | tuple):
        return _change(holder, name, _strip(value, rest))
    if rest:
        return _change_items(holder, name, [_strip(item, rest) for item in value])
    return _change_items(holder, name, [item for item in value if not _is_recall(item)])


def _change_items(holder: Any, name: str, items: list[Any]) -> Any:
    """Return a value with other items in one of its lists; itself if they are the same objects.

    An API that may leave out the list of calls does not take an empty one.
    """
    old_items = read_field(holder, name)
    if list(map(id, items)) == list(map(id, old_items)):
        return holder
    if name == "tool_calls" and not items:
        return _change(holder, name, None)
    return _change(holder, name, items)


def _is_recall(item: Any) -> bool:
    """Whether a block, item, call or part of an answer calls the recall tool."""
    for name in ("function", "function_call", "functionCall"):
        item = read_field(item, name) or item
    return bool(read_field(item, "name") == RECALL.name)


def _is_empty(delta: Any) -> bool:
    """Whether a delta has nothing for the client."""
    for name in ("content", "tool_calls", "refusal", "role", "reasoning_content"):
        if read_field(delta, name):
            return False
    return True


def _change(holder: Any, name: str, value: Any) -> Any:
    """Return a dict or an object of an SDK with another value in one field; itself if it is the same."""
    old_value = read_field(holder, name)
    if old_value is value or (isinstance(value, int | str) and old_value == value):
        return holder
    if isinstance(holder, dict):
        return {**holder, name: value}
    if hasattr(holder, "model_copy"):
        return holder.model_copy(update={name: value})
    changed = copy(holder)
    setattr(changed, name, value)
    return changed
