"""Reads an answer of the model as segments, ready to be sent back, and writes lamina's own answers.

A streamed answer is put together first: text that goes on is joined, and a part with a signature stays a
part of its own, since the API wants it back where it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lamina.core.values import Segment
from lamina.dialects.gemini.parse import read_model_content
from lamina.dialects.gemini.wire import get_enum_word, get_field, to_dict, to_dict_or_empty, to_dicts
from lamina.dialects.json_values import Json, list_or_empty, read_list, text_or_empty
from lamina.dialects.port import Absorbed
from lamina.dialects.usage import read_usage

_HINT = "give it as the SDK gave it"


def absorb(response: Any) -> Absorbed:
    """A GenerateContentResponse, as a dict or as the SDK's object."""
    answer = to_dict(response, "the response", place="response", hint=_HINT)
    candidate = _first_candidate(answer)
    return Absorbed(
        segments=_read_segments(to_dict_or_empty(candidate.get("content"))),
        usage=read_usage(get_field(answer, "usageMetadata")),
        stop=_read_finish_reason(candidate),
    )


def absorb_stream(events: Sequence[Any]) -> Absorbed:
    """All chunks of a stream, in order.

    The last chunk has the usage of the whole answer.
    """
    parts = _StreamedParts()
    usage: Any = None
    stop = ""
    for event in events:
        answer = to_dict(event, "the event", place="event", hint=_HINT)
        usage = get_field(answer, "usageMetadata") or usage
        candidate = _first_candidate(answer)
        stop = _read_finish_reason(candidate) or stop
        content = to_dict_or_empty(candidate.get("content"))
        for part in to_dicts(content.get("parts")):
            parts.add(part)
    content = {"role": "model", "parts": parts.finish()}
    return Absorbed(segments=_read_segments(content), usage=read_usage(usage), stop=stop)


class _StreamedParts:
    """The parts of a streamed content. `_last_text` is the text of the last part while it may go on."""

    def __init__(self) -> None:
        self._parts: list[Json] = []
        self._last_text: list[str] = []

    def add(self, part: Json) -> None:
        """Add a part of one chunk, or continue the last part with its text.

        `{"text": "He"}` and `{"text": "llo"}` are one part. A thought does not go on in an answer: it has a
        field more.
        """
        text = part.get("text")
        if not isinstance(text, str) or get_field(part, "thoughtSignature"):
            self._close_last_part()
            self._parts.append(part)
            return
        part_without_text = {**part, "text": ""}
        if self._last_text and part_without_text == self._parts[-1]:
            self._last_text.append(text)
        elif text:
            self._close_last_part()
            self._parts.append(part_without_text)
            self._last_text.append(text)

    def finish(self) -> list[Json]:
        """All parts, after the last chunk."""
        self._close_last_part()
        return self._parts

    def _close_last_part(self) -> None:
        """Join the text of the last part: nothing goes on with it.

        Deltas are collected in a list, since joining them one by one would take quadratic time.
        """
        if self._last_text:
            self._parts[-1] = {**self._parts[-1], "text": "".join(self._last_text)}
            self._last_text.clear()


def _read_segments(content: Json) -> tuple[Segment, ...]:
    """The segments of a content; none if it has no parts. The role is always the model's.

    `{"parts": [{"text": "Hi"}], "role": "model"}` is one segment.
    """
    if not list_or_empty(content.get("parts")):
        return ()
    if content.get("role") != "model":
        content = {**content, "role": "model"}
    return read_model_content(content)


def _first_candidate(answer: Json) -> Json:
    """The first candidate; empty for the chunk that carries the usage, which may have none.

    Of several candidates it is the one with the index 0, or without an index.
    """
    for candidate in map(to_dict_or_empty, read_list(answer, "candidates", "give the response as it came")):
        if not candidate.get("index"):
            return candidate
    return {}


def _read_finish_reason(candidate: Json) -> str:
    """Why the model stopped, as a word such as "STOP"; "" if the candidate does not say."""
    return text_or_empty(get_enum_word(get_field(candidate, "finishReason")))


def write_answer(answer: Mapping[str, Any], text: str) -> dict[str, Any]:
    """A whole answer, or a chunk of one, whose first candidate says this text and nothing else."""
    first, *others = list_or_empty(answer.get("candidates")) or [{"index": 0}]
    content = {"role": "model", **(first.get("content") or {}), "parts": [{"text": text}]}
    return {**answer, "candidates": [{**first, "content": content}, *others]}


def write_closing_events(closing: Sequence[Mapping[str, Any]], text: str, _: int) -> list[dict[str, Any]]:
    """The chunks that end a stream. The last of them says this text."""
    return [*map(dict, closing[:-1]), write_answer(closing[-1], text)]
