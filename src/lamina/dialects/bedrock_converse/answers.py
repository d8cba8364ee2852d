"""Reads an answer of the Converse API, whole or as events, and writes lamina's own answers.

The segments, rendered again, are the assistant message to send back. If a stream broke off, only what can be
sent back is read: text, but not reasoning without its signature, nor a call with half of its input. An event
is an object with one field, which says its type: `{"contentBlockDelta": {…}}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from lamina.core.text.characters import is_blank
from lamina.core.values import Segment
from lamina.dialects.bedrock_converse.parse import parse_answer
from lamina.dialects.json_values import (
    Json,
    list_or_empty,
    mapping_or_empty,
    text_or_empty,
    to_dict_or_empty,
    to_dict_or_none,
    to_event,
)
from lamina.dialects.port import Absorbed
from lamina.dialects.usage import read_usage
from lamina.errors import BadInput

BROKEN = "error"
"""The stop reason of an error, and of a stream that ended too early."""

_HINT = "give what Converse answered"


def absorb(response: Any) -> Absorbed:
    """Read a whole response. An error in place of an answer has no segments, and stopped with "error"."""
    answer = to_dict_or_none(response)
    if answer is None:
        raise BadInput("not an object", place="response", hint=_HINT)
    if "output" not in answer and ("message" in answer or "__type" in answer):
        return Absorbed(segments=(), stop=BROKEN)
    message = mapping_or_empty(mapping_or_empty(answer.get("output")).get("message"))
    content = message.get("content")
    if not isinstance(content, list):
        raise BadInput("no list of blocks", place="response.output.message.content", hint=_HINT)
    return _absorb_content(content, answer.get("usage"), answer.get("stopReason"))


def _absorb_content(content: Sequence[Any], usage: Any, stop: Any) -> Absorbed:
    segments: tuple[Segment, ...] = ()
    if content:
        segments = parse_answer(content)
    return Absorbed(segments=segments, usage=read_usage(usage), stop=text_or_empty(stop))


def absorb_stream(events: Sequence[Any]) -> Absorbed:
    """Read all events of a stream in order. Events of an unknown type are skipped."""
    streamed = _StreamedAnswer()
    for event in events:
        streamed.take(to_event(event))
    return streamed.finish()


class _StreamedAnswer:
    """An answer that grows with each event."""

    def __init__(self) -> None:
        self.blocks: dict[int, _StreamedBlock] = {}
        self.usage: Any = None
        self.stop = ""

    def take(self, event: Mapping[str, Any]) -> None:
        """Take in the next event. A block of text has no event that begins it."""
        match event:
            case {"contentBlockStart": {"contentBlockIndex": int() as index, "start": start}}:
                self._find_block(index).start = mapping_or_empty(start)
            case {"contentBlockDelta": {"contentBlockIndex": int() as index, "delta": delta}}:
                self._find_block(index).add(mapping_or_empty(delta))
            case {"contentBlockStop": {"contentBlockIndex": int() as index}}:
                self._find_block(index).has_ended = True
            case {"messageStop": stop}:
                self.stop = text_or_empty(mapping_or_empty(stop).get("stopReason"))
            case {"metadata": metadata}:
                self.usage = mapping_or_empty(metadata).get("usage")
            # An error in a stream is an event: `modelStreamErrorException`, `throttlingException`.
            case _ if any(name.endswith("Exception") for name in event):
                self.stop = BROKEN

    def _find_block(self, index: int) -> _StreamedBlock:
        return self.blocks.setdefault(index, _StreamedBlock())

    def finish(self) -> Absorbed:
        """The answer, as far as it can be sent back. A stream without its stop reason broke off."""
        blocks = (streamed.finish() for _, streamed in sorted(self.blocks.items()))
        return _absorb_content(list(filter(None, blocks)), self.usage, self.stop or BROKEN)


class _StreamedBlock:
    """A block, and what its deltas add to it. They are joined once at the end: a long answer has many."""

    def __init__(self) -> None:
        self.start: Mapping[str, Any] = {}
        self.texts: list[str] = []
        self.inputs: list[str] = []
        self.results: list[Json] = []
        self.reasoning: list[str] = []
        self.signatures: list[str] = []
        self.redacted: Any = None
        self.citations: list[Any] = []
        self.has_ended = False

    def add(self, delta: Mapping[str, Any]) -> None:
        """Take in a delta, which is an object with one field that says its type."""
        match delta:
            case {"text": str() as text}:
                self.texts.append(text)
            case {"toolUse": {"input": str() as tool_input}}:
                self.inputs.append(tool_input)
            case {"toolResult": list() as results}:
                self.results += map(to_dict_or_empty, results)
            case {"reasoningContent": {"text": str() as text}}:
                self.reasoning.append(text)
            case {"reasoningContent": {"signature": str() as signature}}:
                self.signatures.append(signature)
            case {"reasoningContent": {"redactedContent": data}}:
                self.redacted = data
            case {"citation": citation}:
                self.citations.append(citation)

    def finish(self) -> Json | None:
        """The block, or None if it broke off so that it cannot be sent back, or says nothing."""
        text = "".join(self.texts)
        if text and self.citations:
            return {"citationsContent": {"content": [{"text": text}], "citations": self.citations}}
        if text:
            return {"text": text}
        if not self.has_ended:
            return None
        if "toolUse" in self.start:
            return self._finish_call()
        if "toolResult" in self.start:
            return self._finish_result()
        return self._finish_reasoning()

    def _finish_result(self) -> Json:
        """What a tool of the API said: its texts in a row are pieces of one."""
        content: list[Json] = []
        for are_texts, results in groupby(self.results, key=lambda result: "text" in result):
            if are_texts:
                content.append({"text": "".join(text_or_empty(result["text"]) for result in results)})
            else:
                content += results
        return {"toolResult": {**to_dict_or_empty(self.start["toolResult"]), "content": content}}

    def _finish_reasoning(self) -> Json | None:
        if self.redacted is not None:
            return {"reasoningContent": {"redactedContent": self.redacted}}
        reasoning: Json = {"text": "".join(self.reasoning)}
        if not reasoning["text"]:
            return None
        if self.signatures:
            reasoning["signature"] = "".join(self.signatures)
        return {"reasoningContent": {"reasoningText": reasoning}}

    def _finish_call(self) -> Json | None:
        """The call, or None if it or its input is not a JSON object: nobody can say what the model meant."""
        tool_input: Any = {}
        input_json = "".join(self.inputs)
        if not is_blank(input_json):
            try:
                tool_input = json.loads(input_json)
            except (ValueError, RecursionError):
                return None
        call = to_dict_or_none(self.start["toolUse"])
        if call is None or not isinstance(tool_input, dict):
            return None
        return {"toolUse": {**call, "input": tool_input}}


def write_answer(answer: Mapping[str, Any], text: str) -> dict[str, Any]:
    """A whole answer that says this text and nothing else."""
    output = mapping_or_empty(answer.get("output"))
    message = {"role": "assistant", **mapping_or_empty(output.get("message")), "content": [{"text": text}]}
    return {**answer, "output": {**output, "message": message}}


def write_closing_events(closing: Sequence[Mapping[str, Any]], text: str, index: int) -> list[dict[str, Any]]:
    """The events that end a stream, after those of one more block, which says this text."""
    return [
        {"contentBlockDelta": {"contentBlockIndex": index, "delta": {"text": text}}},
        {"contentBlockStop": {"contentBlockIndex": index}},
        *map(dict, list_or_empty(closing)),
    ]
