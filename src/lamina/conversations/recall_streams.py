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
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from lamina.conversations.block_filters import ConverseFilter, MessageFilter, ResponseFilter
from lamina.conversations.chunk_filters import CompletionFilter, GeminiFilter, OllamaFilter
from lamina.conversations.recall_answers import is_recall
from lamina.dialects.json_values import read_field
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
    return _FILTERS.get(dialect.name, GeminiFilter)(own_names)


def find_answer_id(events: Iterable[Any], dialect: Dialect) -> str:
    """The id of an answer that its API may keep, from its events or from the whole answer."""
    if dialect.name != "openai_responses":
        return ""
    for event in events:
        answer_id = read_field(read_field(event, "response") or event, "id")
        if isinstance(answer_id, str):
            return answer_id
    return ""


_FILTERS: dict[
    str, type[MessageFilter | ResponseFilter | CompletionFilter | OllamaFilter | ConverseFilter]
] = {
    "anthropic": MessageFilter,
    "openai_responses": ResponseFilter,
    "openai_chat": CompletionFilter,
    "ollama": OllamaFilter,
    "bedrock_converse": ConverseFilter,
}


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
