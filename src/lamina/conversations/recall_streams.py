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
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol

from lamina.conversations.block_filters import MessageFilter, ResponseFilter
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


_FILTERS: dict[str, type[MessageFilter | ResponseFilter | CompletionFilter | OllamaFilter]] = {
    "anthropic": MessageFilter,
    "openai_responses": ResponseFilter,
    "openai_chat": CompletionFilter,
    "ollama": OllamaFilter,
}


def mend_recalls(events: Sequence[Any], dialect: Dialect, own_names: Collection[str]) -> list[Any]:
    """The events of a stream without arguments of lamina's own calls that are not a JSON object.

    A call of Anthropic's API has an object as its input: one with anything else cannot be sent back, so the
    whole call would be lost when the answer is read. Without arguments it is answered like other mistakes.
    """
    if dialect.name != "anthropic":
        return list(events)
    broken_blocks = _find_broken_calls(events, own_names)
    mended_events: list[Any] = []
    for event in events:
        is_delta = read_field(event, "type") == "content_block_delta"
        if is_delta and read_field(event, "index") in broken_blocks:
            continue
        mended_events.append(event)
    return mended_events


def _find_broken_calls(events: Sequence[Any], own_names: Collection[str]) -> set[Any]:
    """The blocks with a call of lamina's own whose arguments are not a JSON object."""
    inputs: dict[Any, str] = {}
    for event in events:
        block = read_field(event, "index")
        if is_recall(read_field(event, "content_block"), own_names):
            inputs[block] = ""
        elif block in inputs:
            inputs[block] += str(read_field(read_field(event, "delta"), "partial_json") or "")
    return {block for block, text in inputs.items() if not _is_object(text or "{}")}


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
