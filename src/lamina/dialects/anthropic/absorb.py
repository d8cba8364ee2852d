"""An answer of the Messages API, whole or as a stream of events, as segments for the log.

The segments, rendered, are the assistant message to send back: blocks as they came, signatures and unknown
fields included. Of a stream that broke off, what can be sent back is kept: text; not reasoning without its
signature, nor a call with half its arguments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from lamina.core.text.characters import is_blank
from lamina.dialects.anthropic.blocks import plain, refuse
from lamina.dialects.anthropic.parse import parse_message
from lamina.dialects.anthropic.server import cleared
from lamina.dialects.port import Absorbed
from lamina.dialects.usage import Cleared, read_usage

BROKEN = "error"
"""Why a stream stopped that did not come to its end."""


def absorb(response: Any) -> Absorbed:
    """A whole response: a dict, or an object of the SDK."""
    message = plain(response)
    if message is None or not isinstance(message.get("type", "message"), str):
        refuse("not a message", "response", "give what the Messages API answered")
    if message.get("type") == "error":
        return Absorbed(segments=(), stop=BROKEN)
    content = message.get("content")
    if not isinstance(content, list):
        refuse("no list of blocks", "response.content", "give what the Messages API answered")
    return _absorbed(content, message.get("usage"), message.get("stop_reason"), cleared(message))


def absorb_stream(events: Sequence[Any]) -> Absorbed:
    """All events of a stream, in order: dicts, or objects of the SDK. Unknown ones are passed over."""
    stream = _Stream()
    for event in events:
        given = plain(event)
        if given is None:
            refuse(
                f"an event is a value of type {type(event).__name__}",
                "stream",
                "give the events as they came",
            )
        stream.take(given)
    return stream.absorbed()


def _absorbed(content: list[Any], usage: Any, stop: Any, left_out: Cleared) -> Absorbed:
    answer = {"role": "assistant", "content": content}
    segments = parse_message(answer) if content else ()
    used = msgspec.structs.replace(read_usage(usage), cleared=left_out)
    return Absorbed(segments=segments, usage=used, stop=stop if isinstance(stop, str) else "")


class _Stream:
    """A message as its events make it."""

    def __init__(self) -> None:
        self.blocks: dict[int, _Growing] = {}
        self.usage: dict[str, Any] = {}
        self.stop: Any = ""
        self.cleared = Cleared()
        self.ended = False

    def take(self, event: Mapping[str, Any]) -> None:
        match event:
            case {"type": "message_start", "message": message}:
                self._used(plain(message) or {})
            case {"type": "content_block_start", "index": int() as index, "content_block": block}:
                self.blocks[index] = _Growing(plain(block) or {})
            case {"type": "content_block_delta", "index": int() as index, "delta": delta}:
                if index in self.blocks:
                    self.blocks[index].grow(plain(delta) or {})
            case {"type": "content_block_stop", "index": int() as index}:
                if index in self.blocks:
                    self.blocks[index].done = True
            case {"type": "message_delta", "delta": delta}:
                self.stop = (plain(delta) or {}).get("stop_reason") or self.stop
                self.cleared = cleared(event) if event.get("context_management") else self.cleared
                self._used(event)
            case {"type": "message_stop"}:
                self.ended = True
            case {"type": "error"}:
                self.stop, self.ended = BROKEN, False

    def absorbed(self) -> Absorbed:
        grown = (block.grown() for _, block in sorted(self.blocks.items()))
        content = [block for block in grown if block is not None]
        stop = self.stop if self.ended or self.stop else BROKEN
        return _absorbed(content, self.usage, stop, self.cleared)

    def _used(self, event: Mapping[str, Any]) -> None:
        """Later counts are of the whole message; one that is not given stands as it was."""
        counts = plain(event.get("usage")) or {}
        self.usage |= {name: count for name, count in counts.items() if count is not None}


_APPENDED = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
_UNDONE = frozenset(("text",))
"""Blocks that can be sent back though their end never came."""


class _Growing:
    """A block and what its deltas add to it, joined once at the end: a long answer has many of them."""

    def __init__(self, block: Mapping[str, Any]) -> None:
        self.block = dict(block)
        self.texts: dict[str, list[str]] = {}
        self.json: list[str] = []
        self.citations: list[Any] = []
        self.done = False

    def grow(self, delta: Mapping[str, Any]) -> None:
        sort = delta.get("type")
        if sort == "input_json_delta":
            self.json.append(str(delta.get("partial_json", "")))
        elif sort == "citations_delta":
            self.citations.append(delta.get("citation"))
        elif isinstance(sort, str) and sort in _APPENDED:
            self._append(_APPENDED[sort], delta.get(_APPENDED[sort]))
        else:
            for name, value in delta.items():
                if name != "type":
                    self._append(name, value)

    def grown(self) -> dict[str, Any] | None:
        """The block, or None where it broke off so that it cannot be sent back."""
        block = self.block
        if not self.done and block.get("type") not in _UNDONE:
            return None
        for name, texts in self.texts.items():
            before = block.get(name)
            block[name] = "".join([before if isinstance(before, str) else "", *texts])
        if self.citations:
            block["citations"] = [*(block.get("citations") or ()), *self.citations]
        if block.get("type") == "text" and not block.get("text"):
            return None
        return self._with_input(block)

    def _append(self, name: str, value: Any) -> None:
        if isinstance(value, str):
            self.texts.setdefault(name, []).append(value)
        elif value is not None:
            self.block[name] = value

    def _with_input(self, block: dict[str, Any]) -> dict[str, Any] | None:
        text = "".join(self.json)
        if is_blank(text):
            return block
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return block | {"input": given}
