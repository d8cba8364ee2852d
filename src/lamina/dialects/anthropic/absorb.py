"""Reads an answer of the Messages API, whole or as a stream of events, into segments for the log.

The segments, rendered again, are the assistant message to send back: blocks as they came, signatures and
unknown fields included. If a stream broke off, only what can be sent back is read: text, but not reasoning
without its signature, nor a call with half of its arguments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lamina.core.text.characters import is_blank
from lamina.core.values import Segment
from lamina.dialects.anthropic.parse import parse_message
from lamina.dialects.anthropic.server import read_cleared
from lamina.dialects.json_values import to_dict_or_empty, to_dict_or_none
from lamina.dialects.port import Absorbed
from lamina.dialects.usage import Cleared, read_usage
from lamina.errors import BadInput

BROKEN = "error"
"""The stop reason of an error, and of a stream that ended too early."""


def absorb(response: Any) -> Absorbed:
    """Reads a whole response: a dict, or an object of the SDK."""
    message = to_dict_or_none(response)
    if message is None or not isinstance(message.get("type", "message"), str):
        raise BadInput("not a message", place="response", hint="give what the Messages API answered")
    if message.get("type") == "error":
        return Absorbed(segments=(), stop=BROKEN)
    content = message.get("content")
    if not isinstance(content, list):
        raise BadInput(
            "no list of blocks", place="response.content", hint="give what the Messages API answered"
        )
    return _absorb_content(content, message.get("usage"), message.get("stop_reason"), read_cleared(message))


def absorb_stream(events: Sequence[Any]) -> Absorbed:
    """Reads all events of a stream, in order: dicts, or objects of the SDK. Unknown events are skipped."""
    stream = _StreamedMessage()
    for event in events:
        mapping = to_dict_or_none(event)
        if mapping is None:
            problem = f"an event is a value of type {type(event).__name__}"
            raise BadInput(problem, place="stream", hint="give the events as they came")
        stream.take(mapping)
    return stream.finish()


def _absorb_content(content: list[Any], usage: Any, stop: Any, cleared_context: Cleared) -> Absorbed:
    segments: tuple[Segment, ...] = ()
    if content:
        segments = parse_message({"role": "assistant", "content": content})
    reported_usage = msgspec.structs.replace(read_usage(usage), cleared=cleared_context)
    if not isinstance(stop, str):
        stop = ""
    return Absorbed(segments=segments, usage=reported_usage, stop=stop)


class _StreamedMessage:
    """A message that grows with each event of a stream."""

    def __init__(self) -> None:
        self.blocks: dict[int, _StreamedBlock] = {}
        self.usage: dict[str, Any] = {}
        self.stop: Any = ""
        self.cleared = Cleared()
        self.has_ended = False

    def take(self, event: Mapping[str, Any]) -> None:
        match event:
            case {"type": "message_start", "message": message}:
                self._add_usage(to_dict_or_empty(message))
            case {"type": "content_block_start", "index": int() as index, "content_block": block}:
                self.blocks[index] = _StreamedBlock(to_dict_or_empty(block))
            case {"type": "content_block_delta", "index": int() as index, "delta": delta} if (
                index in self.blocks
            ):
                self.blocks[index].add(to_dict_or_empty(delta))
            case {"type": "content_block_stop", "index": int() as index} if index in self.blocks:
                self.blocks[index].has_ended = True
            case {"type": "message_delta", "delta": delta}:
                self._take_message_delta(event, to_dict_or_empty(delta))
            case {"type": "message_stop"}:
                self.has_ended = True
            case {"type": "error"}:
                self.stop = BROKEN
                self.has_ended = False

    def _take_message_delta(self, event: Mapping[str, Any], delta: Mapping[str, Any]) -> None:
        self.stop = delta.get("stop_reason") or self.stop
        if event.get("context_management"):
            self.cleared = read_cleared(event)
        self._add_usage(event)

    def finish(self) -> Absorbed:
        content: list[dict[str, Any]] = []
        for _, streamed in sorted(self.blocks.items()):
            block = streamed.finish()
            if block is not None:
                content.append(block)
        stop = self.stop
        if not stop and not self.has_ended:
            stop = BROKEN
        return _absorb_content(content, self.usage, stop, self.cleared)

    def _add_usage(self, holder: Mapping[str, Any]) -> None:
        """Later counts are for the whole message. A count that is absent or null stays as it was."""
        for name, count in to_dict_or_empty(holder.get("usage")).items():
            if count is not None:
                self.usage[name] = count


_FIELD_OF_DELTA = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
"""The field of its block that a delta adds to."""


class _StreamedBlock:
    """A block, and what its deltas add to it. They are joined once at the end: a long answer has many."""

    def __init__(self, block: Mapping[str, Any]) -> None:
        self.block = dict(block)
        self.texts: dict[str, list[str]] = {}
        self.input_json: list[str] = []
        self.citations: list[Any] = []
        self.has_ended = False

    def add(self, delta: Mapping[str, Any]) -> None:
        delta_type = delta.get("type")
        if delta_type == "input_json_delta":
            self.input_json.append(str(delta.get("partial_json", "")))
        elif delta_type == "citations_delta":
            self.citations.append(delta.get("citation"))
        elif isinstance(delta_type, str) and delta_type in _FIELD_OF_DELTA:
            field = _FIELD_OF_DELTA[delta_type]
            self._append(field, delta.get(field))
        else:
            for field, value in delta.items():
                if field != "type":
                    self._append(field, value)

    def finish(self) -> dict[str, Any] | None:
        """The block, or None if it broke off so that it cannot be sent back."""
        block = self.block
        is_text = block.get("type") == "text"
        if not self.has_ended and not is_text:
            return None
        for field, texts in self.texts.items():
            start = block.get(field)
            if not isinstance(start, str):
                start = ""
            block[field] = "".join([start, *texts])
        if self.citations:
            block["citations"] = [*(block.get("citations") or ()), *self.citations]
        if is_text and not block.get("text"):
            return None
        return self._with_input(block)

    def _append(self, field: str, value: Any) -> None:
        if isinstance(value, str):
            self.texts.setdefault(field, []).append(value)
        elif value is not None:
            self.block[field] = value

    def _with_input(self, block: dict[str, Any]) -> dict[str, Any] | None:
        text = "".join(self.input_json)
        if is_blank(text):
            return block
        try:
            tool_input = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return block | {"input": tool_input}
