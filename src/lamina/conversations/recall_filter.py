"""What a client sees of the model's answers to one request: one answer, without recalls.

recall_filter = RecallFilter(dialect, fitted.own_names)
for event in stream: yield from recall_filter.take(event)      # or take_whole(answer)
absorbed = recall_filter.absorb()
...                                             # answer the recalls, if any
yield from recall_filter.next_round()           # and read the next stream
yield from recall_filter.list_closing()         # or let the client see the end; show_whole() of an answer
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from operator import is_
from typing import Any, NamedTuple

import msgspec

from lamina.conversations.recall_answers import (
    fill_answer,
    fill_stream,
    is_recall,
    shows_client_call,
    strip_recalls,
)
from lamina.conversations.stream_filters import filter_for
from lamina.dialects.anthropic.server import read_cleared
from lamina.dialects.json_values import read_field
from lamina.dialects.port import Absorbed, Dialect
from lamina.dialects.usage import Usage, find_usage
from lamina.errors import LaminaError


class RecallFilter:
    """The answers to one request: one, and another one after each recall. Each is a stream, or is whole."""

    def __init__(self, dialect: Dialect, own_names: Collection[str]) -> None:
        self._dialect = dialect
        self._own_names = own_names
        self._stream = filter_for(dialect, own_names)
        self._usage = UsageSum()
        self._is_whole = False
        self._whole: Any = None
        self._chunks: list[Any] = []

    @property
    def shows_call(self) -> bool:
        """Whether the client sees a call of its own, or the beginning of one: then the answer is its own."""
        if self._stream.shows_call:
            return True
        return any(shows_client_call(chunk, self._dialect, self._own_names) for chunk in self._chunks)

    def take(self, event: Any) -> list[Any]:
        """Take the next event of a stream, and return what the client may see now."""
        self._usage.read(event)
        return self._stream.take(event)

    def take_whole(self, answer: Any) -> None:
        """Take an answer that came whole: one value, or the list of chunks that Gemini sends."""
        self._is_whole = True
        self._whole = answer
        self._chunks = [answer]
        if isinstance(answer, list):
            self._chunks = answer
        for chunk in self._chunks:
            self._usage.read(chunk)

    def absorb(self) -> Absorbed:
        """What the model said in this round. An answer that cannot be read calls nothing."""
        answers = self._dialect.answers
        with suppress(LaminaError):
            if self._is_whole and not isinstance(self._whole, list):
                return answers.absorb(self._whole)
            return answers.absorb_stream(mend_recalls(self._events, self._dialect, self._own_names))
        last_event = next(reversed(self._events), None)
        return Absorbed(segments=(), usage=read_usage(last_event))

    def next_round(self) -> list[Any]:
        """Go on with another answer, which the client sees as the same one. Returns what it may see now."""
        self._usage.next_round()
        self._is_whole = False
        self._whole = None
        self._chunks = []
        return self._stream.next_round()

    def list_closing(self, *, shows_nothing: bool = False) -> list[Any]:
        """The events that end the last stream. `shows_nothing`: the model only recalled; a notice says so."""
        closing = self._stream.closing
        if shows_nothing:
            closing = fill_stream(closing, self._dialect, index=self._stream.shown)
        return [self._usage.complete(event) for event in closing]

    def show_whole(self, *, shows_nothing: bool = False) -> Any:
        """The last answer as the client sees it; the same object if nothing is hidden."""
        shown_chunks: list[Any] = []
        for chunk in self._chunks:
            stripped = strip_recalls(chunk, self._dialect, self._own_names)
            shown_chunks.append(self._usage.complete(stripped))
        if shows_nothing:
            shown_chunks[-1] = fill_answer(shown_chunks[-1], self._dialect)
        if all(map(is_, shown_chunks, self._chunks)):
            return self._whole
        if isinstance(self._whole, list):
            return shown_chunks
        return shown_chunks[0]

    def find_ids(self) -> tuple[str, str]:
        """The id of the answer that the client saw, and of the last one; "" if its API keeps no answers."""
        last_id = find_answer_id(self._events, self._dialect)
        return next(iter(self._stream.continued_ids), last_id), last_id

    @property
    def _events(self) -> list[Any]:
        """All events of this round, or the whole answer."""
        return self._chunks or self._stream.events


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


Json = dict[str, Any]
Path = tuple[str, ...]

_SUMMED: tuple[Path, ...] = (
    ("output_tokens",),
    ("outputTokens",),
    ("output_tokens_details", "reasoning_tokens"),
    ("completion_tokens",),
    ("completion_tokens_details", "reasoning_tokens"),
    ("candidatesTokenCount",),
    ("thoughtsTokenCount",),
    ("eval_count",),
)
"""The fields that are summed, in the words of every API."""

_TOTALS: dict[str, tuple[Path, ...]] = {
    "total_tokens": (("output_tokens",), ("completion_tokens",)),
    "totalTokens": (("outputTokens",),),
    "totalTokenCount": (("candidatesTokenCount",), ("thoughtsTokenCount",)),
}
"""Fields that hold input and output together, each with the fields of its output."""

_HOLDERS = ("usage", "usageMetadata")

_REPORTING = (*_HOLDERS, "eval_count", "metadata", "message", "response")
"""Fields of the events that may report usage; others are not looked at any closer."""


def read_usage(answer: Any) -> Usage:
    """The tokens that an answer or an event reports, and what its server cleared before."""
    return msgspec.structs.replace(find_usage(answer), cleared=read_cleared(answer))


def add_report(last: Usage, report: Usage) -> Usage:
    """A later report wins where it says more: the last event of a stream may repeat only the output."""
    cleared = report.cleared
    if not cleared.tokens and not cleared.tool_uses:
        cleared = last.cleared
    return Usage(
        input=max(report.input, last.input),
        cached=max(report.cached, last.cached),
        written=max(report.written, last.written),
        written_long=max(report.written_long, last.written_long),
        output=max(report.output, last.output),
        cleared=cleared,
        tier=report.tier or last.tier,
    )


class UsageSum:
    """The usage that a client sees of the answers to one request, in the words of their API.

    Its input is that of the last call, which read everything before it: a client that decides by it when to
    compact its history must not see the sum. Its output is the sum over all calls, since the client pays for
    all of it.
    """

    def __init__(self) -> None:
        self._earlier: list[Json] = []
        self._opening: Json = {}
        self._current: Json = {}

    def read(self, event: Any) -> None:
        """Read an event, or a whole answer. A later report of the same call replaces an earlier one."""
        if not any(read_field(event, name) is not None for name in _REPORTING):
            return
        message = read_field(event, "message")
        if read_field(event, "type") == "message_start" and isinstance(message, Mapping):
            self._opening = _read_object(message, "usage")
            self._current |= self._opening
            return
        _, usage = find_usage_object(event)
        self._current |= usage

    def next_round(self) -> None:
        """The answer was a recall. Another one follows."""
        self._earlier.append(self._current)
        self._current = {}
        self._opening = {}

    def complete(self, event: Any) -> Any:
        """An event of the last answer as the client sees it; the same object if nothing was recalled.

        Anthropic reports the input when an answer begins. The client has seen the beginning of the first
        answer only, so the input of the last one comes with the end.
        """
        if not self._earlier:
            return event
        path, usage = find_usage_object(event)
        if not usage:
            return event
        if event.get("type") == "message_delta":
            usage = {**self._opening, **usage}
        return _replace(event, path, add_output(usage, self._earlier))


def find_usage_object(event: Any) -> tuple[Path, Json]:
    """Where an event has its usage, and the usage. Ollama has it in the event itself."""
    if not isinstance(event, Mapping):
        return (), {}
    response = event.get("response")
    if isinstance(response, Mapping):
        return ("response", "usage"), _read_object(response, "usage")
    for name in _HOLDERS:
        if isinstance(event.get(name), Mapping):
            return (name,), dict(event[name])
    if "eval_count" in event:
        return (), dict(event)
    match event:
        case {"metadata": {"usage": Mapping() as usage}}:  # the last event of Bedrock
            return ("metadata", "usage"), dict(usage)
    return (), {}


def add_output(usage: Json, earlier: Sequence[Json]) -> Json:
    """A usage with what was written in earlier answers added to it."""
    summed = usage
    for path in _SUMMED:
        added = _sum_numbers(earlier, path)
        if added:
            summed = _replace(summed, path, _read_number(usage, path) + added)
    for total, paths in _TOTALS.items():
        if total not in usage:
            continue
        number = _read_number(usage, (total,))
        for path in paths:
            number += _sum_numbers(earlier, path)
        summed = {**summed, total: number}
    return summed


def _sum_numbers(usages: Sequence[Json], path: Path) -> int:
    return sum(_read_number(usage, path) for usage in usages)


def _read_object(holder: Mapping[str, Any], name: str) -> Json:
    value = holder.get(name)
    if not isinstance(value, Mapping):
        return {}
    return dict(value)


def _read_number(usage: Mapping[str, Any], path: Path) -> int:
    value: Any = usage
    for name in path:
        if not isinstance(value, Mapping):
            return 0
        value = value.get(name)
    if isinstance(value, int):
        return value
    return 0


def _replace(holder: Json, path: Path, value: Any) -> Json:
    """An object with another value at this path; with (), the value itself."""
    if not path:
        return dict(value)
    name, *inner_path = path
    if inner_path:
        value = _replace(_read_object(holder, name), tuple(inner_path), value)
    return {**holder, name: value}
