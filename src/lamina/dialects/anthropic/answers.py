"""Reads an answer of the Messages API, whole or as a stream of events, and writes lamina's own answers.

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
from lamina.dialects.anthropic.parse import MessageScan
from lamina.dialects.anthropic.server import read_cleared
from lamina.dialects.json_values import (
    drop_field,
    drop_nulls,
    text_or_empty,
    to_dict_or_empty,
    to_dict_or_none,
    to_event,
)
from lamina.dialects.memos import GrowingList
from lamina.dialects.port import Absorbed
from lamina.dialects.usage import Cleared, read_usage
from lamina.errors import BadInput

BROKEN = "error"
"""The stop reason of an error, and of a stream that ended too early."""


def absorb(response: Any) -> Absorbed:
    """Read a whole response: a dict, or an object of the SDK.

    An error in place of a message is an answer without segments, which stopped with "error".
    """
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
    """Read all events of a stream, in order: dicts, or objects of the SDK. Unknown events are skipped.

    A stream that was interrupted has no last event. What came until then is the answer.
    """
    stream = _StreamedMessage()
    for event in events:
        stream.take(to_event(event))
    return stream.finish()


def _absorb_content(content: list[Any], usage: Any, stop: Any, cleared_context: Cleared) -> Absorbed:
    """The answer as segments. An answer without content, which the API may give, has none."""
    segments: tuple[Segment, ...] = ()
    if content:
        segments = MessageScan(GrowingList()).parse({"role": "assistant", "content": content})
    reported_usage = msgspec.structs.replace(read_usage(usage), cleared=cleared_context)
    return Absorbed(segments=segments, usage=reported_usage, stop=text_or_empty(stop))


class _StreamedMessage:
    """A message that grows with each event of a stream."""

    def __init__(self) -> None:
        self.blocks: dict[int, _StreamedBlock] = {}
        self.usage: dict[str, Any] = {}
        self.stop: Any = ""
        self.cleared = Cleared()
        self.has_ended = False

    def take(self, event: Mapping[str, Any]) -> None:
        """Take in the next event. A block that was never begun gets no deltas.

        Blocks have numbers, since the deltas of several may be mixed.
        """
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
                self.stop = to_dict_or_empty(delta).get("stop_reason") or self.stop
                if event.get("context_management"):
                    self.cleared = read_cleared(event)
                self._add_usage(event)
            case {"type": "message_stop"}:
                self.has_ended = True
            # The answer is not whole, whatever came before the error.
            case {"type": "error"}:
                self.stop = BROKEN
                self.has_ended = False

    def finish(self) -> Absorbed:
        """The answer, as far as it can be sent back. The blocks stand in the order of their numbers.

        A stream that ended without a stop reason and without its last event broke off.
        """
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
        self.usage |= drop_nulls(to_dict_or_empty(holder.get("usage")))


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
        """Take in a delta. All fields of a delta of an unknown type are added to the block.

        Text is added to the text that the field has; another value replaces it.
        """
        delta_type = text_or_empty(delta.get("type"))
        if delta_type == "input_json_delta":
            self.input_json.append(str(delta.get("partial_json", "")))
            return
        if delta_type == "citations_delta":
            self.citations.append(delta.get("citation"))
            return
        fields = drop_field(delta, "type")
        if delta_type in _FIELD_OF_DELTA:
            field = _FIELD_OF_DELTA[delta_type]
            fields = {field: delta.get(field)}
        for name, value in drop_nulls(fields).items():
            if isinstance(value, str):
                self.texts.setdefault(name, []).append(value)
            else:
                self.block[name] = value

    def finish(self) -> dict[str, Any] | None:
        """The block, or None if it broke off so that it cannot be sent back.

        Text can be sent back whenever it broke off, if there is some. A call cannot if its input is not
        JSON: the API would refuse it, and nobody can say what the model meant.
        """
        block = self.block
        is_text = block.get("type") == "text"
        if not self.has_ended and not is_text:
            return None
        for field, texts in self.texts.items():
            block[field] = text_or_empty(block.get(field)) + "".join(texts)
        if self.citations:
            block["citations"] = [*(block.get("citations") or ()), *self.citations]
        if is_text and not block.get("text"):
            return None
        input_json = "".join(self.input_json)
        if not is_blank(input_json):
            try:
                block["input"] = json.loads(input_json)
            except (ValueError, RecursionError):
                return None
        return block


def write_answer(answer: Mapping[str, Any], text: str) -> dict[str, Any]:
    """A whole answer that says this text and nothing else."""
    return {**answer, "content": [_write_block(text)]}


def write_closing_events(closing: Sequence[Mapping[str, Any]], text: str, index: int) -> list[dict[str, Any]]:
    """The events that end a stream, after those of one more block, which says this text."""
    return [
        {"type": "content_block_start", "index": index, "content_block": _write_block("")},
        {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": index},
        *map(dict, closing),
    ]


def _write_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
